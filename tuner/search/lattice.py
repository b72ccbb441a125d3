"""An open space as a lattice of small integers: fast enough to look at thousands of points between two trials."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.domain.engine import ENV_PREFIX
from tuner.errors import LlmtuneError
from tuner.facts.flags import flag_table
from tuner.search.spaces import UNSET, Choice, Dimension, OpenSpace

Points = NDArray[np.int64]
"""One row a point, one column a dimension, each entry the place of the value among the dimension's levels."""
Array = NDArray[np.float64]

ENUMERABLE = 50_000
"""Spaces up to this size are gone through completely; of larger ones random points are drawn."""
_DRAWS = 10_000
_APART = 0.75
"""How far a value that is no number lies from the line of those that are, whose ends are 1 apart."""
_STEPS_LOG = 4.0
"""Positive numbers that span more than this factor are placed by their logarithm."""
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")


class Axis:
    """The levels of one dimension: its values in the space's order, and unset, which a condition can make of any."""

    def __init__(self, dimension: Dimension, default: str | None) -> None:
        self.flag = dimension.flag
        self.values: tuple[Choice, ...] = dimension.values
        self.levels: tuple[Choice, ...] = (*dimension.values, *(() if None in dimension.values else (None,)))
        self.unset = self.levels.index(None)
        self.rank, self.distance = _places(self.levels, default)

    def level(self, value: Choice) -> int | None:
        """Return the place of a value, or None for one that the space does not have."""
        for place, known in enumerate(self.levels):
            if type(known) is type(value) and known == value:
                return place
        return None


class Lattice:
    """The points of a space. Rows that `settle` makes equal are the same configuration."""

    def __init__(self, space: OpenSpace) -> None:
        self.space = space
        self.axes = tuple(Axis(dimension, _default(space, dimension.flag)) for dimension in space.dimensions)
        self._place = {axis.flag: number for number, axis in enumerate(self.axes)}
        self._needs = [self._need(dimension) for dimension in space.dimensions]

    def row(self, point: Mapping[str, Choice]) -> Points | None:
        """Return the settled row of a point, or None when it lies outside of the space."""
        levels = [axis.level(point.get(axis.flag)) for axis in self.axes]
        if any(level is None for level in levels):
            return None
        settled: Points = self.settle(np.array([levels], dtype=np.int64).reshape(1, len(self.axes)))[0]
        return settled

    def point(self, row: Sequence[int] | Points) -> dict[str, Choice]:
        """Return a point that has only values of the space; a setting whose needs do not hold takes its first."""
        return {
            axis.flag: axis.levels[level] if level < len(axis.values) else axis.values[0]
            for axis, level in zip(self.axes, row, strict=True)
        }

    def settle(self, points: Points) -> Points:
        """Unset every setting whose needs do not hold, as `OpenSpace.config` does."""
        settled = points.copy()
        while True:
            unmet = [(number, self._unmet(number, settled)) for number, needs in enumerate(self._needs) if needs]
            if not any(mask.any() for _, mask in unmet):
                return settled
            for number, mask in unmet:
                settled[mask, number] = self.axes[number].unset

    def ones(self, points: Points) -> Array:
        """Return the points with a column of zeros and ones for each level of each dimension."""
        return np.concatenate(
            [np.eye(len(axis.levels))[points[:, column]] for column, axis in enumerate(self.axes)], axis=1
        )

    def batches(self, rng: np.random.Generator, size: int) -> Iterator[Points]:
        """Yield every configuration once in random order, or random ones of a space that is too large for that."""
        counts = [len(axis.values) for axis in self.axes]
        if self.space.size <= ENUMERABLE:
            rows = np.indices(counts).reshape(len(counts), -1).T if counts else np.zeros((1, 0), dtype=np.int64)
            rows = _distinct(self.settle(np.ascontiguousarray(rows, dtype=np.int64)))
            rows = rows[rng.permutation(len(rows))]
        else:
            rows = np.stack([rng.integers(count, size=_DRAWS) for count in counts], axis=1)
            rows = _distinct(self.settle(rows.astype(np.int64)))
            rows = rows[rng.permutation(len(rows))]
        for start in range(0, len(rows), size):
            yield rows[start : start + size]

    def neighbours(self, row: Points) -> Points:
        """Return the configurations that differ from this one by one value."""
        found = []
        for number, axis in enumerate(self.axes):
            for level in range(len(axis.values)):
                if level != row[number]:
                    changed = row.copy()
                    changed[number] = level
                    found.append(changed)
        if not found:
            return np.zeros((0, len(self.axes)), dtype=np.int64)
        return _distinct(self.settle(np.array(found, dtype=np.int64)))

    def _need(self, dimension: Dimension) -> list[tuple[int | None, NDArray[np.bool_]]]:
        """Return per needed flag its column and which of its levels will do; no column for what is pinned."""
        needs: list[tuple[int | None, NDArray[np.bool_]]] = []
        for flag, allowed in dimension.needs.items():
            column = self._place.get(flag)
            pinned = next((pin.value for pin in self.space.pins if pin.flag == flag), None)
            levels: Sequence[Choice] = (pinned,) if column is None else self.axes[column].levels
            holds = [any(type(have) is type(one) and have == one for one in allowed)
                     for have in (UNSET if level is None else level for level in levels)]
            needs.append((column, np.array(holds, dtype=np.bool_)))
        return needs

    def _unmet(self, number: int, points: Points) -> NDArray[np.bool_]:
        unmet = np.zeros(len(points), dtype=np.bool_)
        for column, holds in self._needs[number]:
            unmet |= ~holds[points[:, column]] if column is not None else ~holds[0]
        result: NDArray[np.bool_] = unmet & (points[:, number] != self.axes[number].unset)
        return result


