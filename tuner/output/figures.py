"""The figures of a study: arms against each other, its trials in their order, its front, its settings, its time.

Like those of `plots`, they take plain numbers; `tuner.output.drawings` takes these out of a plan. Every figure is drawn
once for the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from tuner.domain.trial import Estimate
from tuner.output import canvas
from tuner.output.plots import intervals, look, slo_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW = 0.27
_LANES = {"dropped": ("v", canvas.AMBER), "failed": ("X", canvas.BAD), "ruled out": ("s", canvas.SOFT)}


class Panel(NamedTuple):
    """One metric of several configurations, and its limit."""

    title: str
    rows: tuple[tuple[str, Estimate], ...]
    limit: float | None = None


class Tried(NamedTuple):
    """One trial: `state` is measured, missed (the SLO), dropped, failed or ruled out; times in seconds."""

    number: int
    state: str
    score: Estimate | None
    predicted: Estimate | None
    best: bool
    deployed: bool
    start_s: float | None
    own_s: float | None
    seconds: float | None


class Spot(NamedTuple):
    """One trial that kept the SLO, by two objectives."""

    number: int
    x: Estimate
    y: Estimate
    on_front: bool
    deployed: bool


class Effect(NamedTuple):
    """The scores of the trials that had each value of one setting."""

    flag: str
    values: tuple[tuple[str, tuple[float, ...]], ...]


@lru_cache(maxsize=64)
def comparison(panels: tuple[Panel, ...]) -> str:
    """Draw each metric with the interval of every configuration, from zero, and the limit as a dashed line."""
    heights = [len(panel.rows) * _ROW + 0.62 for panel in panels]

    def paint(figure: Figure) -> None:
        axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axis, panel in zip(axes, panels, strict=True):
            for index, (label, estimate) in enumerate(panel.rows):
                colour, marker = look(label, index)
                axis.errorbar(estimate.value, index, xerr=intervals([estimate]), color=colour, marker=marker,
                              capsize=3, linestyle="none")
                _beside(axis, index, estimate.format())
            _categories(axis, [label for label, _ in panel.rows])
            if panel.limit is not None:
                slo_line(axis, panel.limit, vertical=True)
            _from_zero(axis, [end for _, item in panel.rows for end in (item.high, panel.limit or 0.0)])
            axis.set_title(panel.title)

    said = "; ".join(f"{panel.title}: " + ", ".join(f"{name} {item.format()}" for name, item in panel.rows)
                     for panel in panels)
    return canvas.draw("comparison", f"Intervals: {said}", sum(heights), paint)


@lru_cache(maxsize=64)
def front(spots: tuple[Spot, ...], x_name: str, y_name: str, join: bool, lower_x: bool) -> str:
    """Draw every trial that kept the SLO by two objectives; those that no other beats in both are joined."""

    def paint(figure: Figure) -> None:
        axis = figure.subplots()
        for spot in spots:
            colour = canvas.MARK if spot.on_front else canvas.SOFT
            axis.errorbar(spot.x.value, spot.y.value, xerr=intervals([spot.x]), yerr=intervals([spot.y]), color=colour,
                          marker="D" if spot.on_front else "o", elinewidth=0.8, linestyle="none",
                          markersize=6 if spot.on_front else 4)
            if spot.deployed:
                axis.plot(spot.x.value, spot.y.value, marker="o", markersize=14, markerfacecolor="none",
                          color=canvas.GOOD, markeredgewidth=1.8, linestyle="none", label="deployed")
            if spot.on_front:
                axis.annotate(str(spot.number), (spot.x.value, spot.y.value), xytext=(7, 6),
                              textcoords="offset points", fontsize=9, color=canvas.SOFT)
        best = sorted((spot for spot in spots if spot.on_front), key=lambda spot: spot.x.value)
        if join and len(best) > 1:
            axis.step([spot.x.value for spot in best], [spot.y.value for spot in best], color=canvas.MARK,
                      linewidth=1.2, where="post" if lower_x else "pre", label="front")
        axis.set_title(y_name)
        axis.set_xlabel(x_name)
        axis.margins(0.12)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(loc="best")

    numbers = ", ".join(str(spot.number) for spot in spots if spot.on_front)
    title = f"Pareto front of {y_name} and {x_name}: trials {numbers}"
    return canvas.draw(f"front-{x_name}-{y_name}", title, 3.4, paint)


@lru_cache(maxsize=64)
def bars(name: str, title: str, rows: tuple[tuple[str, float, str], ...]) -> str:
    """Draw one bar a row: its label, its length and its text."""

    def paint(figure: Figure) -> None:
        axis = figure.subplots()
        axis.barh(range(len(rows)), [value for _, value, _ in rows], color=canvas.RANGE, height=0.62)
        for index, (_, _, text) in enumerate(rows):
            _beside(axis, index, text)
        _categories(axis, [label for label, _, _ in rows], 36)
        axis.set_xlim(left=0)
        axis.tick_params(axis="x", labelbottom=False, length=0)
        axis.grid(visible=False)
        axis.spines["bottom"].set_visible(False)

    said = ", ".join(f"{label} {text}" for label, _, text in rows)
    return canvas.draw(name, f"{title}: {said}", len(rows) * 0.31 + 0.15, paint)


@lru_cache(maxsize=64)
def timeline(rows: tuple[Tried, ...], objective: str) -> str:
    """Draw the trials in their order: what each scored, which gave no result, and how long each took."""
    lanes = [lane for lane in _LANES if any(row.state == lane for row in rows)]
    timed = any(row.seconds or row.start_s for row in rows)
    heights = [2.1, *([0.2 + 0.24 * len(lanes)] if lanes else []), *([1.3] if timed else [])]

    def paint(figure: Figure) -> None:
        axes = list(figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0])
        _scores(axes[0], rows)
        axes[0].set_title(objective)
        if lanes:
            _lanes(axes[1], rows, lanes)
        if timed:
            _seconds(axes[-1], rows)
        axes[-1].set_xlabel("trial")
        canvas.whole_ticks(axes[-1].xaxis)
        first, last = rows[0].number, rows[-1].number
        axes[-1].set_xlim(first - 0.7, last + 0.7)
        figure.legend(loc="outside upper left", ncols=3)

    return canvas.draw("timeline", f"{len(rows)} trials in their order: {objective}", sum(heights) + 0.7, paint)


@lru_cache(maxsize=64)
def agreement(rows: tuple[Tried, ...], objective: str) -> str:
    """Draw what was PREDICTED of each trial before its launch against what was measured."""

    def paint(figure: Figure) -> None:
        axis = figure.subplots()
        for row in rows:
            if row.predicted is None or row.score is None:
                continue
            axis.errorbar(row.predicted.value, row.score.value, xerr=intervals([row.predicted]),
                          yerr=intervals([row.score]), color=canvas.MARK, marker="o", markersize=4, elinewidth=0.8)
        axis.axline((0, 0), slope=1, color=canvas.SOFT, linestyle="--", linewidth=1)
        axis.set_title(f"MEASURED {objective}")
        axis.set_xlabel(f"PREDICTED {objective}")
        axis.set_xlim(left=0)
        axis.set_ylim(bottom=0)

    return canvas.draw("agreement", f"PREDICTED against MEASURED {objective}", 3.2, paint)


@lru_cache(maxsize=64)
def effects(found: tuple[Effect, ...], objective: str) -> str:
    """Draw the score of each trial by the value that it had of each setting, and their mean as a bar."""
    heights = [len(effect.values) * _ROW + 0.5 for effect in found]

    def paint(figure: Figure) -> None:
        axes = figure.subplots(len(found), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for axis, effect in zip(axes, found, strict=True):
            for index, (_, scores) in enumerate(effect.values):
                mean = sum(scores) / len(scores)
                axis.barh(index, mean, color=canvas.RANGE, height=0.62)
                axis.plot(scores, [index] * len(scores), marker="o", markersize=4, color=canvas.MARK, linestyle="none")
                _beside(axis, index, f"{mean:.4g}, n={len(scores)}")
            _categories(axis, [value for value, _ in effect.values])
            axis.set_title(canvas.label(effect.flag))
        axes[-1].set_xlim(left=0)
        axes[-1].set_xlabel(objective)

    flags = ", ".join(effect.flag for effect in found)
    return canvas.draw("effects", f"{objective} by the values of {flags}", sum(heights) + 0.3, paint)


def _scores(axis: Axes, rows: Sequence[Tried]) -> None:
    kept = [row for row in rows if row.score is not None and row.state == "measured"]
    missed = [row for row in rows if row.score is not None and row.state == "missed"]
    for some, face, said in ((kept, canvas.MARK, "kept the SLO"), (missed, canvas.PAPER, "missed it")):
        scores = [row.score for row in some if row.score is not None]
        if scores:
            axis.errorbar([row.number for row in some], [score.value for score in scores], yerr=intervals(scores),
                          color=canvas.MARK, marker="o", markersize=5, markerfacecolor=face, capsize=2, elinewidth=0.9,
                          linestyle="none", label=said)
    best = [row for row in rows if row.best and row.score is not None]
    if best:
        numbers = [row.number for row in best] + [rows[-1].number]
        values = [row.score.value for row in best if row.score is not None]
        axis.step(numbers, [*values, values[-1]], where="post", color=canvas.GOOD, linewidth=1.2, label="best so far")
    guessed = [(row.number, row.predicted.value) for row in rows if row.predicted is not None]
    if guessed:
        numbers, values = [number for number, _ in guessed], [value for _, value in guessed]
        axis.plot(numbers, values, marker="_", markersize=9, color=canvas.VIOLET, linestyle="none",
                  label="PREDICTED before")
    for row in rows:
        if row.deployed and row.score is not None:
            axis.plot(row.number, row.score.value, marker="o", markersize=12, markerfacecolor="none",
                      color=canvas.GOOD, linestyle="none")
    axis.margins(y=0.1)
    axis.set_ylim(bottom=0)


def _lanes(axis: Axes, rows: Sequence[Tried], lanes: Sequence[str]) -> None:
    for index, lane in enumerate(lanes):
        marker, colour = _LANES[lane]
        numbers = [row.number for row in rows if row.state == lane]
        axis.plot(numbers, [index] * len(numbers), marker=marker, markersize=5, color=colour, linestyle="none")
    _categories(axis, lanes)


def _seconds(axis: Axes, rows: Sequence[Tried]) -> None:
    """Stack engine start, llmtune's own time and the rest (load, waiting) of each trial."""
    numbers = [row.number for row in rows]
    starts = [row.start_s or 0.0 for row in rows]
    own = [row.own_s or 0.0 for row in rows]
    rest = [max(0.0, (row.seconds or 0.0) - start - mine) for row, start, mine in zip(rows, starts, own, strict=True)]
    below = [0.0] * len(rows)
    for said, parts, colour in (("start", starts, canvas.AMBER), ("load", rest, canvas.RANGE),
                                ("llmtune", own, canvas.VIOLET)):
        if any(parts):
            axis.bar(numbers, parts, bottom=below, color=colour, width=0.7, label=said)
        below = [low + part for low, part in zip(below, parts, strict=True)]
    axis.set_title("seconds")


def _categories(axis: Axes, names: Sequence[str], length: int = 24) -> None:
    axis.set_yticks(range(len(names)), [canvas.label(name, length) for name in names])
    axis.set_ylim(len(names) - 0.45, -0.55)
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0, labelcolor=canvas.INK)
    axis.spines["left"].set_visible(False)


def _from_zero(axis: Axes, values: Sequence[float]) -> None:
    axis.set_xlim(0, 1.04 * max(values) or 1.0)


def _beside(axis: Axes, index: int, text: str) -> None:
    axis.text(1.02, index, canvas.label(text), transform=axis.get_yaxis_transform(), va="center", fontsize=9)
