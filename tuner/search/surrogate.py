"""llmtune's own sampler: which configuration promises the most gain for each second that it will cost.

A pure function of the space, what was seen and a seed. Three models speak: a Gaussian process on the logarithm of the
score (`process`), one on each limit of the SLO, and who stops servers (`runs`). Their product is the constrained
expected improvement (Gardner and others, 2014), divided by the seconds that the start and the load are expected to
take (Snoek and others, 2012, section 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from tuner.search.evidence import Known, known
from tuner.search.lattice import Array, Lattice, Points, keys
from tuner.search.observed import Observed
from tuner.search.process import Evidence, Process
from tuner.search.runs import Suspects
from tuner.search.spaces import Choice, OpenSpace

Direction = Literal["maximize", "minimize"]
Prior = Callable[[Mapping[str, Choice]], float | None]

_WHOLE, _BATCH = 1500, 500
"""Spaces up to this size are ranked at once, larger ones in parts of so many points."""
_INCUMBENTS = 4
_LEAST_SCALE = 0.05
"""Scores that differ by less than this share are treated as if they differed by it: noise is no landscape."""
_WORTHWHILE = 0.01
"""A gain below this is no gain: it lies within the noise between two starts."""
_LIMIT_SCALE = 0.1
DEAD, _LAST = 0.25, -50.0
"""What runs with less than this probability comes after everything else: a region that died is not visited again."""
_ERFC = np.frompyfunc(math.erfc, 1, 1)


def suggest(
    space: OpenSpace,
    seen: Sequence[Observed],
    *,
    direction: Direction,
    seed: int,
    prior: Prior | None = None,
) -> Iterator[dict[str, Choice]]:
    """Yield points that were not seen, the most promising first, until the space is used up.

    Of a space with more than 50,000 points, ten thousand random ones and those around the best come. `prior` predicts
    the logarithm of the score, or None where it cannot say; how far it is believed is learnt from what was measured, so
    a wrong one does little harm. It is asked for about a thousand points a call.
    """
    lattice = Lattice(space)
    rng = np.random.default_rng([abs(seed), len(seen)])
    found = known(lattice, seen, direction)
    done = set(found.taken)
    model = _Model(lattice, found, rng, prior, 1.0 if direction == "maximize" else -1.0)
    for batch in _batches(lattice, found, model, rng):
        fresh = _without(batch, done)
        done.update(keys(fresh))
        ranks = model.promise(fresh)
        for place in np.argsort(-ranks, kind="stable"):
            yield lattice.point(fresh[place])


def importances(space: OpenSpace, seen: Sequence[Observed], direction: Direction) -> list[tuple[str, float]]:
    """Return each setting's share of what the settings change in the score, the largest first; shares sum to one.

    A setting's effect is the variance of the score's logarithm, averaged over the other settings, between its values
    (first-order Sobol indices, normalised). Empty when fewer than three configurations were measured.
    """
    lattice = Lattice(space)
    found = known(lattice, seen, direction)
    if len(found.scores.values) < 3 or not lattice.axes:
        return []
    rng = np.random.default_rng(0)
    process = Process(lattice, found.scores, rng, least_scale=_LEAST_SCALE)
    base = next(lattice.batches(rng, 128))
    effects = []
    for column, axis in enumerate(lattice.axes):
        levels = []
        for level in range(len(axis.values)):
            rows = base.copy()
            rows[:, column] = level
            mean, _ = process.predict(lattice.settle(rows), np.zeros(len(rows)))
            levels.append(mean.mean(axis=1))
        effects.append(float(np.var(np.array(levels), axis=0).mean()))
    total = sum(effects)
    shares = [effect / total if total > 0 else 1 / len(effects) for effect in effects]
    return sorted(zip([axis.flag for axis in lattice.axes], shares, strict=True), key=lambda pair: (-pair[1], pair[0]))


class _Model:
    """Everything that is known, as one number for each row: the logarithm of the gain to expect for each second."""

    def __init__(
        self, lattice: Lattice, found: Known, rng: np.random.Generator, prior: Prior | None, sign: float
    ) -> None:
        self._lattice, self._found, self._rng, self._sign = lattice, found, rng, sign
        self._prior = prior
        self._suspects = Suspects(lattice, found.ran, found.failed, found.reasons)
        self._middle = 0.0
        scores = found.scores
        if prior is not None and len(scores.rows):
            asked = self._asked(scores.rows)
            self._middle = float(np.nanmean(asked)) if not np.isnan(asked).all() else 0.0
            scores = Evidence(scores.rows, scores.values, scores.errors, self._trend(scores.rows))
        enough = len(scores.values) > 0
        self._score = Process(lattice, scores, rng, least_scale=_LEAST_SCALE) if enough else None
        self._limits = [Process(lattice, limit, rng, least_scale=_LIMIT_SCALE) for limit in found.limits]
        self._best = self._incumbent()
        self._worthwhile = max(_WORTHWHILE, 0.5 * float(np.median(scores.errors))) if enough else _WORTHWHILE

    @property
    def designing(self) -> bool:
        """Whether points are still chosen to cover the space: what was seen says little, and no prediction helps."""
        settings = sum(len(axis.values) > 1 for axis in self._lattice.axes)
        return self._prior is None and len(self._found.scores.values) < min(2 + settings // 3, 5)

    def promise(self, rows: Points) -> Array:
        """Return the logarithm of the promise of each row."""
        tie = 1e-9 * self._rng.random(len(rows))
        runs = self._suspects.runs(rows)
        if not len(rows) or not self._lattice.axes:
            return tie
        if self.designing or self._score is None:
            return np.log(runs) + np.log(self._coverage(rows)) + tie
        mean, spread = self._score.predict(rows, self._trend(rows))
        keeps = self._keeps(rows)
        if self._best is None:
            hope = (mean.mean(axis=0) - mean.mean()) / max(1e-6, float(spread.mean()))
            gain, wins = np.exp(0.3 * hope), np.ones(len(rows))
        else:
            ahead = (mean - self._best[:, None] - self._worthwhile) / spread
            below = _normal(ahead)
            density = np.exp(-0.5 * ahead**2) / math.sqrt(2 * math.pi)
            gain = (spread * np.maximum(ahead * below + density, 0)).mean(axis=0)
            wins = below.mean(axis=0)
        seconds = self._found.costs.seconds(rows, runs, wins * keeps)
        dead = np.where(runs < DEAD, _LAST, 0.0)
        result: Array = np.log(gain + 1e-12) + np.log(runs) + np.log(keeps + 1e-6) - np.log(seconds) + dead + tie
        return result

    def _keeps(self, rows: Points) -> Array:
        keeps = np.ones(len(rows))
        for limit in self._limits:
            mean, spread = limit.predict(rows, np.zeros(len(rows)))
            keeps *= _normal(-mean / spread).mean(axis=0)
        return keeps

    def _incumbent(self) -> Array | None:
        """Return for each particle the best score of what ran to the end and keeps the SLO, freed of its noise."""
        good = self._found.good
        if self._score is None or not len(good):
            return None
        mean, _ = self._score.predict(good, self._trend(good))
        best: Array = mean.max(axis=1)
        return best

    def _coverage(self, rows: Points) -> Array:
        """Return how much a row adds to what was seen: values that are new, and about half of all settings changed."""
        seen = np.concatenate([self._found.ran, self._found.failed])
        if not len(seen):
            return np.ones(len(rows))
        new = np.zeros(len(rows))
        for column in range(rows.shape[1]):
            new += ~np.isin(rows[:, column], seen[:, column])
        changed = (rows[:, None, :] != seen[None, :, :]).mean(axis=2)
        apart = np.minimum(changed.min(axis=1), 0.6)
        unlike_first = 1 - np.abs(changed[:, 0] - 0.5)
        result: Array = 0.05 + apart + 0.5 * new / rows.shape[1] + 0.5 * unlike_first
        return result

    def _asked(self, rows: Points) -> Array:
        if self._prior is None:
            return np.full(len(rows), np.nan)
        answers = [self._prior(self._lattice.point(row)) for row in rows]
        return np.array([np.nan if answer is None else self._sign * answer for answer in answers])

    def _trend(self, rows: Points) -> Array:
        if self._prior is None:
            return np.zeros(len(rows))
        trend: Array = np.nan_to_num(self._asked(rows) - self._middle)
        return trend


def _batches(lattice: Lattice, found: Known, model: _Model, rng: np.random.Generator) -> Iterator[Points]:
    """Yield what is ranked together: first what lies around the best with random points, then the rest."""
    small = lattice.space.size <= _WHOLE
    rest = lattice.batches(rng, _WHOLE if small else _BATCH)
    first = next(rest)
    if not small and not model.designing:
        order = np.argsort(-found.good_values, kind="stable")[:_INCUMBENTS]
        start = np.concatenate([first, *(lattice.neighbours(found.good[place]) for place in order)])
        best = start[np.argsort(-model.promise(start), kind="stable")[:_INCUMBENTS]]
        first = np.concatenate([start, *(lattice.neighbours(row) for row in best)])
    yield first
    yield from rest


def _without(rows: Points, done: set[bytes]) -> Points:
    """Drop rows that are in `done` or come twice."""
    fresh, known_here = [], set(done)
    for place, key in enumerate(keys(rows)):
        if key not in known_here:
            known_here.add(key)
            fresh.append(place)
    return rows[fresh]


def _normal(values: Array) -> Array:
    """Return the standard normal distribution function."""
    return np.asarray(0.5 * _ERFC(-values / math.sqrt(2)), dtype=np.float64)
