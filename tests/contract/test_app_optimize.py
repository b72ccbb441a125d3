"""The whole of `optimize`, from the question to the plan, with a fake engine: faults, resumption, and no number from them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest
from optuna.trial import TrialState

from tests.fakes.fake_adapter import FakeAdapter
from tests.fakes.fake_launcher import Death, FakeLauncher
from tests.fakes.studies import WORKLOAD, Dimensions, Onlooker, config, light_collector, question, setting_of
from tests.fakes.truth_server import Behaviour
from tuner.app import load, search
from tuner.app.events import Event, PhaseEntered, TrialStarted
from tuner.app.optimize import optimize
from tuner.app.resolve import Resolved
from tuner.domain.engine import EngineConfig, LaunchSpec
from tuner.domain.finding import Finding
from tuner.domain.plan import Plan
from tuner.domain.slo import parse_slo
from tuner.domain.trial import Dropped, Failed, FailureKind, Measured
from tuner.engines import ENGINES
from tuner.errors import HardwareError, InterruptedStudyError, NothingMeasuredError
from tuner.output.bundle import load_plan
from tuner.rules import RULES
from tuner.runtime import ready
from tuner.runtime.process import ProcessLauncher

pytestmark = pytest.mark.contract

SPACE: Dimensions = {"max-num-seqs": (None, 1, 8), "kv-cache-dtype": (None, "fp8"), "block-size": (None, 16)}
SMALL: Dimensions = {"max-num-seqs": (None, 1, 8)}
OOM_LOG = "ERROR 01-01 00:00:00 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"


@pytest.fixture(autouse=True, scope="module")
def _light() -> Iterator[None]:
    with light_collector():
        yield


@pytest.fixture(autouse=True)
def _fake_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "fake", FakeAdapter())
    monkeypatch.setattr(ready, "POLL_S", 0.02)
    monkeypatch.setattr(search, "suspect", lambda *_: None)  # a test machine is always disturbed


def study_of(resolved: Resolved, folder: Path) -> optuna.Study:
    backend = optuna.storages.journal.JournalFileBackend(str(folder / "study.journal"))
    return optuna.load_study(study_name=resolved.spec.name, storage=optuna.storages.JournalStorage(backend))


def folder_of(out: Path) -> Path:
    (journal,) = out.rglob("study.journal")
    return journal.parent


def fast(spec: LaunchSpec) -> Behaviour:
    return Behaviour(ttft_ms=2.0, itl_ms=1.0)


def crash_when(condition: Callable[[LaunchSpec], bool], log: str = OOM_LOG) -> Callable[[LaunchSpec], Death | None]:
    return lambda spec: Death(1, log) if condition(spec) else None


# --- with real processes


@pytest.mark.timeout(180)
def test_a_study_with_an_oom_and_a_refusal_ends_in_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PT-09: a rival loads a server that did not start; here a failed start has no request at all."""
    rules = "kv-cache-dtype=fp8 oom; block-size=16 refuse:No common block size for 16; max-num-seqs=1 itl*4"
    monkeypatch.setitem(ENGINES, "fake", FakeAdapter(rules))
    children = set(psutil.Process().children(recursive=True))
    resolved = question(tmp_path, SPACE, trials=6)
    seen = Onlooker()
    plan, folder = optimize(resolved, launcher=ProcessLauncher(), tell=seen)

    assert plan.measured
    assert plan.complete
    rows = {row.number: row for row in plan.trials}
    assert sorted(rows) == list(range(6))
    assert rows[0].purpose == "default"
    assert rows[0].outcome == "measured"
    assert len({row.key for row in plan.trials}) == 6, "none twice"
    for row in plan.trials:
        broken = {"kv-cache-dtype": FailureKind.OUT_OF_MEMORY, "block-size": FailureKind.UNSUPPORTED}
        kinds = {broken[flag] for flag in row.settings if flag in broken}
        assert (row.outcome == "failed") == bool(kinds)
        assert row.failure in (kinds or {None})
        assert (row.score is None) == (row.outcome != "measured")
    assert {row.outcome for row in plan.trials} == {"measured", "failed"}
    assert any("CUDA out of memory" in row.reason for row in plan.trials) or any(
        "No common block size" in row.reason for row in plan.trials)

    assert [arm.label for arm in plan.arms] == ["default", "best"][: len(plan.arms)]
    assert all(len(arm.rounds) == 2 and not arm.failures for arm in plan.arms)
    assert plan.verdict.kind in ("winner", "no_clear_winner", "keep_baseline")
    assert not {"kv-cache-dtype", "block-size"} & set(plan.config.values)
    assert plan.sizing.start_s > 0

    assert load_plan(folder).plan_id == plan.plan_id
    assert (folder / "deploy" / "serve.sh").exists()
    for number, row in rows.items():
        evidence = folder / "trials" / f"{number:04d}"
        assert {"launch.json", "outcome.json", "engine.log"} <= {path.name for path in evidence.iterdir()}
        assert (evidence / "requests.jsonl.gz").exists() == (row.outcome == "measured")
        phases = json.loads((evidence / "outcome.json").read_text())["phases"]
        assert {"prepare", "launch", "start", "engine stops", "settle"} <= {phase["name"] for phase in phases}
    assert set(psutil.Process().children(recursive=True)) <= children, "a process is left"
    assert list(folder.rglob("handle.json")) == [], "a handle of a server that is gone is left"
    states = Counter(trial.state for trial in study_of(resolved, folder).trials)
    assert states[TrialState.RUNNING] == states[TrialState.FAIL] == 0


