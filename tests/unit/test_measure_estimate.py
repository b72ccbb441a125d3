from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure import estimate

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("degrees", "expected"), [
    (1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (7, 2.3646), (10, 2.2281), (19, 2.0930),
    (30, 2.0423), (100, 1.9840), (10_000, 1.9602),
])
def test_students_t(degrees: int, expected: float) -> None:
    assert estimate.t_quantile(degrees) == pytest.approx(expected, abs=2e-4)


def test_students_t_needs_a_degree() -> None:
    with pytest.raises(ValueError, match="degree"):
        estimate.t_quantile(0)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.sampled_from([50, 90, 95, 97.5, 99]))
def test_a_percentile_is_numpys_and_lies_in_its_interval(samples: list[float], percent: float) -> None:
    found = estimate.percentile(samples, percent)
    assert found.value == pytest.approx(float(np.percentile(samples, percent)))
    assert min(samples) <= found.low <= found.value <= found.high <= max(samples)
    assert found.n == len(samples)


@pytest.mark.parametrize(("n", "percent", "low", "high"), [(1000, 99, 983, 996), (200, 95, 183, 196)])
def test_order_statistics(n: int, percent: float, low: float, high: float) -> None:
    found = estimate.percentile(np.arange(n) * 387 % n, percent)  # neighbours are never alike
    assert found.low == pytest.approx(low, abs=1.01)
    assert found.high == pytest.approx(high, abs=1.01)


@pytest.mark.parametrize(("n", "percent"), [(60, 50), (400, 95), (3000, 95)])
def test_percentile_intervals_cover(n: int, percent: float) -> None:
    rng = np.random.default_rng(n)
    truth = -math.log(1 - percent / 100)
    hits = sum(
        found.low <= truth <= found.high
        for found in (estimate.percentile(rng.exponential(size=n), percent) for _ in range(1000))
    )
    assert 930 <= hits <= 992


def test_samples_that_come_in_lumps_give_a_wider_interval() -> None:
    lumps = np.repeat(np.random.default_rng(0).exponential(size=50), 100)
    wide = estimate.percentile(lumps, 50, parts=np.full(50, 100))
    narrow = estimate.percentile(np.random.default_rng(1).permutation(lumps), 50)
    assert wide.value == narrow.value
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)
    assert wide.n == 50


def autocorrelated(rng: np.random.Generator, n: int, phi: float) -> np.ndarray:  # type: ignore[type-arg]
    """A stationary first-order process with standard normal values."""
    values = np.empty(n)
    values[0] = rng.normal()
    shocks = rng.normal(size=n) * math.sqrt(1 - phi * phi)
    for index in range(1, n):
        values[index] = phi * values[index - 1] + shocks[index]
    return values


@pytest.mark.parametrize("percent", [50, 95])
def test_percentile_intervals_cover_although_neighbours_are_alike(percent: float) -> None:
    rng = np.random.default_rng(5)
    truth = math.exp({50: 0.0, 95: 1.6448536}[int(percent)] / 2)
    found = [estimate.percentile(np.exp(autocorrelated(rng, 500, 0.7) / 2), percent) for _ in range(300)]
    assert sum(one.low <= truth <= one.high for one in found) >= 0.92 * 300


def test_means_cover_although_neighbours_are_alike() -> None:
    rng = np.random.default_rng(6)
    found = [estimate.mean(autocorrelated(rng, 500, 0.8)) for _ in range(300)]
    assert 0.91 * 300 <= sum(one.low <= 0 <= one.high for one in found) <= 0.99 * 300


@pytest.mark.parametrize(("percent", "needed"), [(50, 6), (95, 72), (99, 368)])
def test_how_many_requests_a_tail_needs(percent: float, needed: int) -> None:
    assert estimate.requests_needed(percent) == needed


def test_mean_of_one_sample_has_no_width() -> None:
    assert estimate.mean([3.0]) == estimate.exact(3.0, 1)


def test_means_cover() -> None:
    rng = np.random.default_rng(1)
    hits = sum(found.low <= 5 <= found.high for found in (estimate.mean(rng.normal(5, 2, size=8)) for _ in range(1000)))
    assert 930 <= hits <= 970


@pytest.mark.parametrize(("k", "n", "low", "high"), [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634)])
def test_wilson(k: int, n: int, low: float, high: float) -> None:
    found = estimate.share(k, n)
    assert (found.low, found.high) == pytest.approx((low, high), abs=2e-4)


def test_a_share_of_nothing_is_unknown() -> None:
    found = estimate.share(0, 0)
    assert (found.low, found.high, found.n) == (0.0, 1.0, 0)


@given(st.integers(0, 500), st.integers(1, 500))
def test_a_share_lies_in_its_interval(successes: int, n: int) -> None:
    found = estimate.share(min(successes, n), n)
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_counts_in_slices_give_the_rate() -> None:
    found = estimate.rate([10, 12] * 20, seconds=0.5)
    assert found.value == pytest.approx(22)
    assert found.low <= 22 <= found.high


def test_a_steady_count_has_no_width() -> None:
    found = estimate.rate([10] * 40, seconds=2)
    assert (found.value, found.low, found.high) == (5, 5, 5)


def test_a_geometric_mean_of_ratios() -> None:
    found = estimate.geometric_mean([2.0, 0.5, 2.0, 0.5])
    assert found.value == pytest.approx(1.0)
    assert found.low * found.high == pytest.approx(1.0)


def test_a_trend_is_found_and_chance_is_not() -> None:
    change, error = estimate.trend(np.linspace(10, 20, 10))
    assert (change, error) == pytest.approx((10, 0))
    rng = np.random.default_rng(8)
    found = [estimate.trend(rng.normal(size=10)) for _ in range(1000)]
    assert 930 <= sum(abs(change) <= error for change, error in found) <= 970


@pytest.mark.parametrize(("alike", "count"), [(0.0, 200), (0.3, 200), (0.9, 600)])
def test_the_mean_of_alike_neighbours_is_covered(alike: float, count: int) -> None:
    rng = np.random.default_rng(count)
    hits = 0
    for _ in range(400):
        noise = rng.normal(size=count)
        for index in range(1, count):
            noise[index] = alike * noise[index - 1] + math.sqrt(1 - alike**2) * noise[index]
        found = estimate.mean(noise)
        hits += found.low <= 0 <= found.high
    assert 0.91 <= hits / 400 <= 0.98
