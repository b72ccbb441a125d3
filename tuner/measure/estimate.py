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


def exact(value: float, n: int) -> Estimate:
    """Return a number that was counted and not sampled: its interval is the value itself."""
    return Estimate(value=value, low=value, high=value, n=n)


def percentile(samples: ArrayLike, percent: float, *, independent: int | None = None) -> Estimate:
    """Return the percentile (linear interpolation over all samples) with its order-statistic interval.

    The interval's ends are the samples at the ranks between which the true percentile lies with 95 % by the binomial
    law; it assumes nothing about the distribution. Where too few samples exist it reaches to the smallest or largest
    one and then covers less. `independent` is the number of independent pieces when that is smaller than the number
    of samples, e.g. requests for the gaps inside them.
    """
    values = np.sort(np.asarray(samples, dtype=float))
    n = max(1, min(values.size, independent or values.size))
    low, high = _rank_levels(n, percent / 100)
    at = np.quantile(values, [percent / 100, low, high])
    return Estimate(value=float(at[0]), low=float(min(at[1], at[0])), high=float(max(at[2], at[0])), n=n)


def mean(samples: ArrayLike, *, independent: int | None = None) -> Estimate:
    """Return the mean with Student's interval, which assumes independent samples (or `independent` pieces)."""
    values = np.asarray(samples, dtype=float)
    n = max(1, min(values.size, independent or values.size))
    value = float(values.mean())
    if n < 2 or values.size < 2:
        return Estimate(value=value, low=value, high=value, n=n)
    half = t_quantile(n - 1) * float(values.std(ddof=1)) / math.sqrt(n)
    return Estimate(value=value, low=value - half, high=value + half, n=n)


def share(successes: int, n: int) -> Estimate:
    """Return a share with Wilson's score interval, which also holds near 0 and 1 and for small n."""
    if n == 0:
        return Estimate(value=0.0, low=0.0, high=1.0, n=0)
    p, z2 = successes / n, Z95 * Z95
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return Estimate(value=p, low=max(0.0, min(centre - half, p)), high=min(1.0, max(centre + half, p)), n=n)


def batch_means(per_slice: ArrayLike, *, seconds: float) -> Estimate:
    """Return a rate per second from equal time slices, with an interval that respects autocorrelation.

    Slices are joined into batches until neighbours are no longer correlated (between 8 and 20 batches are kept); the
    batches' means then get Student's interval (batch means; Law, Simulation Modeling and Analysis, ch. 9.5).
    `seconds` is the length of one slice.
    """
    counts = np.asarray(per_slice, dtype=float)
    value = float(counts.mean()) / seconds
    if counts.size < 2:
        return Estimate(value=value, low=value, high=value, n=int(counts.size))
    batches = _batches(counts) / seconds
    half = t_quantile(batches.size - 1) * float(batches.std(ddof=1)) / math.sqrt(batches.size)
    return Estimate(value=value, low=max(0.0, value - half), high=value + half, n=int(batches.size))


def _batches(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    sizes = sorted({max(1, counts.size // wanted) for wanted in (20, 15, 10, 8)})
    batches = counts
    for size in sizes:
        whole = counts.size // size * size
        batches = counts[counts.size - whole:].reshape(-1, size).mean(axis=1)
        if abs(lag_one(batches)) < 2 / math.sqrt(batches.size):
            break
    return batches


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