# --- the search


def run(resolved: Resolved, launcher: FakeLauncher, tell: Onlooker | None = None) -> tuple[Plan, Path]:
    return optimize(resolved, launcher=launcher, tell=tell or Onlooker())


def test_a_machine_fault_is_tried_again_and_not_counted(tmp_path: Path) -> None:
    launcher = FakeLauncher(fast)
    starts: list[LaunchSpec] = []

    def break_second(event: Event) -> None:
        if isinstance(event, PhaseEntered) and event.phase == "measuring" and len(launcher.started) == 2:
            launcher.servers[-1].broken = "the watcher was killed"
            starts.append(launcher.started[-1])

    seen = Onlooker(break_second)
    resolved = question(tmp_path, SMALL, trials=3)
    plan, folder = run(resolved, launcher, seen)
    assert len(seen.searched) == 4
    assert launcher.started[1] == launcher.started[2], "the same configuration again"
    outcomes = [row.outcome for row in plan.trials]
    assert outcomes == ["measured", "failed", "measured", "measured"]
    assert plan.trials[1].failure is FailureKind.MACHINE
    assert "watcher was killed" in plan.trials[1].reason
    assert [trial.state for trial in study_of(resolved, folder).trials].count(TrialState.FAIL) == 1


def test_a_machine_that_stays_broken_ends_the_study_and_blames_no_setting(tmp_path: Path) -> None:
    machine = crash_when(lambda _: True, "ERROR 01-01 00:00:00 [a.py:1] OSError: [Errno 28] No space left on device")
    launcher = FakeLauncher(fast, machine)
    with pytest.raises(HardwareError, match=r"3 times in a row.*No space left") as caught:
        run(question(tmp_path, SMALL), launcher)
    assert caught.value.hint
    assert len(launcher.started) == 3
    repaired = FakeLauncher(fast)
    plan, _ = run(question(tmp_path, SMALL, trials=2), repaired)
    assert repaired.started[0] == launcher.started[0], "the default is still to be measured"
    assert [row.outcome for row in plan.trials] == ["failed"] * 3 + ["measured"] * 2
    assert plan.trials[3].purpose == "default"


