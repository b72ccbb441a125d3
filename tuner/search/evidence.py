"""What a study has seen, as numbers on the lattice: scores, limits, what ran, what failed, and what it cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tuner.search.lattice import Array, Lattice, Points, keys
from tuner.search.observed import Observed
from tuner.search.process import Evidence

_FLOOR = 0.02
"""A score of zero, as of goodput, counts as this share of the best: its logarithm would drown everything else."""
_LEAST_ERROR, _UNKNOWN_ERROR, _NO_SCORE_ERROR = 0.005, 0.03, 0.3
_SHORT_RUN_ERROR = 0.08
"""What a run that was cut off may be off by, besides its interval."""
_Z = 1.96
_ALIKE = 3.0
"""How fast what a start costs is forgotten with the share of settings that differ."""
_FIRST_GUESS_S = 60.0
_PREDICTED = "PREDICTED"
"""How reasons begin of what was ruled out because it would be slow: it might well run."""
_LIMIT_ERROR = 0.1
_LEAST_EXCESS = 0.05
_FAR_BELOW = -0.5
"""Limits that no configuration came nearer to than this logarithm of value/limit are left out."""


class Costs:
    """What starts and loads took, by likeness: configurations that share settings cost about the same."""

    def __init__(self, lattice: Lattice, seen: Sequence[tuple[Points, Observed]]) -> None:
        self._columns = max(1, len(lattice.axes))
        took = [(row, one) for row, one in seen if one.start_s is not None]
        started = [(row, one.start_s, one.load_s) for row, one in took if one.state in {"measured", "dropped"}]
        self._rows = np.array([row for row, _, _ in started]).reshape(len(started), len(lattice.axes))
        self._start = np.array([start for _, start, _ in started], dtype=np.float64)
        full = [one.load_s for _, one in seen if one.state == "measured" and one.load_s is not None]
        cut = [one.load_s for _, one in seen if one.state == "dropped" and one.load_s is not None]
        self._load = float(np.mean(full)) if full else _FIRST_GUESS_S
        self._cut = min(self._load, float(np.mean(cut))) if cut else self._load
        failed = [(one.start_s or 0.0) + (one.load_s or 0.0) for _, one in seen if one.state == "failed"]
        failed = [seconds for seconds in failed if seconds > 0]
        self._failed = float(np.mean(failed)) if failed else None

    def seconds(self, rows: Points, runs: Array, wins: Array) -> Array:
        """Return the expected seconds of each row, given how likely it runs and is measured to the end."""
        if len(self._start):
            apart = (rows[:, None, :] != self._rows[None, :, :]).sum(axis=2) / self._columns
            weights = np.exp(-_ALIKE * apart)
            middle = float(np.mean(np.log(self._start)))
            start = np.exp((weights @ np.log(self._start) + 0.2 * middle) / (weights.sum(axis=1) + 0.2))
        else:
            start = np.full(len(rows), _FIRST_GUESS_S)
        failed = start if self._failed is None else np.full(len(rows), self._failed)
        load = self._cut + (self._load - self._cut) * np.sqrt(np.clip(wins, 0, 1))
        result: Array = runs * (start + load) + (1 - runs) * failed + 1e-3
        return result


@dataclass(frozen=True)
class Known:
    """Everything that was seen. `scores` are logarithms, larger is better; `limits` are logarithms of value/limit."""

    taken: frozenset[bytes]
    scores: Evidence
    limits: tuple[Evidence, ...]
    good: Points
    """What ran to the end and keeps the SLO."""
    good_values: Array
    ran: Points
    failed: Points
    reasons: tuple[str, ...]
    costs: Costs


def known(lattice: Lattice, seen: Sequence[Observed], direction: Literal["maximize", "minimize"]) -> Known:
    """Sort what was seen. Configurations outside of the space teach nothing."""
    inside = [(row, one) for one in seen if (row := lattice.row(one.point)) is not None]
    columns = len(lattice.axes)

    def rows(chosen: Sequence[Points]) -> Points:
        return np.array(chosen, dtype=np.int64).reshape(len(chosen), columns)

    ran = [row for row, one in inside if one.state in {"measured", "dropped"}]
    failed = [
        (row, one.reason) for row, one in inside
        if one.state == "failed" or (one.state == "ruled_out" and not one.reason.startswith(_PREDICTED))
    ]
    scored = _scores(inside, 1.0 if direction == "maximize" else -1.0)
    good = [(row, value) for row, one, value, _ in scored if one.state == "measured" and keeps_slo(one)]
    return Known(
        taken=frozenset(keys(rows([row for row, _ in inside]))),
        scores=_evidence(rows([row for row, *_ in scored]), [(value, error) for *_, value, error in scored]),
        limits=_limits(inside, rows),
        good=rows([row for row, _ in good]),
        good_values=np.array([value for _, value in good]),
        ran=rows(ran),
        failed=rows([row for row, _ in failed]),
        reasons=tuple(reason for _, reason in failed),
        costs=Costs(lattice, inside),
    )


def _evidence(rows: Points, pairs: Sequence[tuple[float, float]]) -> Evidence:
    values, errors = np.array([value for value, _ in pairs]), np.array([error for _, error in pairs])
    return Evidence(rows=rows, values=values, errors=errors, trend=np.zeros(len(pairs)))


def _scores(
    inside: Sequence[tuple[Points, Observed]], sign: float
) -> list[tuple[Points, Observed, float, float]]:
    """Return (row, observed, value, standard error) of what says something of the score, in logarithms."""
    full = [one.score for _, one in inside if one.state == "measured" and one.score is not None]
    largest = max((abs(score) for score in full), default=1.0) or 1.0
    floor = _FLOOR * largest if sign > 0 else 1e-9 * largest
    logs = min(full, default=1.0) >= 0

    def log(value: float) -> float:
        return sign * (math.log(max(value, floor)) if logs else value / largest)

    found: list[tuple[Points, Observed, float, float]] = []
    for row, one in inside:
        if one.state == "measured" and one.score is not None:
            error = _UNKNOWN_ERROR
            if one.low is not None and one.high is not None:
                error = abs(log(one.high) - log(one.low)) / (2 * _Z)
            if logs and one.score <= floor:
                error = _NO_SCORE_ERROR
            found.append((row, one, log(one.score), max(_LEAST_ERROR, error)))
        elif one.state == "dropped":
            pair = _short(one, log)
            if pair is not None:
                found.append((row, one, *pair))
    waiting = [row for row, one in inside if one.state == "running"]
    if found and waiting:
        values = [value for _, _, value, _ in found]
        level, spread = float(np.median(values)), max(0.1, float(np.std(values)))
        running = Observed(point={}, state="running")
        found += [(row, running, level, spread) for row in waiting]
    return found


def _short(one: Observed, log: Callable[[float], float]) -> tuple[float, float] | None:
    """Return what a run that was cut off says: the middle of its interval, less sure than the interval itself.

    One end alone is a bound: the value lies some way to its side, nobody knows how far.
    """
    if one.low is not None and one.high is not None:
        least, most = sorted((log(one.low), log(one.high)))
        return (least + most) / 2, math.hypot((most - least) / (2 * _Z), _SHORT_RUN_ERROR)
    bound = one.high if one.high is not None else one.low
    if bound is None:
        return None
    return log(bound) - _NO_SCORE_ERROR, _NO_SCORE_ERROR


def _limits(
    inside: Sequence[tuple[Points, Observed]], rows: Callable[[Sequence[Points]], Points]
) -> tuple[Evidence, ...]:
    """Return one body of evidence for each limit that anything came near to.

    Who has no value for a limit that others name stands there with the worst of its own: runs that were cut off may
    know no more than that some limit was lost.
    """
    loaded = [(row, one, _violations(one)) for row, one in inside if one.state in {"measured", "dropped"}]
    found = []
    for limit in sorted({limit for *_, each in loaded for limit in each}):
        at: list[Points] = []
        pairs: list[tuple[float, float]] = []
        for row, one, each in loaded:
            if each:
                excess = each.get(limit, max(each.values()))
                at.append(row)
                error = _UNKNOWN_ERROR if one.state == "measured" else _LIMIT_ERROR
                pairs.append((math.log(max(_LEAST_EXCESS, 1 + excess)), error))
        if max(value for value, _ in pairs) > _FAR_BELOW:
            found.append(_evidence(rows(at), pairs))
    return tuple(found)


def keeps_slo(one: Observed) -> bool:
    """Whether no limit was missed, by the measured values."""
    return max(_violations(one).values(), default=0.0) <= 0


def _violations(one: Observed) -> dict[str, float]:
    return one.violations or ({"": one.violation} if one.violation is not None else {})
