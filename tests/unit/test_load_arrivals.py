from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.domain.workload import OpenLoop
from tuner.load.arrivals import client_offsets, open_loop_offsets

pytestmark = pytest.mark.unit


def test_constant_spacing() -> None:
    offsets = open_loop_offsets(OpenLoop(rate_per_s=4, burstiness=None), 4, seed=1)
    assert offsets == pytest.approx((0.25, 0.5, 0.75, 1.0))


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_rate_and_the_burstiness(burstiness: float) -> None:
    gaps = np.diff(open_loop_offsets(OpenLoop(rate_per_s=50, burstiness=burstiness), 40_000, seed=3), prepend=0.0)
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness ** -0.5, rel=0.05)


def test_a_seed_gives_one_pattern_at_every_rate() -> None:
    slow = open_loop_offsets(OpenLoop(rate_per_s=1), 50, seed=7)
    fast = open_loop_offsets(OpenLoop(rate_per_s=10), 50, seed=7)
    assert fast == pytest.approx(np.array(slow) / 10)
    assert open_loop_offsets(OpenLoop(rate_per_s=1), 50, seed=8) != slow
    assert open_loop_offsets(OpenLoop(rate_per_s=1), 20, seed=7) == slow[:20]


@given(clients=st.integers(1, 3000), seed=st.integers(0, 9))
def test_clients_start_apart_and_soon(clients: int, seed: int) -> None:
    offsets = client_offsets(clients, seed, None)
    assert len(offsets) == clients
    assert offsets[0] == 0.0
    assert list(offsets) == sorted(offsets)
    assert offsets[-1] <= 5.01