def test_when_nothing_works_it_stops_soon_and_says_why(tmp_path: Path) -> None:
    """UP-F02, UP-F09, UP-F23, PT-07: rivals go on through thousands of launches."""
    launcher = FakeLauncher(fast, crash_when(lambda _: True, "ERROR 01-01 00:00:00 [a.py:1] RuntimeError: no such model"))
    seen = Onlooker()
    resolved = question(tmp_path, SPACE, trials=12)
    with pytest.raises(NothingMeasuredError) as caught:
        run(resolved, launcher, seen)
    assert len(launcher.started) == 3
    assert "no such model" in (caught.value.hint or "")
    assert "engine.log" in (caught.value.hint or "")
    assert any("3 launches all failed for the same cause" in note for note in seen.notes)
    assert not list(tmp_path.rglob("plan.json"))
    again = FakeLauncher(fast)
    with pytest.raises(NothingMeasuredError):
        run(resolved, again)
    assert again.started == []


def test_different_failures_end_with_the_trials(tmp_path: Path) -> None:
    """UP-F09: never more launches than asked for."""
    count = iter(range(99))
    launcher = FakeLauncher(
        fast, lambda _: Death(1, f"ERROR 01-01 00:00:00 [a.py:1] RuntimeError: reason {next(count)}"))
    with pytest.raises(NothingMeasuredError):
        run(question(tmp_path, SPACE, trials=5), launcher)
    assert len(launcher.started) == 5


def test_the_space_may_end_before_the_budget(tmp_path: Path) -> None:
    seen = Onlooker()
    plan, _ = run(question(tmp_path, {"max-num-seqs": (None, 8)}, trials=9), FakeLauncher(fast), seen)
    assert len(plan.trials) == 2
    assert any("every configuration of the space has been tried" in note for note in seen.notes)


def test_one_failed_trial_costs_no_other(tmp_path: Path) -> None:
    """UP-F31: a rival's sweep aborts on one failing combination."""
    launcher = FakeLauncher(fast, crash_when(lambda spec: setting_of(spec, "max-num-seqs") == "1"))
    plan, _ = run(question(tmp_path, {"max-num-seqs": (None, 1, 2, 4, 8)}, trials=5), launcher)
    assert Counter(row.outcome for row in plan.trials) == {"measured": 4, "failed": 1}


def test_a_server_that_dies_under_load_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """UP-F01: a start is not a proof."""
    monkeypatch.setitem(ENGINES, "fake", FakeAdapter("max-num-seqs=8 die-after-requests:6"))
    resolved = question(tmp_path, {"max-num-seqs": (None, 8)}, trials=2)
    plan, _ = optimize(resolved, launcher=ProcessLauncher(), tell=Onlooker())
    (failed,) = [row for row in plan.trials if row.outcome == "failed"]
    assert failed.settings == {"max-num-seqs": "8"}
    assert failed.failure is FailureKind.CRASHED
    assert "died under load" in failed.reason
    assert failed.score is None
    assert "max-num-seqs" not in plan.config.values


def test_answers_that_fail_are_no_measurement(tmp_path: Path) -> None:
    """UP-F05: requests that all fail at once look fast."""
    def behave(spec: LaunchSpec) -> Behaviour:
        broken = setting_of(spec, "max-num-seqs") == "8"
        return Behaviour(ttft_ms=2.0, itl_ms=1.0, fault="http_503" if broken else None, fault_every=2)

    plan, _ = run(question(tmp_path, {"max-num-seqs": (None, 8)}, trials=2), FakeLauncher(behave))
    (failed,) = [row for row in plan.trials if row.outcome == "failed"]
    assert failed.failure in (FailureKind.LOAD_BROKEN, FailureKind.NOT_READY)
    assert "503" in failed.reason


def test_what_rules_refuse_is_noted_and_never_launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rule(config: EngineConfig, *_: Any) -> Any:
        if config.get("block-size") == 16:
            yield Finding(rule="blocks", severity="error", reason="16 is too small", fix="use 32")

    monkeypatch.setitem(RULES, "fake", (rule,))
    launcher = FakeLauncher(fast)
    plan, _ = run(question(tmp_path, {"max-num-seqs": (None, 8), "block-size": (None, 16)}, trials=4), launcher)
    assert Counter(row.outcome for row in plan.trials) == {"measured": 2, "infeasible": 2}
    assert all(setting_of(spec, "block-size") is None for spec in launcher.started)
    assert all(row.reason == "16 is too small" for row in plan.trials if row.outcome == "infeasible")


