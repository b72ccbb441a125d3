from __future__ import annotations

import numpy as np
import pytest

from tests.unit.measure_records import MS, lane, record
from tuner.domain.slo import parse_slo
from tuner.measure.sequential import Hopeless, UntilPrecise, limit_shares, sprt

pytestmark = pytest.mark.unit


def decide(share: float, rng: np.random.Generator, good: float, bad: float) -> tuple[str, int]:
    kept = missed = 0
    while True:
        if rng.random() < share:
            kept += 1
        else:
            missed += 1
        if (found := sprt(kept, missed, good=good, bad=bad)) != "open":
            return found, kept + missed


@pytest.mark.parametrize(("share", "decision"), [(0.99, "kept"), (0.97, "kept"), (0.90, "missed"), (0.5, "missed")])
def test_the_test_errs_rarely(share: float, decision: str) -> None:
    rng = np.random.default_rng(3)
    found = [decide(share, rng, 0.97, 0.90)[0] for _ in range(400)]
    assert found.count(decision) >= 0.94 * 400


def test_a_hopeless_configuration_falls_after_about_ten_requests() -> None:
    rng = np.random.default_rng(4)
    needed = {share: np.mean([decide(share, rng, 0.97, 0.90)[1] for _ in range(300)]) for share in (0.5, 0.8)}
    assert needed[0.5] < 8
    assert needed[0.8] < 25


def test_nothing_is_decided_before_anything_is_seen() -> None:
    assert sprt(0, 0, good=0.97, bad=0.9) == "open"


@pytest.mark.parametrize(("slo", "good", "bad"), [
    ("p95 ttft<=1s", 0.97, 0.90), ("p99 e2e<=1s", 0.994, 0.98), ("p50 tpot<=1s", 0.7, 0.05), ("mean ttft<=1s", 0.5, 0.25),
    ("p95 itl<=1s", 0.5, 0.25),
])
def test_what_a_limit_is_tested_at(slo: str, good: float, bad: float) -> None:
    assert limit_shares(parse_slo(slo).limits[0]) == pytest.approx((good, bad))


def test_a_limit_out_of_reach_is_named() -> None:
    watch = Hopeless(parse_slo("p95 ttft<=1s, p95 e2e<=60ms, error_rate<=1%"))
    taken = 0
    while not watch.reason():
        watch.add(lane(20)[taken])
        taken += 1
    assert taken < 10
    assert (watch.reason() or "").startswith("p95 e2e<=60ms is out of reach")


def test_failures_miss_and_interruptions_say_nothing() -> None:
    watch = Hopeless(parse_slo("p95 ttft<=1s"))
    for number in range(20):
        watch.add(record(number, error="interrupted"))
        watch.add(record(number, warmup=True, error="reset"))
    assert watch.reason() is None
    for number in range(20):
        watch.add(record(number, error="reset"))
    assert watch.reason() is not None


def test_a_good_run_is_left_alone() -> None:
    watch = Hopeless(parse_slo("p95 ttft<=1s, mean itl<=1s"))
    for one in lane(500):
        watch.add(one)
        assert watch.reason() is None


def test_a_run_ends_when_it_is_known_well_enough() -> None:
    now = 0
    watch = UntilPrecise(0.02, cap_s=1000, clock=lambda: now)
    assert watch.estimate() is None
    for one in lane(400):
        now = one.end_ns
        watch.add(one)
        if watch.reason():
            break
    assert watch.reason() == "the throughput is known to 2.0%"
    found = watch.estimate()
    assert found is not None
    assert found.value == pytest.approx(50, rel=0.03)
    assert 10e9 < now < 20e9


def test_a_run_that_stays_unsure_ends_at_its_limit() -> None:
    now = 0
    rng = np.random.default_rng(0)
    watch = UntilPrecise(0.001, cap_s=30, clock=lambda: now)
    start = 0.0
    while not watch.reason():
        one = record(0, start_ms=start, chunks_ms=(float(rng.exponential(300)) + 1,))
        start = one.end_ns / MS
        now = one.end_ns
        watch.add(one)
    assert watch.reason() == "the time limit is reached"
    assert 30e9 <= now < 33e9


def test_failed_answers_bring_no_tokens() -> None:
    now = 60_000 * MS
    watch = UntilPrecise(0.01, cap_s=1000, clock=lambda: now)
    for number in range(100):
        watch.add(record(number, start_ms=number * 100, error="reset"))
    found = watch.estimate()
    assert found is not None
    assert found.value == 0
    assert watch.reason() is None
