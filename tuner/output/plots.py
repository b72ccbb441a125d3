"""The figures of reports: numbers with their intervals in, SVG text out.

Nothing here is read from a plan, so every command that has such numbers can draw them. What has not been measured is
not joined by a line, an interval is always drawn, and colour is never the only sign.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from tuner.domain.slo import Limit
from tuner.domain.trial import Estimate, LoadPoint
from tuner.output import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS = {
    "best": (canvas.MARK, "D"), "baseline": (canvas.AMBER, "s"), "default": (canvas.SOFT, "o"),
    "runner-up": (canvas.VIOLET, "^"),
}
_OTHERS = tuple(_LOOKS.values())
_PANEL = 1.75
_NAMES = {"ttft": "TTFT", "itl": "ITL", "tpot": "TPOT", "e2e": "end-to-end latency"}


class Level(NamedTuple):
    """One load level of one curve: its estimates by the panel that shows them."""

    load: float
    meets_slo: bool
    readings: tuple[tuple[str, Estimate], ...]


class Curve(NamedTuple):
    """The load levels of one configuration, lowest first."""

    label: str
    levels: tuple[Level, ...]

    @property
    def knee(self) -> float | None:
        """The highest load below the first that missed the SLO; None when the lowest missed it."""
        found = None
        for level in self.levels:
            if not level.meets_slo:
                break
            found = level.load
        return found


def load_curves(
    curves: Sequence[tuple[str, Sequence[LoadPoint]]], limits: Sequence[Limit] = (), name: str = "load",
) -> str:
    """Draw throughput and latencies over the load, one curve a configuration; empty text without a level.

    `curves` are labels with their load levels. Every latency limit has a panel of its own with the limit as a dashed
    line; p95 TTFT and p95 ITL are drawn where no limit speaks of them. A hollow marker missed the SLO, a dotted line is
    the highest load that kept it.
    """
    shown = tuple(limit for limit in limits if limit.metric != "error_rate")
    drawn = tuple(_curve(label, levels, shown) for label, levels in curves if levels)
    rates = any(point.rate_per_s is not None for _, levels in curves for point in levels)
    unit = "requests/s offered" if rates else "clients at once"
    return _load_curves(drawn, shown, unit, name) if drawn else ""


def _curve(label: str, levels: Sequence[LoadPoint], limits: Sequence[Limit]) -> Curve:
    found = []
    for point in sorted(levels, key=lambda point: point.load):
        readings = {"throughput": point.output_tokens_per_s}
        tails = {"ttft": point.p95_ttft_ms, "itl": point.p95_itl_ms}
        for limit in limits:
            reading = point.limits.get(limit.text) or (tails.get(limit.metric) if limit.percentile == 95 else None)
            if reading is not None:
                readings[limit.text] = reading
        for metric, tail in tails.items():
            if tail is not None and not any(limit.metric == metric for limit in limits):
                readings[f"p95 {metric}"] = tail
        found.append(Level(point.load, point.meets_slo, tuple(readings.items())))
    return Curve(label, tuple(found))


@lru_cache(maxsize=32)
def _load_curves(curves: tuple[Curve, ...], limits: tuple[Limit, ...], unit: str, name: str) -> str:
    keys = list(dict.fromkeys(key for curve in curves for level in curve.levels for key, _ in level.readings))
    by_text = {limit.text: limit for limit in limits}
    panels = [(key, by_text.get(key)) for key in ("throughput", *by_text, "p95 ttft", "p95 itl") if key in keys]

    def paint(figure: Figure) -> None:
        axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        loads = sorted({level.load for curve in curves for level in curve.levels})
        for axis, (key, limit) in zip(axes, panels, strict=True):
            for index, curve in enumerate(curves):
                _series(axis, curve, key, look(curve.label, index))
            _latency_axis(axis, curves, key, limit)
        _load_axis(axes[-1], loads)
        axes[-1].set_xlabel(unit)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)

    title = f"Load curves of {', '.join(curve.label for curve in curves)}: throughput and latency over {unit}"
    return canvas.draw(name, title, 0.75 + _PANEL * len(panels), paint)


def look(label: str, index: int) -> tuple[str, str]:
    """Return colour and marker of a configuration: the same in every figure."""
    return _LOOKS.get(label.partition(",")[0]) or _OTHERS[index % len(_OTHERS)]


def _series(axis: Axes, curve: Curve, key: str, look: tuple[str, str]) -> None:
    colour, marker = look
    points = [(level, dict(level.readings)[key]) for level in curve.levels if key in dict(level.readings)]
    if not points:
        return
    loads = [level.load for level, _ in points]
    values = [estimate.value for _, estimate in points]
    axis.errorbar(loads, values, yerr=intervals([estimate for _, estimate in points]), color=colour, capsize=2,
                  linewidth=1.6, elinewidth=1)
    for level, estimate in points:
        axis.plot(level.load, estimate.value, marker=marker, color=colour, linestyle="none",
                  markerfacecolor=colour if level.meets_slo else canvas.PAPER)
    knee = curve.knee
    said = "" if knee is None else f", knee {knee:g}"
    if key == "throughput":
        axis.plot([], [], color=colour, marker=marker, label=canvas.label(curve.label) + said)
    if knee is not None and any(not level.meets_slo for level in curve.levels):
        axis.axvline(knee, color=colour, linestyle=":", linewidth=1.1)


def intervals(estimates: Sequence[Estimate]) -> list[list[float]]:
    """Return lengths below and above, never negative where an interval does not hold its own value."""
    return [[max(0.0, one.value - one.low) for one in estimates], [max(0.0, one.high - one.value) for one in estimates]]


def _latency_axis(axis: Axes, curves: Sequence[Curve], key: str, limit: Limit | None) -> None:
    if key == "throughput":
        axis.set_title("output tokens/s")
        axis.set_ylim(bottom=0)
        return
    stat, _, metric = key.partition("<=")[0].partition(" ")
    axis.set_title(f"{stat} {_NAMES[metric]}, ms")
    found = [estimate for curve in curves for level in curve.levels for name, estimate in level.readings if name == key]
    values = [estimate.value for estimate in found] + ([limit.maximum] if limit else [])
    if min(values) > 0 and max(values) / min(values) > 20:
        axis.set_yscale("log")
        canvas.log_ticks(axis.yaxis)
    else:
        axis.set_ylim(0, 1.12 * max(*values, *(estimate.high for estimate in found)) or 1.0)
    if limit is not None:
        slo_line(axis, limit.maximum, vertical=False)


def slo_line(axis: Axes, value: float, *, vertical: bool) -> None:
    """Draw a limit of the SLO, and write it where there is room."""
    line = axis.axvline if vertical else axis.axhline
    line(value, color=canvas.BAD, linestyle="--", linewidth=1.2)
    if not vertical:
        axis.annotate(f"SLO {value:g}", (0, value), xycoords=("axes fraction", "data"), xytext=(3, 2),
                      textcoords="offset points", color=canvas.BAD, fontsize=9)


def _load_axis(axis: Axes, loads: Sequence[float]) -> None:
    """Put a tick at each level that was run, as far as they have room."""
    spread = loads[0] > 0 and loads[-1] / loads[0] >= 6
    if spread:
        axis.set_xscale("log", base=2)
        room = math.log2(loads[-1] / loads[0]) / 14
        gap = [math.log2(load / loads[0]) if load else 0.0 for load in loads]
    else:
        room = (loads[-1] - loads[0]) / 14
        gap = [load - loads[0] for load in loads]
    ticks: list[float] = []
    last = -math.inf
    for load, place in zip(loads, gap, strict=True):
        if place - last >= room:
            ticks.append(load)
            last = place
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