def test_a_baseline_is_trial_one_and_the_bar(tmp_path: Path) -> None:
    baseline = config(max_num_seqs=3)
    launcher = FakeLauncher(fast)
    plan, _ = run(question(tmp_path, SMALL, trials=3, baseline=baseline), launcher)
    assert [row.purpose for row in plan.trials] == ["default", "baseline", "search"]
    assert plan.arms[0].label == "baseline"
    assert plan.arms[0].config.key == baseline.key
    assert plan.verdict.reference == "baseline"


def test_a_baseline_that_is_the_default_runs_once(tmp_path: Path) -> None:
    plan, _ = run(question(tmp_path, SMALL, trials=2, baseline=config()), FakeLauncher(fast))
    assert [row.purpose for row in plan.trials] == ["default", "search"]
    assert plan.arms[0].label in ("baseline", "default")
    assert plan.arms[0].trial == 0


def test_prompts_are_fresh_in_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """UP-F04, PT-05: the same prompts again meet a warm prefix cache and look faster."""
    salts: list[str] = []
    original = load.requests_of
    monkeypatch.setattr(load, "requests_of", lambda *a, **k: salts.append(k["salt"]) or original(*a, **k))
    run(question(tmp_path, SMALL, trials=2), FakeLauncher(fast))
    assert len(salts) == 2 + 2 * 2 + 2 * 3, "trials, rounds, and the load curve of each arm"
    assert len(set(salts)) == len(salts)


def test_time_that_is_kept_for_the_verification(tmp_path: Path) -> None:
    seen = Onlooker()
    plan, _ = run(question(tmp_path, SPACE, trials=12, seconds=0.01), FakeLauncher(fast), seen)
    assert [row.purpose for row in plan.trials] == ["default"]
    assert any("kept for the verification" in note for note in seen.notes)


# --- the verdict


def quick_with_eight(spec: LaunchSpec) -> Behaviour:
    return Behaviour(ttft_ms=2.0, itl_ms=2.0 if setting_of(spec, "max-num-seqs") == "8" else 60.0)


def test_a_clear_winner_is_deployed(tmp_path: Path) -> None:
    seen = Onlooker()
    short = WORKLOAD.model_copy(update={"requests": 8})
    resolved = question(tmp_path, SMALL, trials=3, finalists=2, verify_rounds=3, workload=short)
    plan, _ = run(resolved, FakeLauncher(quick_with_eight), seen)
    assert plan.verdict.kind == "winner"
    assert plan.config.values == {"max-num-seqs": 8}
    best = next(arm for arm in plan.arms if arm.label == "best")
    assert best.ratio is not None
    assert best.ratio.low > 1
    assert [(change.flag, change.before, change.after, change.why) for change in plan.changes] == [
        ("max-num-seqs", "engine default", "8", "because")]
    labels = [event.label.split(",")[0].removeprefix("verify ") for event in seen.starts if "round" in event.label]
    assert labels == ["default", "best", "runner-up", "runner-up", "best", "default", "default", "best", "runner-up"]


def test_a_crash_never_wins_when_less_is_better(tmp_path: Path) -> None:
    """PT-01, PT-02: zero milliseconds or minus infinity would be the best of all."""
    launcher = FakeLauncher(fast, crash_when(lambda spec: setting_of(spec, "max-num-seqs") == "1"))
    resolved = question(tmp_path, SMALL, trials=3, objective="p95_ttft")
    plan, folder = run(resolved, launcher)
    assert plan.config.get("max-num-seqs") != 1
    assert "1" not in [arm.config.get("max-num-seqs") for arm in plan.arms]
    study = study_of(resolved, folder)
    assert study.best_value > 0
    assert study.best_trial.state is TrialState.COMPLETE


