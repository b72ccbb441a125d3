"""bench.html: the levels of one `bench` as curves and a table, one page without script or network."""

from __future__ import annotations

from tuner.domain.bench import BenchResult, Level
from tuner.domain.trial import Estimate, LoadPoint
from tuner.domain.workload import ClosedLoop, OpenLoop
from tuner.measure.levels import load_point
from tuner.measure.warnings import advice
from tuner.output import canvas
from tuner.output.plots import load_curves
from tuner.output.render import render


def bench_page(result: BenchResult) -> str:
    """Return the text of bench.html. The same result and the same matplotlib give the same bytes."""
    curve = load_curves([(result.model, load_points(result))], result.slo.limits, "bench")
    return render(
        "bench.html.j2",
        title=f"{result.model} at {result.url}",
        tool_version=result.tool_version,
        colours=canvas.style(),
        curve=curve,
        slo=result.slo.text,
        knee=result.knee,
        interrupted=result.interrupted,
        rows=[_row(level) for level in result.levels],
        warnings=_warnings(result),
    )


def load_points(result: BenchResult) -> list[LoadPoint]:
    """Return the levels that are one number (clients or requests/s), which is what a curve can show."""
    return [
        load_point(level.measurement, level.workload, result.slo, level.stopped or "")
        for level in result.levels
        if isinstance(level.workload.arrivals, ClosedLoop | OpenLoop)
    ]


def _row(level: Level) -> dict[str, str]:
    found = level.measurement
    return {
        "load": level.label,
        "output tokens/s": found.output_tokens_per_s.format(),
        "requests/s": found.requests_per_s.format(),
        "p95 TTFT, ms": _text(found.ttft_ms.p95 if found.ttft_ms else None),
        "p95 ITL, ms": _text(found.itl_ms.p95 if found.itl_ms else None),
        "failed": f"{found.failed} of {found.requests}",
        "SLO": "kept" if level.meets_slo else "not kept",
    }


def _warnings(result: BenchResult) -> list[str]:
    return [
        f"{level.label}: {warning.kind}: {warning.detail}. {advice(warning.kind)}"
        for level in result.levels for warning in level.measurement.warnings
    ]


def _text(estimate: Estimate | None) -> str:
    return "-" if estimate is None else estimate.format()
