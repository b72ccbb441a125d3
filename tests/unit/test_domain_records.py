"""Records: frozen, strict, and one text and hash for each value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.fakes import plans
from tuner.domain.engine import EngineConfig, LaunchSpec, Setting
from tuner.domain.hardware import Gpu, Hardware
from tuner.domain.plan import Plan
from tuner.domain.record import canonical_json, content_hash
from tuner.domain.slo import parse_slo
from tuner.domain.space import SearchSpace, SpaceSetting
from tuner.domain.study import Budget, StudySpec
from tuner.domain.trial import Estimate, Failed, FailureKind, Infeasible, Measured, Phase, Trial
from tuner.domain.workload import ClosedLoop, Fixed, Lognormal, OpenLoop, Uniform, Workload

pytestmark = pytest.mark.unit

values = st.one_of(
    st.booleans(), st.integers(-(10**12), 10**12), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)
)
flags = st.text(alphabet="abcdefgh-", min_size=1, max_size=6)


def config(*pairs: tuple[str, Any], **changes: Any) -> EngineConfig:
    settings = tuple(Setting(flag=flag, value=value, **changes) for flag, value in pairs)
    return EngineConfig(engine="vllm", version="0.32.0", settings=settings)


def test_true_and_one_are_different_settings() -> None:
    keys = {config(("a", value)).key for value in (True, 1, 1.0, "1", "true", "True")}
    assert len(keys) == 6
    assert canonical_json({"b": True, "a": [1, 1.0]}) == '{"a":[1,1.0],"b":true}'


def test_key_is_of_the_values_and_not_of_who_asked() -> None:
    one = config(("a", 1), ("b", False), source="user", why="because")
    other = config(("b", False), ("a", 1), source="trial")
    assert one.key == other.key
    assert one.key != config(("a", 1)).key
    assert one.key != EngineConfig(engine="vllm", version="0.31.0", settings=one.settings).key


@given(st.dictionaries(flags, values, max_size=5))
def test_a_config_survives_json_with_the_types_of_its_values(settings: dict[str, Any]) -> None:
    before = config(*settings.items())
    after = EngineConfig.model_validate_json(before.model_dump_json())
    assert after == before
    assert after.key == before.key
    assert {flag: type(value) for flag, value in after.values.items()} == {f: type(v) for f, v in settings.items()}
    assert [setting.flag for setting in after.settings] == sorted(settings)


def test_a_flag_stands_once() -> None:
    with pytest.raises(ValidationError, match="a flag is set twice"):
        config(("a", 1), ("a", 2))


def test_with_settings_replaces_and_joins() -> None:
    changed = config(("a", 1), ("b", 2)).with_settings(Setting(flag="b", value=3), Setting(flag="c", value=True))
    assert changed.values == {"a": 1, "b": 3, "c": True}
    assert changed.get("d") is None


def test_records_are_frozen_and_refuse_unknown_keys() -> None:
    setting = Setting(flag="a", value=1)
    with pytest.raises(ValidationError):
        setting.value = 2  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs"):
        Setting.model_validate({"flag": "a", "value": 1, "vaule": 2})


def test_hash_refuses_what_json_has_no_word_for() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        content_hash(float("nan"))


def test_an_environment_variable_is_a_setting() -> None:
    setting = Setting(flag="env:VLLM_CPU_KVCACHE_SPACE", value="1")
    assert setting.is_env
    assert setting.env_name == "VLLM_CPU_KVCACHE_SPACE"
    assert not Setting(flag="max-num-seqs", value=1).is_env


def test_command_fills_in_where_to_listen_and_leaves_braces_of_arguments_alone() -> None:
    spec = LaunchSpec(
        program=("vllm",), arguments=("serve", "m", "--speculative-config", '{"method": "ngram"}'),
        bind=("--host", "{host}", "--port", "{port}"), model="m", model_is_local=False, served_name="m",
    )
    assert spec.command("127.0.0.1", 81) == (
        "vllm", "serve", "m", "--speculative-config", '{"method": "ngram"}', "--host", "127.0.0.1", "--port", "81",
    )


# --- the question of a study


def question(**changes: Any) -> str:
    return plans.study(**changes).question


SPACE = plans.study().space


@pytest.mark.parametrize(
    "changes",
    [
        {"model": plans.local_model(fingerprint="other")},
        {"hardware": plans.H100},
        {"engine": plans.study().engine.model_copy(update={"version": "0.31.0"})},
        {"workload": plans.study().workload.model_copy(update={"requests": 65})},
        {"slo": parse_slo("p95 ttft<=501ms")},
        {"objective": "p95_ttft"},
        {"space": SearchSpace(engine="vllm", settings=SPACE.settings[:1])},
        {"pins": (Setting(flag="enforce-eager", value=True),)},
        {"baseline": plans.config(("max-num-seqs", 8))},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_another_question_is_another_study(changes: dict[str, Any]) -> None:
    assert question(**changes) != question()


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "renamed"},
        {"seed": 7},
        {"budget": Budget(trials=99, seconds=5.0, finalists=1)},
        {"sources": {}},
        {"model": plans.local_model(requested="./elsewhere")},
        {"space": SPACE.model_copy(update={"origin": "copy.yaml"})},
        {"space": SPACE.model_copy(update={"settings": tuple(
            setting.model_copy(update={"line": 9}) for setting in SPACE.settings)})},
    ],
    ids=["name", "seed", "budget", "sources", "requested", "origin", "line"],
)
def test_what_may_change_between_runs_of_one_study(changes: dict[str, Any]) -> None:
    assert question(**changes) == question()


def test_a_pin_of_true_is_not_a_pin_of_one() -> None:
    one, true = ((Setting(flag="a", value=value),) for value in (1, True))
    assert question(pins=one) != question(pins=true)


def test_a_study_survives_json() -> None:
    spec = plans.study()
    again = StudySpec.model_validate_json(spec.model_dump_json())
    assert again == spec
    assert again.question == spec.question


# --- trials and plans


MEASURED = Measured(measurement=plans.measurement(100.0), startup=plans.StartupFacts(), start_s=1.0)


@pytest.mark.parametrize(
    "outcome",
    [
        MEASURED,
        Infeasible(rule="heads_divide", reason="9 heads", fix="use 3"),
        Failed(failure=FailureKind.OUT_OF_MEMORY, reason="CUDA out of memory", phase="load", exit_code=1, log_tail="x"),
    ],
    ids=lambda outcome: outcome.kind,
)
def test_a_trial_survives_json_with_the_kind_of_its_outcome(outcome: Any) -> None:
    trial = Trial(number=3, purpose="search", config=config(("a", 1)), outcome=outcome, attempts=2)
    again = Trial.model_validate_json(trial.model_dump_json())
    assert again == trial
    assert type(again.outcome) is type(outcome)


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [
        (MEASURED, True),
        (Infeasible(rule="r", reason="no"), False),
        (Failed(failure=FailureKind.CRASHED, reason="x", phase="start"), True),
        (Failed(failure=FailureKind.MACHINE, reason="x", phase="start"), False),
    ],
)
def test_what_counts_against_the_budget(outcome: Any, counts: bool) -> None:
    assert Trial(number=0, purpose="search", config=config(), outcome=outcome).counts is counts


def test_a_failure_has_no_place_for_a_number() -> None:
    for kind in (Failed, Infeasible):
        assert not {"score", "measurement", "value"} & set(kind.model_fields)


def test_own_seconds_count_what_llmtune_added() -> None:
    phases = (Phase(name="start", seconds=40), Phase(name="prepare", seconds=0.25, own=True),
              Phase(name="settle", seconds=0.5, own=True))
    trial = Trial(number=0, purpose="default", config=config(), outcome=MEASURED, phases=phases)
    assert trial.own_seconds == 0.75


def test_estimate_shows_its_interval() -> None:
    assert Estimate(value=12.345, low=11, high=13.5, n=9).format("ms") == "12.35 [11, 13.5] ms"


def test_plan_id_is_of_the_answer_and_the_question() -> None:
    plan = plans.make_plan()
    assert plan.plan_id == plan.model_copy(update={"warnings": ("more",)}).plan_id
    assert plan.plan_id != plan.model_copy(update={"config": plans.config(("max-num-seqs", 3))}).plan_id
    assert plan.plan_id != plan.model_copy(update={"study": plans.study(objective="p95_ttft")}).plan_id
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


# --- hardware, workload, budget


def test_hardware_counts_devices_and_takes_the_weakest_gpu() -> None:
    mixed = Hardware(kind="cuda", gpus=(
        Gpu(name="A", memory_bytes=1, capability=9.0), Gpu(name="B", memory_bytes=1, capability=8.6, index=1)))
    assert mixed.devices == 2
    assert mixed.capability == 8.6
    assert mixed.label == "2 x A"
    cpu = Hardware(kind="cpu", cores=4)
    assert (cpu.devices, cpu.capability) == (1, None)
    assert cpu.label == "CPU, 4 cores (unknown)"


@pytest.mark.parametrize(
    ("lengths", "longest"),
    [(Fixed(tokens=7), 7), (Uniform(low=1, high=9), 9), (Lognormal(median=5, sigma=1, high=50), 50)],
    ids=["fixed", "uniform", "lognormal"],
)
def test_longest_request(lengths: Any, longest: int) -> None:
    workload = Workload(name="w", input_tokens=lengths, output_tokens=Fixed(tokens=3),
                        arrivals=ClosedLoop(concurrency=1), requests=1)
    assert workload.longest == longest + 3
    assert Workload.model_validate_json(workload.model_dump_json()) == workload


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Uniform(low=5, high=4), "low must not be above high"),
        (lambda: Fixed(tokens=0), "greater than or equal to 1"),
        (lambda: ClosedLoop(concurrency=0), "greater than or equal to 1"),
        (lambda: OpenLoop(rate_per_s=0), "greater than 0"),
        (lambda: Budget(trials=0), "greater than or equal to 1"),
        (lambda: Budget(trials=1, verify_rounds=1), "greater than or equal to 2"),
    ],
    ids=["uniform", "fixed", "closed", "open", "trials", "rounds"],
)
def test_numbers_that_cannot_be(make: Any, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        make()


def test_space_size_is_the_product() -> None:
    space = SearchSpace(engine="vllm", settings=(
        SpaceSetting(flag="a", values=(None, 1, 2)), SpaceSetting(flag="b", values=(True, False))))
    assert space.size == 6