def test_nothing_that_keeps_the_slo(tmp_path: Path) -> None:
    resolved = question(tmp_path, SMALL, trials=2, slo=parse_slo("p95 ttft<=0.001ms"))
    seen = Onlooker()
    plan, _ = run(resolved, FakeLauncher(fast), seen)
    assert plan.verdict.kind == "nothing_meets_slo"
    assert "p95 ttft<=0.001ms" in plan.verdict.text
    assert not any(event.best for event in seen.ends)
    assert all(row.meets_slo is False for row in plan.trials)


def test_goodput_of_nothing_is_no_reason_to_stop(tmp_path: Path) -> None:
    resolved = question(tmp_path, SMALL, trials=2, slo=parse_slo("p95 ttft<=0.001ms"), objective="goodput_per_s")
    plan, _ = run(resolved, FakeLauncher(fast))
    assert plan.verdict.kind == "nothing_meets_slo"
    assert all(arm.score.value == 0 for arm in plan.arms)


def test_an_arm_that_dies_in_its_verification_is_out(tmp_path: Path) -> None:
    starts: Counter[str | None] = Counter()

    def die(spec: LaunchSpec) -> Death | None:
        value = setting_of(spec, "max-num-seqs")
        starts[value] += 1
        return Death(1, OOM_LOG) if value == "8" and starts[value] > 1 else None

    plan, _ = run(question(tmp_path, SMALL, trials=3), FakeLauncher(quick_with_eight, die))
    assert plan.config.get("max-num-seqs") != 8
    assert starts["8"] == 2, "not started again after it failed"
    assert plan.verdict.kind in ("keep_baseline", "no_clear_winner", "winner")
    assert any("failed in verification" in text and "CUDA out of memory" in text for text in plan.warnings)


def test_when_every_arm_dies_nothing_is_called_verified(tmp_path: Path) -> None:
    starts: Counter[str | None] = Counter()

    def die(spec: LaunchSpec) -> Death | None:
        value = setting_of(spec, "max-num-seqs")
        starts[value] += 1
        return Death(1, OOM_LOG) if starts[value] > 1 else None

    plan, _ = run(question(tmp_path, SMALL, trials=2), FakeLauncher(fast, die))
    assert plan.verdict.kind == "not_verified"
    assert plan.arms == ()
    assert plan.measured


def test_without_a_reference_the_verdict_says_so(tmp_path: Path) -> None:
    launcher = FakeLauncher(fast, crash_when(lambda spec: setting_of(spec, "max-num-seqs") is None))
    plan, _ = run(question(tmp_path, SMALL, trials=2), launcher)
    assert plan.verdict.reference == "none"
    assert "no reference" in plan.verdict.text
    assert plan.trials[0].outcome == "failed"


# --- going on


def test_more_trials_later_continue_the_same_study(tmp_path: Path) -> None:
    first, second, third = FakeLauncher(fast), FakeLauncher(fast), FakeLauncher(fast)
    run(question(tmp_path, SMALL, trials=1), first)
    assert len(first.started) == 1 + 2
    plan, folder = run(question(tmp_path, SMALL, trials=3), second)
    assert [row.number for row in plan.trials] == [0, 1, 2]
    rounds = {path.parent.name for path in folder.glob("verify/*/outcome.json")}
    assert len(second.started) == 2 + 2, "two new trials, two rounds of the newcomer; the default's rounds are known"
    assert len(rounds) == 4
    again, _ = run(question(tmp_path, SMALL, trials=3), third)
    assert third.started == []
    assert again.plan_id == plan.plan_id
    assert again.model_dump_json() == plan.model_dump_json()


class Died(BaseException):
    """The end of the process."""


def at(phase: str, start: int, error: BaseException) -> Callable[[Event], None]:
    """Raise when the given start reaches the phase."""
    seen: list[Event] = []

    def when(event: Event) -> None:
        if isinstance(event, TrialStarted):
            seen.append(event)
        if isinstance(event, PhaseEntered) and event.phase == phase and len(seen) == start:
            raise error

    return when


