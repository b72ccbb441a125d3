"""Runs `studies` for the command line, and draws its tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import typer

from tuner.app.studies import StudyRow, StudyShown, TrialLine, elsewhere, list_studies, show_study
from tuner.app.words import ENGINE_DEFAULTS, value_text
from tuner.cli.show import duration

_SETTINGS_WIDTH, _REASON_WIDTH = 60, 70


def run_list(out: Path, storage: str | None, *, as_json: bool) -> None:
    """Print every study."""
    rows = list_studies(out, storage)
    if as_json:
        dumped = [row.model_dump(mode="json", exclude={"best": {"measurement"}}) for row in rows]
        typer.echo(json.dumps({"schema_version": 1, "studies": dumped}, indent=2))
        return
    if rows:
        heads = ("study", "model", "engine", "objective", "trials", "best so far", "last activity", "working on it")
        for line in columns([heads, *(_list_cells(row) for row in rows)]):
            typer.echo(line)
    else:
        typer.echo(f"no study {'in the storage' if storage else f'under {out}'}", err=True)
    for row in rows:
        if row.problem:
            typer.echo(f"{row.place}: {row.problem}", err=True)
    for folder in elsewhere(out) if storage is None else ():
        typer.echo(f"{folder} keeps its trials in another storage: say --storage URL", err=True)


def run_show(name: str, out: Path, storage: str | None, *, as_json: bool) -> None:
    """Print one study."""
    shown = show_study(name, out, storage)
    if as_json:
        typer.echo(json.dumps({"schema_version": 1, **shown.model_dump(mode="json")}, indent=2))
        return
    for line in show_lines(shown):
        typer.echo(line)


def show_lines(shown: StudyShown) -> Iterator[str]:
    """Yield a study in words: its state, its question, its trials, the importance of settings, the verdict."""
    row = shown.row
    yield f"study       {row.name}"
    for name, text in (shown.question or {"engine": row.engine}).items():
        yield f"{name:<11} {text}"
    yield f"trials      {_counts(row)}"
    if row.best is not None:
        yield f"best so far MEASURED {row.best.text} {row.objective} (trial {row.best.number})"
    elif row.trials.get("measured"):
        yield "best so far none keeps the SLO"
    yield f"activity    {_ago(row.last_activity)}" + (f", at work: {', '.join(row.working)}" if row.working else "")
    if shown.verdict:
        yield f"verdict     {shown.verdict}"
    yield ""
    heads = ("trial", "purpose", "outcome", row.objective or "score", "SLO", "start", "settings", "reason")
    yield from columns([heads, *(_trial_cells(line) for line in shown.lines)])
    if shown.importances:
        yield ""
        yield "share of the objective's spread that goes with each setting (from the plan; a hint with few trials):"
        for importance in shown.importances:
            yield f"  {importance.flag:<32} {importance.share:.0%}"


def columns(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows with their cells under one another; the last column is as long as it is."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _list_cells(row: StudyRow) -> tuple[str, ...]:
    if row.problem:
        return (row.place, "", "", "", "cannot be read", "", "", "")
    best = row.best.text if row.best is not None else "none keeps the SLO" if row.trials.get("measured") else "-"
    return (
        row.name, row.model or "-", row.engine or "-", row.objective or "-", _counts(row), best,
        _ago(row.last_activity), ", ".join(row.working) or "nobody",
    )


def _trial_cells(line: TrialLine) -> tuple[str, ...]:
    settings = " ".join(f"{flag}={value_text(value)}" for flag, value in line.settings.items()) or ENGINE_DEFAULTS
    reason = f"{line.cause}: {line.reason}" if line.cause else line.reason
    if line.bound is not None:
        reason += f" (was at {line.bound.format()})"
    if line.outcome in ("running", "cut off") and line.owner:
        reason = line.owner
    return (
        str(line.number), line.purpose, line.outcome, line.text or "-",
        "-" if line.meets_slo is None else "kept" if line.meets_slo else "missed",
        "-" if line.start_s is None else f"{line.start_s:.0f} s",
        _short(settings, _SETTINGS_WIDTH), _short(reason, _REASON_WIDTH),
    )


def _short(text: str, width: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _counts(row: StudyRow) -> str:
    total = sum(row.trials.values())
    parts = ", ".join(f"{count} {outcome}" for outcome, count in row.trials.items())
    return f"{total}: {parts}" if total else "none yet"


def _ago(moment: datetime | None) -> str:
    if moment is None:
        return "-"
    seconds = max(0.0, (datetime.now(UTC) - moment).total_seconds())
    return f"{duration(seconds)} ago" if seconds < 86_400 else f"{moment.astimezone():%Y-%m-%d %H:%M}"
