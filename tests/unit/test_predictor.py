"""The predictor of a study, against machines whose step times are known by construction."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from tests.fakes import plans
from tuner.app.predicted import Ranged
from tuner.app.predictor import Loaded, Predicted, Predictor
from tuner.app.simulated import as_run, simulated_outcome
from tuner.app.traffic import jobs_of
from tuner.capacity.host_step import HostStep, HostTerms
from tuner.capacity.jobs import Engine
from tuner.capacity.latency import Coefficients, coefficients
from tuner.capacity.simulate import simulate
from tuner.domain.engine import EngineConfig, StartupFacts
from tuner.domain.slo import parse_slo
from tuner.domain.study import StudySpec
from tuner.domain.trial import Failed, FailureKind, Infeasible, Measured, Trial
from tuner.domain.workload import ClosedLoop, Fixed, OpenLoop, Uniform, Workload
from tuner.facts.catalog import model_by_alias
from tuner.measure.requests import measure

pytestmark = pytest.mark.unit

WORKLOAD = Workload(
    name="mixed", input_tokens=Uniform(low=128, high=384), output_tokens=Uniform(low=12, high=36), requests=48,
    arrivals=ClosedLoop(concurrency=12), warmup_requests=12, shared_prefix=0.6, prefix_groups=2,
)
TRUTH = {
    "bfloat16": HostTerms(step_us=9_000, sequence_us=2_500, token_us=90, context_ns=900, look_ns=20, request_us=1_500,
                          outside_us=3_000),
    "float32": HostTerms(step_us=9_000, sequence_us=2_500, token_us=90, context_ns=900, look_ns=20, request_us=1_500,
                         outside_us=3_000, step_factor=1.4, work_factor=1.9),
}
GRID = tuple(itertools.product((None, 4, 8), (None, 128, 512), (None, False), (None, "float32")))
FLAGS = ("max-num-seqs", "max-num-batched-tokens", "enable-prefix-caching", "dtype")
NOISE = 0.03


def config(*values: Any) -> EngineConfig:
    return plans.config(*[(flag, value) for flag, value in zip(FLAGS, values, strict=False) if value is not None])


def host_study(**changes: Any) -> StudySpec:
    fields: dict[str, Any] = {"workload": WORKLOAD, "pins": (), "slo": parse_slo("p95 ttft<=900ms, p95 itl<=80ms"),
                              "model": plans.local_model(dtype="bfloat16"), "hardware": plans.CPU, **changes}
    return plans.study(**fields)


def live(spec: StudySpec, made: EngineConfig, seed: int = 0) -> Measured:
    """Measure a machine of the true terms, whose speed differs a little from start to start."""
    terms = TRUTH[str(made.get("dtype") or "bfloat16")]
    luck = math.exp(NOISE * float(np.random.default_rng([seed, *made.key.encode()]).standard_normal()))
    engine = Engine(max_sequences=int(made.get("max-num-seqs") or 128), blocks=4_000, block_tokens=128,
                    token_budget=int(made.get("max-num-batched-tokens") or 2048),
                    prefix_caching=made.get("enable-prefix-caching") is not False)
    jobs = jobs_of(spec.workload, seed=spec.seed)
    step = HostStep(terms.model_copy(update={name: getattr(terms, name) * luck
                                             for name in ("step_us", "sequence_us", "token_us")}))
    done = simulate(jobs, engine, step)
    return Measured(measurement=measure(as_run(done, spec, jobs), spec.slo), start_s=40.0,
                    startup=StartupFacts(kv_cache_tokens=512_000))


def trial(number: int, made: EngineConfig, outcome: Any) -> Trial:
    return Trial(number=number, purpose="search", config=made, outcome=outcome)


def numbers(outcome: Measured) -> tuple[float, float, float]:
    found = outcome.measurement
    assert found.ttft_ms is not None
    assert found.itl_ms is not None
    return found.output_tokens_per_s.value, found.ttft_ms.p95.value, found.itl_ms.p95.value


def ranks(values: list[float]) -> np.ndarray[Any, Any]:
    return np.argsort(np.argsort(values))


LEARNT = (config(), config(4, 128, None, "float32"), config(8, None, False), config(None, 512, False, "float32"))


@pytest.fixture(scope="module")
def learnt() -> Predictor:
    spec = host_study()
    return Predictor.after(spec, [trial(number, one, live(spec, one)) for number, one in enumerate(LEARNT)])


def test_four_trials_of_a_host_predict_the_others(learnt: Predictor) -> None:
    off: list[tuple[float, ...]] = []
    pairs: list[tuple[float, float]] = []
    for values in GRID:
        made = config(*values)
        if made in LEARNT:
            continue
        predicted, truth = learnt.predict(made), numbers(live(learnt.spec, made, seed=1))
        assert predicted is not None
        guess = tuple(predicted.values[name].value for name in ("output_tokens_per_s", "p95_ttft", "p95_itl"))
        off.append(tuple(abs(one / other - 1) for one, other in zip(guess, truth, strict=True)))
        pairs.append((guess[0], truth[0]))
    median = np.median(np.array(off), axis=0)
    assert len(off) == 32
    assert median[0] < 0.06
    assert max(median[1:]) < 0.12
    guessed, true = ranks([one for one, _ in pairs]), ranks([other for _, other in pairs])
    assert np.corrcoef(guessed, true)[0, 1] > 0.9


def test_each_trial_is_predicted_before_it_is_learnt_from(learnt: Predictor) -> None:
    assert [len(learnt.errors[name]) for name in ("output_tokens_per_s", "p95_itl")] == [2, 2]  # the others: too early
    fresh = Predictor.after(learnt.spec, learnt.trials[:2])
    third = fresh.predict(LEARNT[2])
    assert third is not None
    assert learnt.errors["output_tokens_per_s"][0] == pytest.approx(
        math.log(third.values["output_tokens_per_s"].value / numbers(live(learnt.spec, LEARNT[2]))[0]))
    assert "before it ran" in learnt.text


def test_the_state_is_a_function_of_the_trials(learnt: Predictor) -> None:
    one, two = (Predictor.after(learnt.spec, learnt.trials[:3]) for _ in range(2))
    assert one.terms() == two.terms() != learnt.terms()
    assert one.predict(config(4)) == two.predict(config(4))


def test_too_few_trials_or_an_unseen_value_say_nothing() -> None:
    spec = host_study()
    predictor = Predictor(spec)
    assert (predictor.status, predictor.predict(config())) == ("learning", None)
    for number, one in enumerate((config(), config(4))):
        predictor.update(trial(number, one, live(spec, one)))
    assert predictor.status == "ready"
    assert predictor.predict(config(8)) is not None
    assert predictor.predict(config(8, None, None, "float32")) is None
    assert predictor.predict(config(8, None, None, "bfloat16")) is not None  # what the model is in anyway


def test_what_was_not_measured_teaches_nothing(learnt: Predictor) -> None:
    again = Predictor.after(learnt.spec, learnt.trials[:2])
    before = again.terms()
    again.update(trial(9, config(4), Infeasible(rule="r", reason="no")))
    again.update(trial(10, config(4), Failed(failure=FailureKind.CRASHED, reason="no", phase="load")))
    assert again.terms() == before
    assert len(again.trials) == 2


def test_limits_and_their_verdict(learnt: Predictor) -> None:
    found = learnt.predict(config(4, 128, False, "float32"))
    assert found is not None
    assert set(found.limits) == {limit.text for limit in learnt.spec.slo.limits}
    for limit in learnt.spec.slo.limits:
        assert found.limits[limit.text].low < found.limits[limit.text].value < found.limits[limit.text].high
    assert (found.slo, found.meets_slo) == ("misses", False)
    assert found.objective("max_rate") is None
    rate = found.objective("goodput_per_s")
    assert rate is not None
    assert rate.value < found.values["requests_per_s"].value


def test_another_load_level(learnt: Predictor) -> None:
    own, few = learnt.predict(config()), learnt.predict(config(), Loaded(clients=2))
    slow = learnt.predict(config(), Loaded(rate_per_s=1.0))
    assert own is not None
    assert few is not None
    assert slow is not None
    truth = live(learnt.spec.model_copy(update={"workload": WORKLOAD.model_copy(
        update={"arrivals": ClosedLoop(concurrency=2), "warmup_requests": 2})}), config())
    assert few.values["output_tokens_per_s"].value == pytest.approx(numbers(truth)[0], rel=0.3)
    assert few.values["output_tokens_per_s"].value < own.values["output_tokens_per_s"].value
    assert slow.values["requests_per_s"].value == pytest.approx(1.0, rel=0.25)


def test_a_price_becomes_a_cost(learnt: Predictor) -> None:
    spec = host_study(price_per_hour=0.5)
    found = Predictor.after(spec, learnt.trials[:2]).predict(config(8))
    assert found is not None
    rate = found.values["output_tokens_per_s"].value
    assert found.values["cost_per_mtok"].value == pytest.approx(0.5 / (rate * 3600) * 1e6)


def test_prompts_of_a_file_are_not_predicted() -> None:
    spec = host_study(workload=WORKLOAD.model_copy(update={"prompts_file": "prompts.jsonl"}))
    assert Predictor(spec).status == "none"


def gpu_study() -> StudySpec:
    model = model_by_alias("llama-3-8b")
    assert model is not None
    workload = Workload(name="w", input_tokens=Fixed(tokens=512), output_tokens=Fixed(tokens=128), requests=90,
                        arrivals=ClosedLoop(concurrency=24), warmup_requests=0)
    one = plans.H100.model_copy(update={"gpus": plans.H100.gpus[:1]})
    return plans.study(model=model, hardware=one, workload=workload, pins=())


SLOW = coefficients().model_copy(update={"layer_us": 90.0, "bandwidth": 0.5})
GPU_LEARNT = tuple(plans.config(("max-num-seqs", size)) for size in (8, 32, 256))


def gpu_trial(spec: StudySpec, number: int, made: EngineConfig, found: Coefficients = SLOW) -> Trial:
    outcome = simulated_outcome(spec, made, found=found)
    assert isinstance(outcome, Measured)
    return trial(number, made, outcome)


def rate_of(found: Predicted | None) -> Ranged:
    assert found is not None
    return found.values["output_tokens_per_s"]


def test_a_known_gpu_is_predicted_from_the_first_moment_and_better_after_trials() -> None:
    spec = gpu_study()
    predictor = Predictor(spec)
    made = plans.config(("max-num-seqs", 16))
    outcome = gpu_trial(spec, 9, made).outcome
    assert isinstance(outcome, Measured)
    truth = numbers(outcome)[0]
    before = rate_of(predictor.predict(made))
    for number, one in enumerate(GPU_LEARNT):
        predictor.update(gpu_trial(spec, number, one))
    after = rate_of(predictor.predict(made))
    assert predictor.status == "ready"
    assert abs(before.value / truth - 1) > 0.2
    assert abs(after.value / truth - 1) < 0.05
    assert len(predictor.errors["output_tokens_per_s"]) == 3
    assert predictor.terms()["fixed"] > 1.1


def test_an_open_loop_can_be_learnt_from() -> None:
    spec = gpu_study()
    spec = spec.model_copy(update={"workload": spec.workload.model_copy(update={"arrivals": OpenLoop(rate_per_s=4.0)})})
    predictor = Predictor.after(spec, [gpu_trial(spec, number, one) for number, one in enumerate(GPU_LEARNT[1:])])
    found, truth = predictor.predict(GPU_LEARNT[0]), gpu_trial(spec, 3, GPU_LEARNT[0]).outcome
    assert isinstance(truth, Measured)
    assert found is not None
    assert found.values["p95_itl"].value == pytest.approx(numbers(truth)[2], rel=0.15)


def test_other_engines_and_unknown_gpus_are_not_predicted() -> None:
    spec = gpu_study()
    other = spec.model_copy(update={"engine": spec.engine.model_copy(update={"engine": "trtllm"})})
    assert Predictor(other).status == "none"
    gpu = spec.hardware.gpus[0].model_copy(update={"name": "Unheard 9000"})
    strange = spec.model_copy(update={"hardware": spec.hardware.model_copy(update={"gpus": (gpu,)})})
    assert Predictor(strange).predict(GPU_LEARNT[0]) is None
