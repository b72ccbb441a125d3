"""Tables of requests: the only home of pandas."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path

from tuner.domain.load_record import RequestRecord
from tuner.output.files import atomic_file


def can_write_parquet() -> bool:
    """Whether pyarrow is installed (`pip install llmtune[parquet]`)."""
    return importlib.util.find_spec("pyarrow") is not None


def write_parquet(path: Path, records: Iterable[RequestRecord]) -> None:
    """Write one row a request: times in ms from the first request's start, token counts, status and error.

    Raises:
        OutputError: it cannot be written.

    """
    import pandas as pd  # noqa: PLC0415  (a third of a second that only this needs)

    rows = list(records)
    zero = min((row.start_ns for row in rows), default=0)

    def ms(moment: int | None) -> float | None:
        return None if moment is None else (moment - zero) / 1e6

    table = pd.DataFrame({
        "id": [row.id for row in rows],
        "group": [row.group for row in rows],
        "warmup": [row.warmup for row in rows],
        "scheduled_ms": [ms(row.scheduled_ns) for row in rows],
        "start_ms": [ms(row.start_ns) for row in rows],
        "first_token_ms": [ms(row.first_ns) for row in rows],
        "last_token_ms": [ms(row.last_ns) for row in rows],
        "end_ms": [ms(row.end_ns) for row in rows],
        "input_tokens": [row.input_tokens for row in rows],
        "output_tokens": [row.output_tokens for row in rows],
        "status": [row.status for row in rows],
        "error": [row.error for row in rows],
        "chunk_ms": [[ms(moment) for moment in row.chunk_ns] for row in rows],
        "chunk_tokens": [list(row.chunk_tokens) for row in rows],
    })
    with atomic_file(path) as file:
        table.to_parquet(file, index=False)
