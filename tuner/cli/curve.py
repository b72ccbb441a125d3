"""A load curve in the terminal: a panel for each metric, in it one line a level with its interval and the limit."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.domain.bench import BenchResult, Level
from tuner.domain.trial import Estimate, LatencySummary

WIDTH = 48
LEAST_LEVELS = 2


def draw_curve(result: BenchResult) -> list[str]:
    """Return the lines of the curve over the levels, none for a single level.

    A panel for throughput, for each latency limit of the SLO, and for p95 TTFT and ITL where no limit speaks of them.
    Letters carry the meaning, not colours: `o` is a level that keeps the SLO, `x` one that does not, dashes are its
    95 % interval and `:` is the limit.
    """
    if len(result.levels) < LEAST_LEVELS:
        return []
    lines: list[str] = []
    limits = {limit.text: limit for limit in result.slo.limits if limit.metric != "error_rate"}
    lines += _panel("output tok/s", result, [level.measurement.output_tokens_per_s for level in result.levels], None)
    for text, limit in limits.items():
        unit = f"{limit.metric.upper()} ms ({text})"
        lines += _panel(unit, result, [level.measurement.limits.get(text) for level in result.levels], limit.maximum)
    for metric in ("ttft", "itl"):
        if not any(limit.metric == metric for limit in limits.values()):
            lines += _panel(f"p95 {metric.upper()} ms", result, [_p95(level, metric) for level in result.levels], None)
    legend = "o measured, --- 95 % interval"
    if result.slo.limits:
        legend = "o keeps the SLO, x does not, --- 95 % interval, : limit"
    return [*lines, legend]


def _p95(level: Level, metric: str) -> Estimate | None:
    summary: LatencySummary | None = getattr(level.measurement, f"{metric}_ms")
    return None if summary is None else summary.p95


def _panel(title: str, result: BenchResult, found: Sequence[Estimate | None], limit: float | None) -> list[str]:
    ends = [one.high for one in found if one is not None]
    if not ends:
        return []
    top = max(*ends, limit or 0.0, 1e-9)
    wide = max(len(level.label) for level in result.levels)
    lines = [f"{title}, 0 to {top:.4g}"]
    for level, one in zip(result.levels, found, strict=True):
        mark = "o" if level.meets_slo or not result.slo.limits else "x"
        drawn = " " * WIDTH if one is None else _line(one, top, limit, mark)
        lines.append(f"  {level.label:>{wide}} |{drawn}|{' knee' if level.label == result.knee else ''}")
    return lines


def _line(estimate: Estimate, top: float, limit: float | None, mark: str) -> str:
    def place(value: float) -> int:
        return min(WIDTH - 1, max(0, int(value / top * WIDTH)))

    cells = [" "] * WIDTH
    for cell in range(place(estimate.low), place(estimate.high) + 1):
        cells[cell] = "-"
    if limit is not None:
        cells[place(limit)] = ":"
    cells[place(estimate.value)] = mark
    return "".join(cells)