@pytest.mark.parametrize("phase", ["starting", "measuring", "stopping"])
def test_a_trial_that_was_cut_off_is_done_again_and_nothing_else(tmp_path: Path, phase: str) -> None:
    cut, resumed = FakeLauncher(fast), FakeLauncher(fast)
    with pytest.raises(Died):
        run(question(tmp_path, SMALL, trials=2), cut, Onlooker(at(phase, 2, Died())))
    seen = Onlooker()
    plan, folder = run(question(tmp_path, SMALL, trials=2), resumed, seen)
    assert "trial 1 was cut off; it is done again" in seen.notes
    assert [(row.number, row.outcome) for row in plan.trials] == [(0, "measured"), (1, "failed"), (2, "measured")]
    assert plan.trials[1].failure is FailureKind.MACHINE
    assert plan.trials[1].key == plan.trials[2].key
    assert len(seen.searched) == 1
    assert resumed.started[0] == cut.started[1]
    assert folder == folder_of(tmp_path)


def test_death_in_the_verification_keeps_its_finished_rounds(tmp_path: Path) -> None:
    cut, resumed = FakeLauncher(fast), FakeLauncher(fast)
    with pytest.raises(Died):
        run(question(tmp_path, SMALL, trials=2), cut, Onlooker(at("measuring", 4, Died())))
    plan, _ = run(question(tmp_path, SMALL, trials=2), resumed)
    assert len(resumed.started) == 3, "one of four rounds was finished"
    assert all(len(arm.rounds) == 2 for arm in plan.arms)


@pytest.mark.parametrize("phase", ["starting", "measuring"])
def test_ctrl_c_takes_the_server_down_and_says_how_to_go_on(tmp_path: Path, phase: str) -> None:
    launcher = FakeLauncher(fast)
    with pytest.raises(InterruptedStudyError) as caught:
        run(question(tmp_path, SMALL, trials=3), launcher, Onlooker(at(phase, 2, KeyboardInterrupt())))
    assert caught.value.exit_code == 130
    assert "goes on from here" in (caught.value.hint or "")
    assert launcher.servers[-1].teardown is not None
    resumed = FakeLauncher(fast)
    plan, _ = run(question(tmp_path, SMALL, trials=3), resumed)
    assert sum(row.outcome == "measured" for row in plan.trials) == 3
    assert resumed.started[0] == launcher.started[-1]


def test_a_stored_failure_is_read_back_as_one(tmp_path: Path) -> None:
    launcher = FakeLauncher(fast, crash_when(lambda spec: setting_of(spec, "max-num-seqs") == "8"))
    plan, folder = run(question(tmp_path, {"max-num-seqs": (None, 8)}, trials=2), launcher)
    outcome = json.loads((folder / "trials" / "0001" / "outcome.json").read_text())["outcome"]
    failed = Failed.model_validate(outcome)
    assert failed.failure is FailureKind.OUT_OF_MEMORY
    assert failed.exit_code == 1
    assert "CUDA out of memory" in failed.log_tail
    assert plan.trials[1].failure is failed.failure
    measured = json.loads((folder / "trials" / "0000" / "outcome.json").read_text())["outcome"]
    assert Measured.model_validate(measured).measurement.completed == 12


# --- races, levels, budgets


SLO = parse_slo("p95 ttft<=40ms")


def dropping(spec: LaunchSpec) -> Behaviour:
    return Behaviour(ttft_ms=200.0 if setting_of(spec, "max-num-seqs") == "1" else 2.0, itl_ms=1.0)


def test_a_challenger_that_cannot_keep_the_slo_is_dropped_early(tmp_path: Path) -> None:
    """Live abort: the SLO is lost after a few requests, and the rest of them is never sent."""
    long = WORKLOAD.model_copy(update={"requests": 60})
    launcher = FakeLauncher(dropping)
    resolved = question(tmp_path, SMALL, trials=3, slo=SLO, workload=long)
    plan, folder = run(resolved, launcher)
    (row,) = [row for row in plan.trials if row.outcome == "dropped"]
    assert row.settings == {"max-num-seqs": "1"}
    assert "p95 ttft<=40ms is out of reach" in row.reason
    assert row.score is None
    stored = json.loads((folder / "trials" / f"{row.number:04d}" / "outcome.json").read_text())["outcome"]
    dropped = Dropped.model_validate(stored)
    assert dropped.rule == "slo"
    assert dropped.measurement is not None
    assert dropped.measurement.completed < 30, "the requests that were left were not sent"
    states = {trial.number: trial.state for trial in study_of(resolved, folder).trials}
    assert states[row.number] is TrialState.PRUNED
    assert plan.config.get("max-num-seqs") != 1


