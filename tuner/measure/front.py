"""The Pareto front: configurations that no other one beats in every objective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.domain.study import Objective
from tuner.measure.objective import direction


def front(points: Sequence[Mapping[str, float]], objectives: Sequence[Objective]) -> list[bool]:
    """Return for each point whether it is on the front: no other is at least as good in all and better in one.

    A point without a value for one of the objectives is not.
    """
    signs = {name: 1.0 if direction(name) == "maximize" else -1.0 for name in objectives}
    goods = [
        tuple(signs[name] * point[name] for name in objectives) if all(name in point for name in objectives) else None
        for point in points
    ]
    return [
        one is not None and not any(other is not None and _dominates(other, one) for other in goods) for one in goods
    ]


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(a >= b for a, b in zip(one, other, strict=True)) and one != other
