"""Tables of trials: one row a trial, every setting and every metric a column; CSV, JSON or Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from tuner.domain.engine import Value, plain
from tuner.domain.trial import Estimate, LatencySummary, Measurement
from tuner.errors import UsageError
from tuner.output.files import atomic_file
from tuner.output.tables import can_write_parquet

Format = Literal["csv", "json", "parquet"]
Cell = Value | None
Row = Mapping[str, Cell]


def metric_cells(measurement: Measurement | None) -> dict[str, Cell]:
    """Return every number of a measurement: estimates with `_low` and `_high`, latencies in ms by mean and percentile.

    `limit.<text>` is what a limit of the SLO came to.
    """
    cells: dict[str, Cell] = {}
    if measurement is None:
        return cells
    for name in type(measurement).model_fields:
        value = getattr(measurement, name)
        if isinstance(value, Estimate):
            cells |= _estimate(name, value)
        elif isinstance(value, LatencySummary):
            for part in ("mean", "p50", "p90", "p95", "p99"):
                cells |= _estimate(f"{name}_{part}", getattr(value, part))
        elif isinstance(value, (int, float)):
            cells[name] = value
    for text, estimate in measurement.limits.items():
        cells |= _estimate(f"limit.{text}", estimate)
    cells["warnings"] = ", ".join(sorted({warning.kind.value for warning in measurement.warnings}))
    return cells


def write_table(rows: Sequence[Row], form: Format, to: Path | None) -> str:
    """Write the table to a file, or return its text when there is none.

    A setting that is not set is an empty cell (CSV), null (JSON) or missing (Parquet): the engine's own default.

    Raises:
        UsageError: Parquet without a file, or without pyarrow.
        OutputError: the file cannot be written.

    """
    if form == "parquet":
        if to is None:
            raise UsageError("Parquet is no text", hint="name a file with --to, or choose --format csv")
        _write_parquet(rows, to)
        return ""
    text = _csv(rows) if form == "csv" else json.dumps(_filled(rows), indent=2, ensure_ascii=False) + "\n"
    if to is None:
        return text
    with atomic_file(to) as file:
        file.write(text.encode("utf-8", "surrogatepass"))
    return ""


def columns(rows: Iterable[Row]) -> list[str]:
    """Return every column that any row has, in the order in which they are met."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _filled(rows: Sequence[Row]) -> list[dict[str, Cell]]:
    names = columns(rows)
    return [{name: row.get(name) for name in names} for row in rows]


def _csv(rows: Sequence[Row]) -> str:
    names = columns(rows)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_text(row.get(name)) for name in names] for row in rows)
    return file.getvalue()


def _text(cell: Cell) -> str:
    return "" if cell is None else plain(cell)


def _write_parquet(rows: Sequence[Row], to: Path) -> None:
    """Keep a column's type where all its cells agree; where a setting takes `0.5` as well as `auto` it is text."""
    if not can_write_parquet():
        raise UsageError("Parquet needs pyarrow", hint="pip install 'llmtune[parquet]', or choose --format csv")
    import pandas as pd  # noqa: PLC0415  (a third of a second that only this needs)

    table = {name: _one_type([row.get(name) for row in rows]) for name in columns(rows)}
    with atomic_file(to) as file:
        pd.DataFrame(table).convert_dtypes().to_parquet(file, index=False)


def _one_type(cells: list[Cell]) -> list[Cell]:
    kinds = {type(cell) for cell in cells if cell is not None}
    numbers = {int, float}
    return cells if len(kinds) < 2 or kinds == numbers else [None if cell is None else plain(cell) for cell in cells]


def _estimate(name: str, value: Estimate) -> dict[str, Cell]:
    return {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