def test_the_reference_is_measured_however_bad_it_is(tmp_path: Path) -> None:
    slow = FakeLauncher(lambda _: Behaviour(ttft_ms=100.0, itl_ms=1.0))
    plan, _ = run(question(tmp_path, SMALL, trials=2, slo=SLO), slow)
    assert [row.outcome for row in plan.trials] == ["measured", "measured"], "nobody keeps the SLO: all say how far off"


def crowded(spec: LaunchSpec) -> Behaviour:
    """A server that turns away more requests than it has slots: its knee lies there."""
    slots = int(setting_of(spec, "max-num-seqs") or 4)
    return Behaviour(ttft_ms=5.0, itl_ms=4.0, max_running=slots)


@pytest.mark.timeout(180)
def test_the_most_clients_within_the_slo_are_found_on_one_start(tmp_path: Path) -> None:
    launcher = FakeLauncher(crowded)
    short = WORKLOAD.model_copy(update={"requests": 24})
    resolved = question(tmp_path, {"max-num-seqs": (None, 2, 9)}, trials=3, objective="max_concurrency", slo=SLO,
                        workload=short, verify_rounds=2)
    plan, folder = run(resolved, launcher)
    assert len(launcher.started) == 3 + 2 * len(plan.arms), "one start a configuration, however many levels"
    rows = {row.settings.get("max-num-seqs", "default"): row for row in plan.trials}
    assert rows["default"].score is not None
    assert rows["default"].score.value == pytest.approx(4, abs=2)
    assert rows["9"].score is not None
    assert rows["9"].score.value == pytest.approx(9, abs=3)
    outcome = json.loads((folder / "trials" / f"{rows['9'].number:04d}" / "outcome.json").read_text())["outcome"]
    levels = Measured.model_validate(outcome).levels
    assert len(levels) > 2
    assert {level.meets_slo for level in levels} == {True, False}
    assert plan.config.get("max-num-seqs") == 9
    assert plan.sizing.knee_in_flight == pytest.approx(9, abs=4)
    assert rows["2"].outcome == "dropped"
    assert "the incumbent holds" in rows["2"].reason


def test_the_last_round_sweeps_the_levels_of_a_load_curve(tmp_path: Path) -> None:
    plan, _ = run(question(tmp_path, SMALL, trials=1), FakeLauncher(fast))
    (arm,) = plan.arms
    assert [level.clients for level in arm.levels] == [1, 2, 4, 8]
    assert all(level.output_tokens_per_s.value > 0 for level in arm.levels)


def test_failures_end_a_search_when_so_many_are_too_many(tmp_path: Path) -> None:
    count = iter(range(99))
    launcher = FakeLauncher(
        fast,
        lambda spec: Death(1, f"ERROR 01-01 00:00:00 [a.py:1] RuntimeError: reason {next(count)}")
        if setting_of(spec, "max-num-seqs") else None,
    )
    resolved = question(tmp_path, {"max-num-seqs": (None, 1, 2, 4, 8)}, trials=9)
    budget = resolved.spec.budget.model_copy(update={"max_failures": 2})
    spec = resolved.spec.model_copy(update={"budget": budget})
    seen = Onlooker()
    plan, _ = run(replace(resolved, spec=spec), launcher, seen)
    assert Counter(row.outcome for row in plan.trials) == {"measured": 1, "failed": 2}
    assert any("--max-failures 2" in note and "reason 1" in note for note in seen.notes)


