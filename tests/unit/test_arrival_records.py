"""The simulator against published arrival rates with p99: every sixth record of those in docs/plan.md, the same bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.plan_error import Served, served

pytestmark = pytest.mark.unit

POINTS = Path(__file__).parents[1] / "data" / "arrival_points.csv"


@pytest.fixture(scope="module")
def records() -> list[Served]:
    found = list(served(POINTS))
    assert len(found) == len(POINTS.read_text().splitlines()) - 1 == 12
    return found


def keeps(record: Served, rate: float) -> bool:
    done = record.at(rate)
    return bool(np.percentile(done.ttft, 99) * 1e3 <= record.ttft_p99
                and np.percentile(done.tpot, 99) * 1e3 <= record.tpot_p99)


def test_the_rate_within_the_measured_p99_is_right_to_a_factor_of_two(records: list[Served]) -> None:
    """Nine of ten in the docs: at half the rate the limits hold, at twice the rate they do not."""
    right = [keeps(record, record.rate / 2) and not keeps(record, 2 * record.rate) for record in records]
    assert np.mean(right) >= 0.8


def test_p99_ttft_at_the_edge_is_right_to_a_factor_of_four_for_most(records: list[Served]) -> None:
    """Four fifths in the docs, half within two; the rest is why a p99 near saturation has to be measured."""
    ratios = np.array([np.percentile(record.at(record.rate).ttft, 99) * 1e3 / record.ttft_p99 for record in records])
    off = np.exp(np.abs(np.log(ratios)))
    assert np.mean(off <= 4) >= 0.65
    assert np.mean(off <= 2) >= 0.4
    assert off.max() < 20
