"""Numbers with 95 % intervals. Each function says what its interval assumes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tuner.domain.trial import Estimate

Z95 = 1.959963984540054
EXACT_RANKS_UP_TO = 2000
WAVES = 6
"""Slow waves that an error is read from where neighbours are alike: more would be surer, and less true."""
LITTLE_CORRELATION = 0.5
MOST_CORRELATION = 0.97
NARROWEST = 1.5
"""A share scatters at most this many times less than that of independent samples; less is taken for chance."""


def requests_needed(percent: float) -> int:
    """Return how many independent samples a percentile's interval needs to have an upper end of its own.

    With fewer the largest sample lies below the true percentile more often than in 2.5 % of all runs.
    """
    return math.ceil(math.log(0.025) / math.log(percent / 100))


def exact(value: float, n: int) -> Estimate:
    """Return a number that was counted and not sampled: its interval is the value itself."""
    return Estimate(value=value, low=value, high=value, n=n)


def percentile(samples: ArrayLike, percent: float, *, parts: ArrayLike | None = None) -> Estimate:
    """Return the percentile (linear interpolation over all samples) with its order-statistic interval.

    The interval's ends are the samples at the ranks between which the true percentile lies with 95 % by the binomial
    law; it assumes nothing about the distribution. Neighbours in time are alike, so the binomial law gets the number
    of independent samples that would scatter as much: the share of samples below the percentile is followed through
    time (see `scatter`). Where too few samples exist the interval reaches to the smallest or largest one
    and then covers less. `samples` are in order of time; `parts` are the sizes of consecutive pieces that belong
    together, e.g. the gaps of one request.
    """
    values = np.asarray(samples, dtype=float)
    sizes = np.ones(values.size) if parts is None else np.asarray(parts, dtype=float)
    level = percent / 100
    value = float(np.quantile(values, level))
    independent = _independent((values <= value).astype(float), sizes, level)
    low, high = (float(end) for end in np.quantile(values, _rank_levels(independent, level)))
    return Estimate(value=value, low=min(low, value), high=max(high, value), n=int(sizes.size))


def mean(samples: ArrayLike, *, parts: ArrayLike | None = None) -> Estimate:
    """Return the mean with Student's interval over time (see `scatter`); `samples` and `parts` as for `percentile`."""
    values = np.asarray(samples, dtype=float)
    sizes = np.ones(values.size) if parts is None else np.asarray(parts, dtype=float)
    value = float(values.mean())
    if sizes.size < 2:
        return Estimate(value=value, low=value, high=value, n=int(sizes.size))
    error, degrees = scatter(_sums(values, sizes), sizes)
    half = t_quantile(degrees) * error
    return Estimate(value=value, low=value - half, high=value + half, n=int(sizes.size))


def share(successes: int, n: int) -> Estimate:
    """Return a share with Wilson's score interval, which also holds near 0 and 1 and for small n."""
    if n == 0:
        return Estimate(value=0.0, low=0.0, high=1.0, n=0)
    p, z2 = successes / n, Z95 * Z95
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return Estimate(value=p, low=max(0.0, min(centre - half, p)), high=min(1.0, max(centre + half, p)), n=n)


def rate(per_slice: ArrayLike, *, seconds: float) -> Estimate:
    """Return a rate per second from the counts in equal time slices of `seconds`, with the interval of `mean`."""
    counts = np.asarray(per_slice, dtype=float)
    found = mean(counts / seconds)
    return found.model_copy(update={"low": max(0.0, found.low)})


