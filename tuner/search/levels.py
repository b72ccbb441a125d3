"""The highest load that keeps the SLO, found on one start: a bracket over load levels, then bisection.

More load never makes an SLO easier to keep, so the levels may be bisected. That is true of a rate and of a number of
clients and of nothing else: settings such as max-num-seqs have their optimum anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tuner.domain.trial import Estimate, LoadPoint

GAIN = 0.05
"""How much more load than the incumbent a challenger must hold to be worth a search of its own."""
RESOLUTION = 0.08
"""The bracket is narrow enough when its ends differ by this share."""
MOST_LEVELS = 10
MOST_HALVINGS = 6


@dataclass(frozen=True)
class Knee:
    """What the search found.

    `knee`: the highest level that kept the SLO, its interval up to the lowest that did not; zero when none did.
    `dropped` says why the search was not carried out: the incumbent's level was not held.
    """

    points: tuple[LoadPoint, ...]
    knee: Estimate
    dropped: str | None = None


def find_knee(
    run: Callable[[float], LoadPoint], *, start: float, incumbent: float | None = None, whole: bool = False
) -> Knee:
    """Search the highest level that keeps the SLO.

    `run` loads the server at a level and judges it. With `incumbent`, a level somewhat above the incumbent's knee is
    tried first, and the search ends there when it is not held. `whole` keeps to whole numbers (clients).
    """
    search = _Search(run, whole=whole)
    if incumbent is not None and incumbent > 0:
        first = search.above(incumbent)
        if not search.kept(first):
            reason = f"does not keep the SLO at {first:g}, and the incumbent holds {incumbent:g}"
            return search.result(reason)
    else:
        first = search.rounded(start)
        level = first
        for _ in range(MOST_HALVINGS):
            if search.kept(level) or level <= (1 if whole else start / 2**MOST_HALVINGS):
                break
            level = search.rounded(level / 2)
    while search.low is not None and search.high is None and len(search.points) < MOST_LEVELS:
        search.kept(search.rounded(search.low * 2))
    while (middle := search.middle()) is not None and len(search.points) < MOST_LEVELS:
        search.kept(middle)
    return search.result(None)


class _Search:
    """The bracket: `low` is the highest level kept, `high` the lowest that was not."""

    def __init__(self, run: Callable[[float], LoadPoint], *, whole: bool) -> None:
        self._run = run
        self._whole = whole
        self.points: list[LoadPoint] = []
        self.low: float | None = None
        self.high: float | None = None

    def rounded(self, level: float) -> float:
        return float(max(1, round(level))) if self._whole else level

    def above(self, level: float) -> float:
        return float(max(level + 1, math.ceil(level * (1 + GAIN)))) if self._whole else level * (1 + GAIN)

    def kept(self, level: float) -> bool:
        point = self._run(level)
        self.points.append(point)
        if point.meets_slo:
            self.low = level if self.low is None else max(self.low, level)
        else:
            self.high = level if self.high is None else min(self.high, level)
        return point.meets_slo

    def middle(self) -> float | None:
        """Return the level to try next, or None when the bracket is narrow enough."""
        if self.low is None or self.high is None or self.high <= self.low * (1 + RESOLUTION):
            return None
        middle = self.rounded(math.sqrt(self.low * self.high))
        return None if middle in (self.low, self.high) else middle

    def result(self, dropped: str | None) -> Knee:
        low = self.low or 0.0
        high = low if self.high is None else max(self.high, low)
        knee = Estimate(value=low, low=low, high=high, n=len(self.points))
        return Knee(tuple(sorted(self.points, key=lambda point: point.load)), knee, dropped)
