"""What tuners got wrong in public, held against whole studies with a fake engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.fakes.fake_adapter import FakeAdapter
from tests.fakes.fake_launcher import Death, FakeLauncher
from tests.fakes.studies import Dimensions, Onlooker, light_collector, question, setting_of
from tests.fakes.truth_server import Behaviour
from tuner.app import search
from tuner.app.optimize import optimize
from tuner.domain.engine import LaunchSpec
from tuner.domain.study import Budget
from tuner.engines import ENGINES
from tuner.errors import NothingMeasuredError
from tuner.runtime import ready

pytestmark = pytest.mark.contract

SPACE: Dimensions = {"max-num-seqs": (None, 1, 2, 3, 4, 5, 6, 7, 8), "kv-cache-dtype": (None, "fp8")}
BROKEN = "ERROR 01-01 00:00:00 [a.py:1] RuntimeError: no such model"


@pytest.fixture(autouse=True, scope="module")
def _light() -> Iterator[None]:
    with light_collector():
        yield


@pytest.fixture(autouse=True)
def _fake_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "fake", FakeAdapter())
    monkeypatch.setattr(ready, "POLL_S", 0.02)
    monkeypatch.setattr(search, "suspect", lambda *_: None)  # a test machine is always disturbed


def fast(_: LaunchSpec) -> Behaviour:
    return Behaviour(ttft_ms=2.0, itl_ms=1.0)


def test_every_launch_fails_and_three_are_enough(tmp_path: Path) -> None:
    """UP-F02, UP-F23: 90 retries of a model that is not there, and 12 of 12 experiments without a result."""
    launcher, seen = FakeLauncher(fast, lambda _: Death(1, BROKEN)), Onlooker()
    with pytest.raises(NothingMeasuredError) as caught:
        optimize(question(tmp_path, SPACE, trials=12), launcher=launcher, tell=seen)
    assert len(launcher.started) == 3
    assert any("no such model" in note for note in seen.notes)
    assert "no such model" in (caught.value.hint or "")
    assert len(list(tmp_path.rglob("engine.log"))) == 3, "what the engine said is kept"


def test_the_budget_counts_failures_and_earlier_runs(tmp_path: Path) -> None:
    """UP-F09: failed trials were put in the queue again, and n_trials was exceeded on resume."""
    def odd_ones_fail(spec: LaunchSpec) -> Death | None:
        return Death(1, f"{BROKEN} {setting_of(spec, 'max-num-seqs')}") if setting_of(spec, "max-num-seqs") else None

    for trials, more in ((3, 3), (5, 2), (5, 0)):
        launcher, seen = FakeLauncher(fast, odd_ones_fail), Onlooker()
        plan, _ = optimize(question(tmp_path, SPACE, trials=trials), launcher=launcher, tell=seen)
        assert len(plan.trials) == trials
        assert len(seen.searched) == more, "what is known is not launched again"


def test_so_many_failures_and_no_more(tmp_path: Path) -> None:
    """UP-F09: a hard limit on failed attempts, whatever their causes."""
    def all_but_the_first(spec: LaunchSpec) -> Death | None:
        text = " ".join(spec.arguments)
        return Death(1, f"{BROKEN} for {text}") if setting_of(spec, "max-num-seqs") or "fp8" in text else None

    launcher = FakeLauncher(fast, all_but_the_first)
    budget = Budget(trials=12, finalists=1, verify_rounds=2, start_timeout_s=30, max_failures=2)
    resolved = question(tmp_path, SPACE, budget=budget)
    seen = Onlooker()
    plan, _ = optimize(resolved, launcher=launcher, tell=seen)
    assert [row.outcome for row in plan.trials].count("failed") == 2
    assert any("--max-failures 2" in note for note in seen.notes)


@pytest.mark.parametrize(("objective", "direction"), [("output_tokens_per_s", "maximize"), ("p95_ttft", "minimize")])
def test_options_reach_the_sampler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objective: Any, direction: str
) -> None:
    """A seed that reaches the report and not the sampler, a direction that is always one."""
    asked: list[dict[str, Any]] = []
    original = search.propose

    def propose(*words: Any, **named: Any) -> Any:
        asked.append(named)
        return original(*words, **named)

    monkeypatch.setattr(search, "propose", propose)
    resolved = question(tmp_path, SPACE, trials=3, seed=41, objective=objective)
    optimize(resolved, launcher=FakeLauncher(fast), tell=Onlooker())
    assert asked
    assert {one["seed"] for one in asked} == {41}
    assert {one["direction"] for one in asked} == {direction}
    assert {one["kind"] for one in asked} == {resolved.sampler}


def test_a_seed_decides_what_is_tried(tmp_path: Path) -> None:
    keys = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        resolved = question(tmp_path, SPACE, trials=4, seed=seed, name=name)
        plan, _ = optimize(resolved, launcher=FakeLauncher(fast), tell=Onlooker())
        keys.append([row.key for row in plan.trials][:2])
    assert keys[0] == keys[1]
    assert keys[0] != keys[2]
def test_a_study_keeps_its_question_for_those_who_look(tmp_path: Path) -> None:
    resolved = question(tmp_path, SPACE, trials=2)
    optimize(resolved, launcher=FakeLauncher(fast), tell=Onlooker())
    (journal,) = tmp_path.rglob("study.journal")
    backend = optuna.storages.journal.JournalFileBackend(str(journal))
    study = optuna.load_study(study_name="s", storage=optuna.storages.JournalStorage(backend))
    assert study.user_attrs["question"] == resolved.spec.question
    assert type(resolved.spec).model_validate_json(study.user_attrs["spec"]) == resolved.spec
