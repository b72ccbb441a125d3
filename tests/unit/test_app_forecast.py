"""What the study is going to do, said before it does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes import plans
from tests.fakes.fake_adapter import FakeAdapter
from tests.fakes.studies import config, question
from tuner.app.forecast import guess_seconds, trial_seconds, work_plan
from tuner.app.words import ENGINE_DEFAULTS, settings_text, value_text
from tuner.domain.engine import EngineConfig, Setting
from tuner.domain.finding import Finding
from tuner.domain.trial import Failed, FailureKind, Infeasible, Measured, Outcome, Phase, Trial
from tuner.domain.workload import ClosedLoop, Fixed, OpenLoop, Workload
from tuner.engines import ENGINES
from tuner.rules import RULES

pytestmark = pytest.mark.unit

MEASURED = Measured(measurement=plans.measurement(100.0), startup=plans.StartupFacts(), start_s=1.0)
CRASHED = Failed(failure=FailureKind.CRASHED, reason="x", phase="start")
MACHINE = Failed(failure=FailureKind.MACHINE, reason="x", phase="start")
SPACE = {"max-num-seqs": (None, 1, 8), "block-size": (None, 16)}


@pytest.fixture(autouse=True)
def _fake_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def rule(config: EngineConfig, *_: Any) -> Any:
        if config.get("block-size") == 16:
            yield Finding(rule="blocks", severity="error", reason="16 is too small", fix="use 32")

    monkeypatch.setitem(ENGINES, "fake", FakeAdapter())
    monkeypatch.setitem(RULES, "fake", (rule,))


def trial(number: int, outcome: Outcome, seconds: float = 10.0) -> Trial:
    phases = (Phase(name="start", seconds=seconds / 2), Phase(name="warm-up and load", seconds=seconds / 2))
    return Trial(number=number, purpose="search", config=config(max_num_seqs=number), outcome=outcome, phases=phases)


def test_counts_the_space_and_what_cannot_work(tmp_path: Path) -> None:
    plan = work_plan(question(tmp_path, SPACE, trials=20, finalists=2, verify_rounds=3), ())
    assert (plan.size, plan.counted, plan.ruled_out) == (6, 6, 3)
    assert plan.by_rule == (("blocks", 3, "16 is too small"),)
    assert plan.starts == 3 + 3 * 3, "what can work, and three rounds of the reference and two finalists"
    assert plan.known == 0
    assert plan.seconds > 0


def test_the_budget_bounds_the_starts(tmp_path: Path) -> None:
    assert work_plan(question(tmp_path, SPACE, trials=2, finalists=1, verify_rounds=2), ()).starts == 2 + 4


def test_what_is_known_needs_no_start_and_faults_of_the_machine_are_not_known(tmp_path: Path) -> None:
    """UP-F26: the time is told before the start."""
    known = [trial(0, MEASURED, 8.0), trial(1, CRASHED, 99.0), trial(2, MACHINE), trial(3, Infeasible(rule="r", reason="no"))]
    plan = work_plan(question(tmp_path, SPACE, trials=3, finalists=1, verify_rounds=2), known)
    assert plan.known == 2
    assert plan.starts == 1 + 4
    assert plan.seconds == pytest.approx(plan.starts * 8.0), "measured trials say how long one takes"


def test_points_that_are_the_same_configuration_count_once(tmp_path: Path) -> None:
    resolved = question(tmp_path, {"max-num-seqs": (None, 8)})
    twice = resolved.space.dimensions[0].model_copy(update={"flag": "itl-ms", "needs": {"max-num-seqs": (8,)}})
    space = resolved.space.model_copy(update={"dimensions": (*resolved.space.dimensions, twice)})
    assert work_plan(type(resolved)(**{**vars(resolved), "space": space}), ()).size == 3


def test_a_large_space_is_sampled(tmp_path: Path) -> None:
    large = {"max-num-seqs": (None, *range(1, 400)), "block-size": (None, 16, 32, 64), "itl-ms": (None, 1.0, 2.0)}
    plan = work_plan(question(tmp_path, large), ())
    assert plan.size == 400 * 4 * 3
    assert plan.counted < plan.size
    assert 0.15 < plan.ruled_out / plan.counted < 0.35


def test_duration_of_a_trial() -> None:
    assert trial_seconds([]) is None
    assert trial_seconds([trial(0, CRASHED)]) is None
    assert trial_seconds([trial(0, MEASURED, 10.0), trial(1, MEASURED, 20.0), trial(2, CRASHED, 999.0)]) == 15.0


@pytest.mark.parametrize(
    ("arrivals", "requests", "load_s"),
    [(ClosedLoop(concurrency=8), 64, 8 * 100 / 20), (OpenLoop(rate_per_s=4), 80, 20.0)],
    ids=["closed", "open"],
)
def test_a_first_guess_counts_the_load_and_the_start(arrivals: Any, requests: int, load_s: float) -> None:
    workload = Workload(name="w", input_tokens=Fixed(tokens=8), output_tokens=Fixed(tokens=100), arrivals=arrivals,
                        requests=requests)
    spec = plans.study(workload=workload)
    eager, compiled = (guess_seconds(spec, plans.config(*pairs)) for pairs in ((("enforce-eager", True),), ()))
    assert eager == pytest.approx(load_s + 60, abs=1)
    assert compiled > eager
    assert guess_seconds(plans.study(workload=workload, model=plans.hub_model()), plans.config()) > compiled + 100


def test_settings_in_words() -> None:
    pins = (Setting(flag="eager", value=True),)
    assert settings_text(config(), pins) == ENGINE_DEFAULTS
    assert settings_text(config(eager=True), pins) == ENGINE_DEFAULTS
    assert settings_text(config(eager=True, max_num_seqs=8), pins) == "max-num-seqs=8"
    assert settings_text(config(eager=False), pins) == "eager=false"
    assert [value_text(value) for value in (None, True, 0.5, "x")] == ["engine default", "true", "0.5", "x"]