def keys(points: Points) -> list[bytes]:
    """Return something hashable for each row."""
    return [row.tobytes() for row in np.ascontiguousarray(points)]


def _distinct(points: Points) -> Points:
    """Drop repeated rows, in an order that only depends on what they hold."""
    if not points.shape[1]:
        return points[:1]
    sizes = [int(size) for size in points.max(axis=0) + 1]
    if math.prod(sizes) > np.iinfo(np.int64).max:
        return np.unique(points, axis=0)
    _, first = np.unique(np.ravel_multi_index(tuple(points.T), sizes), return_index=True)
    distinct: Points = points[first]
    return distinct


def _default(space: OpenSpace, flag: str) -> str | None:
    """Return the engine's documented default, as text."""
    if flag.startswith(ENV_PREFIX):
        return None
    try:
        found = flag_table(space.engine, space.version).find(flag)
    except LlmtuneError:
        return None
    return None if found is None else found.default


def _number(value: Choice) -> float | None:
    return None if isinstance(value, (bool, str)) or value is None else float(value)


def _places(levels: Sequence[Choice], default: str | None) -> tuple[Points, Array]:
    """Return the ranks of the numbers (-1 for other values), and how far apart each two levels lie.

    Half by rank and half by logarithm (or size): spaces list values in steps that their author thought alike, and
    both misjudge some. Unset lies beside the engine's documented default where that is a number; other values lie off
    the line, equally far from each other.
    """
    documented = float(default) if default is not None and _NUMBER.fullmatch(default) else None
    numbers = [_number(level) for level in levels]
    if documented is not None and sum(number is not None for number in numbers) > 1:
        numbers = [documented if level is None else number for level, number in zip(levels, numbers, strict=True)]
    known = sorted({number for number in numbers if number is not None})
    rank = np.array([-1 if number is None else known.index(number) for number in numbers], dtype=np.int64)
    logs = bool(known) and known[0] > 0 and known[-1] / known[0] > _STEPS_LOG
    scaled = np.log(known) if logs else np.array(known, dtype=np.float64)
    span = float(scaled[-1] - scaled[0]) if len(known) > 1 else 1.0
    line = [0.5 * (scaled[place] - scaled[0]) / span + 0.5 * place / max(1, len(known) - 1) if place >= 0 else 0.5
            for place in rank]
    places = np.zeros((len(levels), 1 + len(levels)))
    places[:, 0] = line if len(known) > 1 else 0.5
    for number, level in enumerate(levels):
        if rank[number] < 0 or len(known) < 2:
            places[number, 1 + number] = _APART
        elif level is None:
            places[number, 1 + number] = 0.1
    distance: Array = np.sqrt(((places[:, None, :] - places[None, :, :]) ** 2).sum(axis=2))
    return rank, distance
