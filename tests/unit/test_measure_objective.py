from __future__ import annotations

from typing import get_args

import pytest

from tests.unit.measure_records import lane, record, run
from tuner.domain.slo import Slo, parse_slo
from tuner.domain.study import Objective
from tuner.domain.trial import Estimate, MeasureWarning, Warn
from tuner.errors import NothingMeasuredError
from tuner.measure.compare import combine, noise_floor, ratio_over_rounds
from tuner.measure.front import front
from tuner.measure.objective import NO_SAMPLES, direction, meets, score, slo_violations
from tuner.measure.requests import measure
from tuner.measure.warnings import ADVICE, advice

pytestmark = pytest.mark.unit

GOOD = measure(run(lane(40)), parse_slo("p95 ttft<=30ms"))
BROKEN = measure(run([record(n, start_ms=n, chunks_ms=(), error="http_503", end_ms=2) for n in range(12)]))


KNEE = Estimate(value=8.0, low=8.0, high=9.0, n=5)
FULL = GOOD.model_copy(update={"knee": KNEE, "joules_per_token": Estimate(value=2.0, low=1.9, high=2.1, n=40)})


@pytest.mark.parametrize("objective", get_args(Objective))
def test_every_objective_has_a_value_and_a_direction(objective: Objective) -> None:
    assert score(FULL, objective, dollars_per_hour=3.0).value > 0
    more_is_better = objective.endswith("_per_s") or objective in ("max_concurrency", "max_rate")
    assert direction(objective) == ("maximize" if more_is_better else "minimize")


@pytest.mark.parametrize("objective", ["max_concurrency", "max_rate", "cost_per_mtok", "joules_per_token"])
def test_what_was_not_measured_has_no_score(objective: Objective) -> None:
    with pytest.raises(NothingMeasuredError):
        score(GOOD, objective)


def test_replicas_share_the_machine() -> None:
    """More GPUs for one server never look like a better setting: rates count for all servers that fill the machine."""
    one, four = (score(FULL, "output_tokens_per_s", replicas=count) for count in (1, 4))
    assert four.value == pytest.approx(4 * one.value)
    assert four.high == pytest.approx(4 * one.high)
    assert score(FULL, "p95_ttft", replicas=4) == score(FULL, "p95_ttft")
    costs = [score(FULL, "cost_per_mtok", replicas=count, dollars_per_hour=8.0).value for count in (1, 4)]
    assert costs[0] == pytest.approx(4 * costs[1])
    assert costs[0] == pytest.approx(8.0 / 3600 / one.value * 1e6)


def test_the_noise_floor_is_the_spread_between_starts() -> None:
    assert noise_floor([[100, 100, 100], [50, 50, 50]], 3) == pytest.approx(0)
    quiet, loud = noise_floor([[100, 101, 99]], 3), noise_floor([[100, 110, 90]], 3)
    assert 0.02 < quiet < 0.05 < loud < 0.5
    assert noise_floor([[100, 101, 99], [200, 202, 198]], 3) < quiet, "more starts tell it better"
    with pytest.raises(ValueError, match="two starts"):
        noise_floor([[100], [200]], 1)


def test_the_front_is_what_nothing_beats_in_everything() -> None:
    points = [
        {"output_tokens_per_s": 10.0, "p95_ttft": 5.0}, {"output_tokens_per_s": 8.0, "p95_ttft": 3.0},
        {"output_tokens_per_s": 8.0, "p95_ttft": 4.0}, {"output_tokens_per_s": 10.0}, {},
    ]
    assert front(points, ("output_tokens_per_s", "p95_ttft")) == [True, True, False, False, False]


def test_the_objectives_are_what_they_say() -> None:
    assert score(GOOD, "p95_ttft").value == 20
    assert score(GOOD, "mean_e2e").value == 100
    assert score(GOOD, "output_tokens_per_s").value == pytest.approx(50, rel=0.03)
    plain = measure(run(lane(40)))
    assert score(plain, "goodput_per_s") == plain.requests_per_s


def test_a_latency_without_samples_has_no_score() -> None:
    with pytest.raises(NothingMeasuredError, match="p95_ttft"):
        score(BROKEN, "p95_ttft")


@pytest.mark.parametrize(("slo", "violation"), [
    ("p95 ttft<=40ms", -0.5), ("p95 ttft<=20ms", 0.0), ("p95 ttft<=10ms", 1.0), ("mean e2e<=50ms", 1.0),
    ("error_rate<=5%", -1.0), ("error_rate<=0%", -1.0),
])
def test_violations_are_relative_to_the_limit(slo: str, violation: float) -> None:
    limits = parse_slo(slo)
    found = slo_violations(measure(run(lane(40)), limits), limits)
    assert found[limits.text] == pytest.approx(violation)
    assert meets(measure(run(lane(40)), limits), limits) is (violation <= 0)


def test_an_slo_without_a_word_on_errors_still_allows_few() -> None:
    limits = parse_slo("p95 ttft<=1s")
    records = [*lane(40), record(40, start_ms=4000, error="reset")]
    found = slo_violations(measure(run(records), limits), limits)
    assert found["error_rate<=1%"] == pytest.approx(1 / 41 / 0.01 - 1)
    assert not meets(measure(run(records), limits), limits)


def test_an_empty_slo_always_holds() -> None:
    assert slo_violations(BROKEN, Slo()) == {}
    assert meets(BROKEN, Slo())


def test_a_queue_that_grows_keeps_no_limit_of_latency() -> None:
    growing = GOOD.model_copy(update={"warnings": (MeasureWarning(kind=Warn.SATURATED, detail="from 4 to 40"),)})
    assert meets(GOOD, parse_slo("p95 ttft<=30ms"))
    assert not meets(growing, parse_slo("p95 ttft<=30ms"))
    assert meets(growing, parse_slo("error_rate<=1%"))


def test_a_limit_without_samples_is_far_missed() -> None:
    limits = parse_slo("p95 ttft<=1s, error_rate<=0%")
    found = slo_violations(measure(run([record(0, error="reset")]), limits), limits)
    assert found == {"p95 ttft<=1000ms": NO_SAMPLES, "error_rate<=0%": 1000.0}


def test_a_ratio_over_rounds() -> None:
    found = ratio_over_rounds([110, 121, 99], [100, 110, 90])
    assert found.value == pytest.approx(1.1)
    assert found.low == pytest.approx(1.1)
    spread = ratio_over_rounds([100, 130, 110], [100, 100, 100])
    assert spread.low < 1 < spread.value < spread.high


def test_one_round_says_nothing() -> None:
    found = ratio_over_rounds([2], [1])
    assert (found.value, found.low) == (2, 0)
    assert found.high > 1000


@pytest.mark.parametrize(("a", "b"), [([], []), ([1], [1, 2]), ([0, 1], [1, 1]), ([1, 1], [1, -1])])
def test_ratios_that_are_none(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match="ratio"):
        ratio_over_rounds(a, b)


def test_runs_of_one_configuration_are_combined_by_their_spread() -> None:
    runs = [measure(run(lane(40, every_ms=every))) for every in (100, 110, 120)]
    found = combine([one.output_tokens_per_s for one in runs])
    assert found.n == 3
    assert found.low < min(one.output_tokens_per_s.value for one in runs)
    assert combine([runs[0].output_tokens_per_s]) == runs[0].output_tokens_per_s
    with pytest.raises(ValueError, match="nothing"):
        combine([])


@pytest.mark.parametrize("kind", list(Warn))
def test_every_warning_has_advice(kind: Warn) -> None:
    assert advice(kind).endswith(".")
    assert set(ADVICE) == set(Warn)
