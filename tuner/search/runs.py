"""Which settings stop a server: learnt from configurations that failed and that ran, as in group testing.

A failed configuration is a pool of suspects: each of its settings, each half-line of a numeric setting ("this many or
more"), each pair of those, and something unknown. A configuration that ran clears every suspect in it. What is left
is weighed by loopy belief propagation on the noisy-OR graph (Pearl 1988): a failure that one suspect explains does not
accuse the others. Failures that give the same reason are taken to have one cause.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.search.lattice import Array, Lattice, Points

_SINGLE, _HALF_LINE, _PAIR, _UNKNOWN = 0.06, 0.03, 0.004, 0.02
"""Prior probabilities that a value, a half-line and a pair stop the server, and that something else does."""
_JOINED = 0.1
"""How much less likely something unknown explains each further failure with the same reason."""
_UNSET_FACTOR = 0.2
"""What nobody set is seldom the cause."""
_MEMORY_FACTOR = 4.0
"""How much likelier "this many or more" is, and how much less likely "just this many", when memory ran out."""
_CLEARED = 0.01
"""What is left of a suspect's probability after a configuration with it ran: servers also fail by chance."""
_NEGLIGIBLE = 5e-4
_ROUNDS = 12
_DIGITS = re.compile(r"\d+")
Box = tuple[tuple[int, int, int], ...]
"""One or two columns, each with the least and the most rank; a level that is no rank is written -1 - level."""


class Suspects:
    """What may stop a server, and how likely each is to do so."""

    def __init__(self, lattice: Lattice, ran: Points, failed: Points, reasons: Sequence[str]) -> None:
        self._lattice = lattice
        self._ran = ran
        boxes: dict[Box, float] = {}
        for row, reason in zip(failed, reasons, strict=True):
            memory = "memory" in reason.lower()
            for box, chance in self._of(row, memory=memory):
                boxes[box] = max(chance, boxes.get(box, 0.0))
        self._boxes = list(boxes)
        prior: Array = np.array([boxes[box] for box in self._boxes])
        cleared = self._inside(ran).any(axis=0) if len(ran) and self._boxes else np.zeros(len(prior), dtype=np.bool_)
        prior[cleared] *= _CLEARED
        self._blames = np.zeros((0, 0))
        if self._boxes:
            member, unknown = _by_cause(self._inside(failed), reasons)
            fatal = _posterior(prior, member, unknown)
            matters = np.flatnonzero(fatal > _NEGLIGIBLE)
            self._boxes = [self._boxes[place] for place in matters]
            self._blames = _blames(fatal[matters], member[:, matters], unknown)
        self._seen = [
            np.array([(np.any(ran[:, column] == level) or np.any(failed[:, column] == level)) for level in
                      range(len(axis.levels))], dtype=np.bool_)
            for column, axis in enumerate(lattice.axes)
        ]

    def runs(self, points: Points) -> Array:
        """Return for each point the probability that its server starts and holds the load."""
        chance = np.full(len(points), 1 - _UNKNOWN)
        for column, axis in enumerate(self._lattice.axes):
            new = ~self._seen[column][points[:, column]]
            chance *= np.where(new & (points[:, column] != axis.unset), 1 - _SINGLE, 1.0)
        if not self._boxes:
            return chance
        # The suspects of one failure exclude each other as its cause, so their chances add up; failures do not.
        blamed = np.minimum(self._inside(points) @ self._blames.T, 1.0)
        result: Array = chance * np.prod(1 - blamed, axis=1)
        return result

    def _of(self, row: Points, *, memory: bool) -> list[tuple[Box, float]]:
        """Return the suspects of one failure."""
        half_line = _HALF_LINE * (_MEMORY_FACTOR if memory else 1.0)
        parts: list[list[tuple[tuple[int, int, int], float]]] = []
        blames: list[float] = []
        for column, axis in enumerate(self._lattice.axes):
            level, rank = int(row[column]), int(axis.rank[row[column]])
            blame = _UNSET_FACTOR if level == axis.unset else 1.0
            single = _SINGLE / _MEMORY_FACTOR if memory and rank >= 0 else _SINGLE
            just: tuple[int, int, int] = (column, -1 - level, -1 - level)
            own = {just: single * blame}
            if rank >= 0:
                for least, most, chance in ((rank, int(axis.rank.max()), half_line), (0, rank, _HALF_LINE)):
                    box = (column, least, most) if least < most else just  # a half-line of one value is that value
                    own[box] = max(chance * blame, own.get(box, 0.0))
            parts.append(list(own.items()))
            blames.append(blame)
        suspects: list[tuple[Box, float]] = [((box,), prior) for own in parts for box, prior in own]
        pair = _PAIR * (_MEMORY_FACTOR if memory else 1.0)
        for left, right in itertools.combinations(range(len(parts)), 2):
            chance = pair * blames[left] * blames[right]
            suspects += [((one, other), chance) for one, _ in parts[left] for other, _ in parts[right]]
        return suspects

    def _inside(self, points: Points) -> Array:
        """Return a matrix of zeros and ones: which point holds which suspect."""
        ranks = np.stack([axis.rank[points[:, column]] for column, axis in enumerate(self._lattice.axes)], axis=1)
        inside = np.ones((len(points), len(self._boxes)))
        for part in (0, 1):
            chosen = [number for number, box in enumerate(self._boxes) if len(box) > part]
            if not chosen:
                continue
            column, least, most = np.array([self._boxes[number][part] for number in chosen]).T
            by_level = least < 0
            here = np.where(by_level, -1 - points[:, column], ranks[:, column])
            inside[:, chosen] *= (here >= least) & (here <= most)
        return inside


