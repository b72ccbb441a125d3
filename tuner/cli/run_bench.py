"""Runs `bench` and `compare` for the command line, and draws their tables."""

from __future__ import annotations

import json
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from tuner.app.bench import BenchAsk, bench
from tuner.app.compare import compare, load_result
from tuner.cli.curve import draw_curve
from tuner.cli.show import Screen
from tuner.domain.bench import BenchResult, Level
from tuner.domain.trial import Estimate
from tuner.errors import InterruptedStudyError
from tuner.measure.warnings import advice


def run(ask: BenchAsk, *, as_json: bool) -> None:
    """Run bench and print its result."""
    with Screen(Console(stderr=True, highlight=False), verbose=False) as screen:
        result = bench(ask, screen.tell)
    if as_json:
        print_json(result.model_dump(mode="json"))
        _end(result)
        return
    console = wide()
    console.print(table(result))
    for line in (*draw_curve(result), *notes(result)):
        console.print(line, markup=False, soft_wrap=True)
    if ask.out is not None:
        console.print(f"written to {ask.out}", markup=False)
    _end(result)


def _end(result: BenchResult) -> None:
    if result.interrupted:
        raise InterruptedStudyError("stopped; the finished part is above", hint="the same command starts anew")


def run_compare(a: Path, b: Path, *, as_json: bool) -> None:
    """Compare two results and print the ratios."""
    ratios = compare(load_result(a), load_result(b))
    if as_json:
        print_json([ratio.model_dump(mode="json") for ratio in ratios])
        return
    drawn = Table(box=box.SIMPLE, title="B / A, MEASURED, 95 % interval of the spread within the runs")
    for name in ("level", "metric", "A", "B", "B/A", ""):
        drawn.add_column(name, overflow="fold")
    for ratio in ratios:
        said = "cannot be told apart" if not ratio.clear else "clear"
        if ratio.clear and ratio.doubts:
            said = f"doubtful: {', '.join(ratio.doubts)}"
        drawn.add_row(ratio.level, ratio.metric, ratio.a.format(), ratio.b.format(), ratio.ratio.format(), said)
    wide().print(drawn)


def wide() -> Console:
    """Return a console for tables: as wide as the terminal, and wide enough where there is none."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=160)


def print_json(value: object) -> None:
    """Print JSON to stdout, as data."""
    Console(soft_wrap=True, highlight=False).print(json.dumps(value, indent=1), markup=False)


def table(result: BenchResult) -> Table:
    """Return one row a level."""
    drawn = Table(box=box.SIMPLE, title=f"{result.model}, MEASURED: value [95 % interval]")
    for name in ("load", "output tok/s", "req/s", "TTFT p50 ms", "TTFT p95 ms", "ITL p50 ms", "ITL p95 ms", "failed"):
        drawn.add_column(name, justify="right", overflow="fold")
    if result.slo.limits:
        drawn.add_column("SLO")
    for level in result.levels:
        drawn.add_row(*_cells(level, with_slo=bool(result.slo.limits)))
    return drawn


def notes(result: BenchResult) -> list[str]:
    """Return the knee and the warnings of all levels, each kind once, with what to do."""
    lines = []
    if result.knee:
        lines.append(f"knee: {result.knee} is the highest measured level that keeps {result.slo.text}")
    elif len(result.levels) > 1 and result.slo.limits:
        lines.append(f"no measured level keeps {result.slo.text}")
    seen = set()
    for level in result.levels:
        if level.stopped:
            lines.append(f"{level.label} ended early: {level.stopped}")
        if level.queue_ms is not None:
            lines.append(f"{level.label}: on average {level.queue_ms:.1f} ms in the server's queue, MEASURED")
        if level.accepted_share is not None:
            lines.append(f"{level.label}: speculation kept {level.accepted_share:.0%} of its drafted tokens, MEASURED")
        for kind, count in level.measurement.errors.items():
            words = level.first_words.get(kind)
            lines.append(f"{level.label}: {count} requests failed: {kind}{f', the first: {words}' if words else ''}")
        for warning in level.measurement.warnings:
            lines.append(f"{level.label}: {warning.kind}: {warning.detail}")
            if warning.kind not in seen:
                seen.add(warning.kind)
                lines.append(f"  {advice(warning.kind)}")
    return lines


def _cells(level: Level, *, with_slo: bool) -> list[str]:
    measured = level.measurement
    ttft, itl = measured.ttft_ms, measured.itl_ms
    cells = [
        level.label,
        measured.output_tokens_per_s.format(),
        measured.requests_per_s.format(),
        _text(ttft.p50 if ttft else None),
        _text(ttft.p95 if ttft else None),
        _text(itl.p50 if itl else None),
        _text(itl.p95 if itl else None),
        f"{measured.failed}/{measured.requests}",
    ]
    return [*cells, "kept" if level.meets_slo else "not kept"] if with_slo else cells


def _text(estimate: Estimate | None) -> str:
    return estimate.format() if estimate is not None else "-"
