"""The highest load that keeps the SLO: a bracket and a bisection, against servers whose knee is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.domain.trial import Estimate, LoadPoint
from tuner.search.levels import MOST_LEVELS, RESOLUTION, Knee, find_knee

pytestmark = pytest.mark.unit

ZERO = Estimate(value=0.0, low=0.0, high=0.0, n=0)


def searched(true: float, *, start: float = 4, incumbent: float | None = None, whole: bool = True) -> Knee:
    def run(level: float) -> LoadPoint:
        return LoadPoint(rate_per_s=level, in_flight=level, requests=24, output_tokens_per_s=ZERO, requests_per_s=ZERO,
                         meets_slo=level <= true)

    return find_knee(run, start=start, incumbent=incumbent, whole=whole)


@given(true=st.integers(1, 500), start=st.integers(1, 64))
def test_the_bracket_holds_the_knee(true: int, start: int) -> None:
    found = searched(true, start=start)
    assert found.dropped is None
    assert len(found.points) <= MOST_LEVELS
    assert found.knee.low <= true
    assert found.knee.value == found.knee.low
    kept = [point.load for point in found.points if point.meets_slo]
    assert found.knee.value == max(kept, default=0)
    assert [point.load for point in found.points] == sorted(point.load for point in found.points)


@pytest.mark.parametrize("true", [1, 3, 7, 30, 45])
def test_it_is_narrow(true: int) -> None:
    found = searched(true)
    assert found.knee.value <= true < found.knee.high
    assert found.knee.high <= found.knee.value * (1 + RESOLUTION) or found.knee.high == found.knee.value + 1


def test_a_rate_is_narrowed_by_shares() -> None:
    found = searched(3.7, start=1.0, whole=False)
    assert found.knee.value <= 3.7 <= found.knee.high <= found.knee.value * (1 + 2 * RESOLUTION)


def test_a_challenger_that_does_not_hold_more_than_the_incumbent_costs_one_level() -> None:
    found = searched(20, incumbent=20)
    assert found.dropped == "does not keep the SLO at 21, and the incumbent holds 20"
    assert len(found.points) == 1
    better = searched(30, incumbent=20)
    assert better.dropped is None
    assert 28 <= better.knee.value <= 30
    assert min(point.load for point in better.points) == 21, "nothing below the incumbent's level is run"


def test_nothing_that_keeps_the_slo_is_zero_and_no_error() -> None:
    found = searched(0, start=16)
    assert found.knee.value == 0
    assert found.knee.high == 1
    assert not any(point.meets_slo for point in found.points)
