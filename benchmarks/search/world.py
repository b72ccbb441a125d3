"""What a searcher can be put into: a space whose truth is known, and runs that cost seconds and are noisy.

A run draws the noise of its boot and of its load. With a target it is watched as llmtune watches its trials, and cut
off when the target is out of reach or the SLO is lost: when that happens was counted beforehand on simulated streams of
requests by the very code that ends real ones (`racing.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from benchmarks.search.racing import share_until_dropped, share_until_lost
from tuner.domain.engine import Setting
from tuner.search.observed import Observed
from tuner.search.spaces import Choice, Dimension, OpenSpace

Point = Mapping[str, Choice]
LOST_BEYOND = 0.10
"""An SLO is only seen to be lost early when a limit is missed by more than this."""

UNSEEN = 0.03
"""A pick that misses a limit by less counts as keeping it: one run cannot see that, whoever searches."""


@dataclass(frozen=True)
class Truth:
    """What is true of one configuration. Without a score it does not run: `start_s` is then what the failure takes."""

    start_s: float
    load_s: float = 0.0
    score: float | None = None
    noise: float = 0.02
    """Standard deviation of a full run's score from load alone, as a share of it; its interval tells of this."""
    boot_noise: float = 0.01
    """The same between boots; no interval tells of it."""
    violations: dict[str, float] = field(default_factory=dict)
    reason: str = ""

    @property
    def keeps(self) -> bool:
        """Whether it runs and keeps every limit."""
        return self.score is not None and all(excess <= 0 for excess in self.violations.values())


@dataclass(frozen=True)
class World:
    """A space and its truth. `ruled_out` says what a static check knows without a start."""

    name: str
    about: str
    space: OpenSpace
    direction: Literal["maximize", "minimize"]
    truth: Callable[[Point], Truth]
    ruled_out: Callable[[Point], bool] = lambda _: False
    levels_flags: tuple[str, ...] = ()
    """Flags that tools which only know batch sizes would search, most important first."""

    @cached_property
    def best(self) -> float:
        """The true best score of what runs, keeps the SLO and is not ruled out."""
        scores = [
            truth.score for point in self.space.points()
            if not self.ruled_out(point) and (truth := self.truth(point)).keeps and truth.score is not None
        ]
        return max(scores) if self.direction == "maximize" else min(scores)

    def regret(self, point: Point) -> float:
        """By which share of the true best this point's true score falls short; 1 when it must not be used at all."""
        truth = self.truth(point)
        if truth.score is None or max(truth.violations.values(), default=0.0) > UNSEEN:
            return 1.0
        share = truth.score / self.best if self.direction == "maximize" else self.best / truth.score
        return max(0.0, 1 - share)

    def run(self, point: Point, rng: np.random.Generator, target: float | None = None) -> Observed:
        """Start and load one configuration; with a target it is cut off when it cannot reach it or loses the SLO."""
        truth = self.truth(point)
        start_s = truth.start_s * math.exp(0.05 * rng.standard_normal())
        if truth.score is None:
            return Observed(point=dict(point), state="failed", reason=truth.reason, start_s=start_s, load_s=0.0)
        boot = math.exp(truth.boot_noise * rng.standard_normal())
        limits = {limit: (1 + excess) * math.exp(2 * truth.noise * rng.standard_normal()) - 1
                  for limit, excess in truth.violations.items()}
        share, why = 1.0, ""
        if target is not None:
            ahead = truth.score * boot / target if self.direction == "maximize" else target / (truth.score * boot)
            share, why = share_until_dropped(ahead, truth.noise, rng), "out of reach"
            if max(limits.values(), default=-1.0) > LOST_BEYOND:
                share, why = min((share, why), (share_until_lost(max(limits.values()), rng), "slo"))
        noise = truth.noise / math.sqrt(share)
        score = truth.score * boot * math.exp(noise * rng.standard_normal())
        low, high = score * math.exp(-1.96 * noise), score * math.exp(1.96 * noise)
        worst = max(limits.values(), default=None)
        if share < 1:
            lost = why == "slo"
            return Observed(point=dict(point), state="dropped", low=low, high=high, reason=why, start_s=start_s,
                            load_s=truth.load_s * share, violations=limits if lost else {},
                            violation=worst if lost else None)
        return Observed(point=dict(point), state="measured", score=score, low=low, high=high, violation=worst,
                        violations=limits, start_s=start_s, load_s=truth.load_s)


def space_of(
    *dimensions: tuple[str, tuple[Choice, ...]],
    needs: Mapping[str, Mapping[str, tuple[Choice, ...]]] | None = None,
    pins: tuple[Setting, ...] = (),
) -> OpenSpace:
    """Build an open space of vLLM flags."""
    conditions = needs or {}
    return OpenSpace(
        engine="vllm", version="0.32.0", pins=pins, closed=(),
        dimensions=tuple(
            Dimension(flag=flag, values=values, needs={
                other: tuple(value for value in allowed if value is not None)
                for other, allowed in conditions.get(flag, {}).items()
            })
            for flag, values in dimensions
        ),
    )
