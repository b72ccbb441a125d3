"""Two configurations against each other, and several runs of one put together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tuner.domain.study import Objective
from tuner.domain.trial import Estimate, Measurement
from tuner.measure import estimate
from tuner.measure.objective import score


def ratio_over_rounds(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """Return a/b as the geometric mean over rounds, with Student's interval on the logarithms.

    Round i of both was run close in time with the same list of requests, so what they share falls out of the ratio.
    One round gives an interval from zero to infinity's stand-in: nothing can be said.

    Raises:
        ValueError: when the rounds do not pair up, or a value is not above zero.

    """
    if not a or len(a) != len(b):
        raise ValueError("a ratio needs as many rounds of one as of the other")
    if min(*a, *b) <= 0:
        raise ValueError("a ratio needs values above zero")
    ratios = [one / other for one, other in zip(a, b, strict=True)]
    if len(ratios) == 1:
        return Estimate(value=ratios[0], low=0.0, high=ratios[0] * 1e6, n=1)
    return estimate.geometric_mean(ratios)


def combine(measurements: Sequence[Measurement], objective: Objective) -> Estimate:
    """Return the objective over several runs of one configuration: mean of the runs, interval between the runs.

    With one run its own interval is kept, which knows nothing of the spread between server starts.

    Raises:
        ValueError: without a measurement.

    """
    if not measurements:
        raise ValueError("nothing to combine")
    scores = [score(measurement, objective) for measurement in measurements]
    if len(scores) == 1:
        return scores[0]
    values = np.array([one.value for one in scores])
    half = estimate.t_quantile(len(scores) - 1) * float(values.std(ddof=1)) / math.sqrt(len(scores))
    value = float(values.mean())
    return Estimate(value=value, low=max(0.0, value - half), high=value + half, n=len(scores))