def _by_cause(member: Array, reasons: Sequence[str]) -> tuple[Array, Array]:
    """Join failures that say the same, numbers aside: what all of them hold is suspected, if there is such a thing.

    Returns the joined rows, and how likely something unknown would cause each: the less, the more failures it joins.
    """
    said: dict[str, list[int]] = {}
    for place, reason in enumerate(reasons):
        said.setdefault(_DIGITS.sub("0", reason) or f"unknown {place}", []).append(place)
    rows: list[Array] = []
    unknown: list[float] = []
    for places in said.values():
        common = member[places].min(axis=0)
        if common.any():
            rows.append(common)
            unknown.append(_UNKNOWN * _JOINED ** (len(places) - 1))
        else:
            rows.extend(member[places])
            unknown.extend([_UNKNOWN] * len(places))
    return np.array(rows), np.array(unknown)


def _posterior(prior: Array, member: Array, unknown: Array) -> Array:
    """Return how likely each suspect is fatal, given that every row of `member` holds at least one cause."""
    odds = np.log(prior) - np.log1p(-prior)
    mask: NDArray[np.bool_] = member > 0
    messages = np.zeros_like(member)
    for _ in range(_ROUNDS):
        cavity = odds + messages.sum(axis=0) - messages
        chance = np.where(mask, 1 / (1 + np.exp(-np.clip(cavity, -50, 50))), 0.0)
        spared = np.log1p(-np.minimum(chance, 1 - 1e-9))
        others = np.exp(spared.sum(axis=1, keepdims=True) - spared) * (1 - unknown[:, None])
        fresh = np.where(mask, -np.log(np.maximum(1 - others, 1e-12)), 0.0)
        messages = 0.5 * messages + 0.5 * fresh
    result: Array = 1 / (1 + np.exp(-np.clip(odds + messages.sum(axis=0), -50, 50)))
    return result


def _blames(fatal: Array, member: Array, unknown: Array) -> Array:
    """Return how likely each suspect is the one cause of each failure; what is left is something unknown."""
    weights = member * fatal
    result: Array = weights / np.maximum(weights.sum(axis=1) + unknown, 1e-12)[:, None]
    return result
