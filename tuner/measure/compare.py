"""Two configurations against each other, and several runs of one put together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tuner.domain.trial import Estimate
from tuner.measure import estimate


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


def combine(scores: Sequence[Estimate]) -> Estimate:
    """Return one number over several runs of one configuration: mean of the runs, interval between the runs.

    With one run its own interval is kept, which knows nothing of the spread between server starts.

    Raises:
        ValueError: without a score.

    """
    if not scores:
        raise ValueError("nothing to combine")
    if len(scores) == 1:
        return scores[0]
    values = np.array([one.value for one in scores])
    half = estimate.t_quantile(len(scores) - 1) * float(values.std(ddof=1)) / math.sqrt(len(scores))
    value = float(values.mean())
    return Estimate(value=value, low=max(0.0, value - half), high=value + half, n=len(scores))


def noise_floor(groups: Sequence[Sequence[float]], rounds: int) -> float:
    """Return how far two means over `rounds` starts of one configuration differ by chance, as a share.

    Each group holds the values of one configuration, one a start. The half width of the 95 % interval of a ratio of
    two such means: Student's t times the standard deviation of the logarithms within the groups, pooled, times
    sqrt(2 / rounds).

    Raises:
        ValueError: no group has two values, or one is not above zero.

    """
    repeated = [np.log(np.asarray(group, dtype=float)) for group in groups if len(group) > 1 and min(group) > 0]
    degrees = sum(logs.size - 1 for logs in repeated)
    if degrees < 1:
        raise ValueError("a noise floor needs two starts of one configuration with values above zero")
    squares = sum(float(((logs - logs.mean()) ** 2).sum()) for logs in repeated)
    return math.expm1(estimate.t_quantile(degrees) * math.sqrt(squares / degrees) * math.sqrt(2 / rounds))