def scatter(sums: NDArray[np.float64], sizes: NDArray[np.float64]) -> tuple[float, int]:
    """Return the standard error of sum(sums)/sum(sizes) and its degrees of freedom, for pieces in order of time.

    Where neighbours are not alike the pieces are taken for independent. Otherwise the error is read from the slowest
    movements of the series: the power of its first `WAVES` cosines, each of which is one degree of freedom (Mueller,
    J. Econometrics 141, 2007; Lazarus, Lewis, Stock and Watson, J. Bus. Econ. Stat. 36, 2018). What is alike over less
    than a twelfth of the series is in it, whatever the law by which it fades; beyond that the still slower movements
    are taken for those of a first-order autoregressive process.
    """
    left = sums - sums.sum() / sizes.sum() * sizes
    count = left.size
    alike = lag_one(left)
    if alike < LITTLE_CORRELATION / math.sqrt(count):
        return float(left.std(ddof=1)) * math.sqrt(count) / float(sizes.sum()), count - 1
    waves = max(1, min(WAVES, count // 2))
    turns = np.pi * np.arange(1, waves + 1) / count
    power = 2 * (np.cos(np.outer(turns, np.arange(count) + 0.5)) @ left) ** 2
    alike = min(MOST_CORRELATION, alike + (1 + 3 * alike) / count)  # a short series shows less than there is
    steeper = 1 / (1 - 2 * alike * np.cos(turns) + alike**2)
    missing = 1 / (1 - alike) ** 2 / float(steeper.mean())
    return math.sqrt(float(power.mean()) * missing) / float(sizes.sum()), waves


def trend(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return how far a straight line through equidistant values goes from end to end, and its 95 % half-width.

    Ordinary least squares with independent errors; needs three values.
    """
    place = np.linspace(-0.5, 0.5, values.size)
    slope = float(place @ values / (place @ place))
    left = values - values.mean() - slope * place
    error = math.sqrt(float(left @ left) / (values.size - 2) / float(place @ place))
    return slope, t_quantile(values.size - 2) * error


def _sums(values: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    if values.size == sizes.size:
        return values
    edges = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
    totals = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(totals[edges[1:]] - totals[edges[:-1]])


def _independent(below: NDArray[np.float64], sizes: NDArray[np.float64], level: float) -> int:
    """Return how many independent samples would scatter as much as the share of `below` does."""
    if sizes.size < 2:
        return 1
    error, degrees = scatter(_sums(below, sizes), sizes)
    if degrees == below.size - 1:  # neighbours are not alike: the binomial law needs no help
        return below.size
    plain = math.sqrt(level * (1 - level) / below.size)
    return max(1, round(below.size * (plain / max(error, plain / NARROWEST) * Z95 / t_quantile(degrees)) ** 2))


def lag_one(values: NDArray[np.float64]) -> float:
    """Return the correlation of neighbours."""
    centred = values - values.mean()
    power = float(centred @ centred)
    return float(centred[:-1] @ centred[1:]) / power if power > 0 else 0.0


def geometric_mean(ratios: Sequence[float]) -> Estimate:
    """Return the geometric mean of ratios with Student's interval on their logarithms."""
    logs = np.log(np.asarray(ratios, dtype=float))
    middle = mean(logs)
    return Estimate(value=math.exp(middle.value), low=math.exp(middle.low), high=math.exp(middle.high), n=middle.n)


@lru_cache(maxsize=256)
def t_quantile(degrees: int) -> float:
    """Return Student's t at 97.5 % (Hill, Algorithm 396, CACM 13, 1970; exact for one and two degrees)."""
    if degrees < 1:
        raise ValueError("Student's t needs at least one degree of freedom")
    p = 0.05
    if degrees == 1:
        return math.cos(p * math.pi / 2) / math.sin(p * math.pi / 2)
    if degrees == 2:
        return math.sqrt(2 / (p * (2 - p)) - 2)
    n = float(degrees)
    a = 1 / (n - 0.5)
    b = 48 / (a * a)
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * n
    y = (d * p) ** (2 / n)
    if y > 0.05 + a:
        x = -Z95
        y = x * x
        if degrees < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y * y)
    else:
        y = ((1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1) \
            * (n + 1) / (n + 2) + 1 / y
    return math.sqrt(n * y)


@lru_cache(maxsize=4096)
def _rank_levels(n: int, q: float) -> tuple[float, float]:
    """Return the levels (0..1 of the sorted samples) between which the true q-quantile lies with 95 %."""
    if n > EXACT_RANKS_UP_TO:
        half = Z95 * math.sqrt(q * (1 - q) / n)
        return max(0.0, q - half), min(1.0, q + half)
    k = np.arange(n + 1)
    logs = np.array([math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in k])
    with np.errstate(divide="ignore"):
        cumulative = np.cumsum(np.exp(logs + k * math.log(q) + (n - k) * math.log1p(-q)))
    low = int(np.searchsorted(cumulative, 0.025, side="right"))  # largest rank with P(below it) <= 2.5 %
    high = int(np.searchsorted(cumulative, 0.975, side="left")) + 1
    last = max(1, n - 1)
    return max(0.0, (low - 1) / last), min(1.0, (high - 1) / last)