def test_device_hours_are_kept(tmp_path: Path) -> None:
    resolved = question(tmp_path, SPACE, trials=12)
    budget = resolved.spec.budget.model_copy(update={"device_hours": 1e-6})
    seen = Onlooker()
    plan, _ = run(replace(resolved, spec=resolved.spec.model_copy(update={"budget": budget})), FakeLauncher(fast), seen)
    assert [row.purpose for row in plan.trials] == ["default"]
    assert any("device hours" in note for note in seen.notes)


def test_a_disturbed_measurement_is_done_again_and_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "suspect", lambda *_: "other programs used 60% of the CPUs during the run")
    launcher = FakeLauncher(fast)
    plan, _ = run(question(tmp_path, {"max-num-seqs": (None, 1, 2, 4, 8)}, trials=5), launcher)
    outcomes = [row.outcome for row in plan.trials]
    assert outcomes == ["failed", "measured", "failed", "measured", "measured", "measured", "measured"]
    assert "measured again" in plan.trials[0].reason
    assert plan.trials[0].failure is FailureKind.MACHINE


def test_a_busy_machine_can_be_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "suspect", lambda *_: "other programs used 60% of the CPUs during the run")
    resolved = question(tmp_path, SMALL, trials=2)
    budget = resolved.spec.budget.model_copy(update={"accept_busy": True})
    plan, _ = run(replace(resolved, spec=resolved.spec.model_copy(update={"budget": budget})), FakeLauncher(fast))
    assert {row.outcome for row in plan.trials} == {"measured"}


def test_several_objectives_keep_a_front(tmp_path: Path) -> None:
    resolved = question(tmp_path, SMALL, trials=3, also=("p95_ttft",))
    plan, _ = run(resolved, FakeLauncher(quick_with_eight))
    assert all(set(row.values) == {"output_tokens_per_s", "p95_ttft"} for row in plan.trials)
    assert any(row.on_front for row in plan.trials)
    best = max(plan.trials, key=lambda row: row.score.value if row.score else 0.0)
    assert best.on_front


def test_recipes_come_before_the_sampler(tmp_path: Path) -> None:
    resolved = replace(question(tmp_path, SPACE, trials=3), recipes=(config(block_size=16), config(kv_cache_dtype="fp8")))
    plan, _ = run(resolved, FakeLauncher(fast))
    assert [row.purpose for row in plan.trials] == ["default", "recipe", "recipe"]


def test_the_winner_is_soaked_and_its_context_filled(tmp_path: Path) -> None:
    resolved = question(tmp_path, SMALL, trials=2)
    spec = resolved.spec.model_copy(update={
        "budget": resolved.spec.budget.model_copy(update={"soak_s": 1.5}),
        "model": resolved.spec.model.model_copy(update={"max_context": 256}),
    })
    launcher = FakeLauncher(fast)
    plan, folder = run(replace(resolved, spec=spec), launcher)
    assert plan.soak is not None
    assert 1.0 < plan.soak.seconds < 10
    assert plan.soak.requests > 50
    assert (plan.soak.failed, plan.soak.fill, plan.soak.fill_tokens) == (0, "", 256)
    assert not [problem for problem in plan.soak.problems if "failed" in problem]
    assert (folder / "soak" / "requests.jsonl.gz").exists()


def test_a_winner_that_dies_in_its_soak_is_told_of(tmp_path: Path) -> None:
    resolved = question(tmp_path, {"max-num-seqs": (None,)}, trials=1)
    spec = resolved.spec.model_copy(update={"budget": resolved.spec.budget.model_copy(update={"soak_s": 20.0})})

    def kill(event: Event) -> None:
        if isinstance(event, PhaseEntered) and event.phase == "soaking":
            launcher.servers[-1].kill(1, OOM_LOG)

    launcher = FakeLauncher(fast)
    plan, _ = run(replace(resolved, spec=spec), launcher, Onlooker(kill))
    assert plan.soak is not None
    assert any("ended with exit code 1" in problem for problem in plan.soak.problems)
    assert any(text.startswith("soak: ") for text in plan.warnings)
