"""The study in Optuna's storage: nothing finished is lost, nothing failed becomes a number, nobody works twice."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import optuna
import pytest
from optuna.trial import TrialState

from tests.fakes import plans
from tuner.domain.engine import EngineConfig
from tuner.domain.trial import Dropped, Failed, FailureKind, Infeasible, Measured, Outcome, Trial
from tuner.errors import StudyError
from tuner.search import storage
from tuner.search.ledger import Ledger
from tuner.search.spaces import Dimension, OpenSpace

pytestmark = pytest.mark.unit

SPACE = OpenSpace(
    engine="vllm", version="0.32.0", pins=(), closed=(),
    dimensions=(
        Dimension(flag="a", values=(None, 1, 2, 3)),
        Dimension(flag="b", values=(None, True, False)),
        Dimension(flag="c", values=(None, 0.5, "auto")),
    ),
)
MEASURED = Measured(measurement=plans.measurement(100.0), startup=plans.StartupFacts(), start_s=1.0)
OOM = Failed(failure=FailureKind.OUT_OF_MEMORY, reason="CUDA out of memory", phase="start")
MACHINE = Failed(failure=FailureKind.MACHINE, reason="port", phase="start")
DROPPED = Dropped(rule="objective", reason="cannot reach 100", bound=plans.estimate(50.0), start_s=1.0)
LOST = Dropped(rule="slo", reason="p95 ttft is lost", start_s=1.0)
RULED_OUT = Infeasible(rule="heads_divide", reason="9 heads")
Direction = Literal["maximize", "minimize"]


@contextmanager
def ledger(folder: Path, **changes: Any) -> Iterator[Ledger]:
    fields: dict[str, Any] = {
        "name": "s", "question": "q", "direction": "maximize", "folder": folder, "storage": None, **changes}
    with Ledger.open(**fields) as found:
        yield found


def point(**choices: Any) -> dict[str, Any]:
    return {"a": None, "b": None, "c": None, **choices}


def tried(book: Ledger, outcome: Outcome, *, score: float | None = None, violations: Any = None, **choices: Any) -> int:
    config = SPACE.config(point(**choices))
    number = book.begin(config, point(**choices), SPACE, "search")
    trial = Trial(number=number, purpose="search", config=config, outcome=outcome)
    book.finish(trial, score=score, violations=violations or {})
    return number


# --- what is stored


def test_numbers_count_up_and_trials_come_back_in_order(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        numbers = [tried(book, MEASURED, score=1.0, a=value) for value in (1, 2, 3)]
        assert numbers == [0, 1, 2]
    with ledger(tmp_path) as book:
        assert [trial.number for trial in book.trials()] == numbers
        assert [trial.config.get("a") for trial in book.trials()] == [1, 2, 3]
        assert tried(book, RULED_OUT) == 3


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    config = SPACE.config(point(a=1, b=False, c="auto"))
    with ledger(tmp_path) as book:
        number = book.begin(config, point(a=1, b=False, c="auto"), SPACE, "baseline")
        trial = Trial(number=number, purpose="baseline", config=config, outcome=MEASURED, attempts=2, evidence="trials/0")
        book.finish(trial, score=2.5, violations={"p95 ttft<=1ms": -0.5})
    with ledger(tmp_path) as book:
        assert book.trials() == [trial]
        assert book.trials()[0].config.key == config.key


def test_dashboards_see_an_ordinary_study(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        tried(book, MEASURED, score=2.0, a=1, b=True, c=0.5)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.journal")))
    study = optuna.load_study(study_name="s", storage=storage)
    assert study.best_value == 2.0
    assert study.best_params == {"a": 1, "b": True, "c": 0.5}


def test_dashboards_can_tell_which_trials_keep_the_limits(tmp_path: Path) -> None:
    """optuna-dashboard 0.21 reads constraints in the form that Optuna had before they got names."""
    with ledger(tmp_path) as book:
        tried(book, MEASURED, score=1.0, violations={"p95 ttft<=1ms": -0.25, "p95 itl<=1ms": -0.5})
        tried(book, MEASURED, score=2.0, a=1, violations={"p95 ttft<=1ms": 0.5, "p95 itl<=1ms": -0.5})
        tried(book, OOM, a=2)
        tried(book, DROPPED, a=3)
        tried(book, MACHINE, b=True)
        plain = [book.study._storage.get_trial_system_attrs(trial._trial_id) for trial in book.study.trials]
    assert [attributes.get("constraints") for attributes in plain] == [[-0.25], [0.5], [1e9], [-1.0], None]


def test_nothing_secret_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes of studies and trials can be read by everybody who opens the storage."""
    for name in ("HF_TOKEN", "VLLM_API_KEY", "PGPASSWORD"):
        monkeypatch.setenv(name, "hunter2-" + name)
    spec = plans.study(name="s")
    book = Ledger.open(name="s", question="q", direction="maximize", folder=tmp_path / "f", spec=spec,
                       storage=f"journal:///{tmp_path}/shared.journal")
    with book:
        tried(book, MEASURED, score=1.0)
        names = {name for trial in book.study.trials for name in trial.user_attrs}
        assert set(book.study.user_attrs) == {"question", "spec"}
    assert names == {"token", "key", "config", "purpose", "owner", "alive", "outcome", "score", "trial"}
    assert "hunter2" not in (tmp_path / "shared.journal").read_text()
    assert str(tmp_path) not in (tmp_path / "shared.journal").read_text(), "no path of the machine that has the folder"


def test_a_configuration_outside_of_the_space_has_no_parameters(tmp_path: Path) -> None:
    """PT-03: the model must not learn a point that was not the one that ran."""
    outside = plans.config(("other", 7))
    with ledger(tmp_path) as book:
        number = book.begin(outside, SPACE.point_of(outside), SPACE, "baseline")
        book.finish(Trial(number=number, purpose="baseline", config=outside, outcome=MEASURED), score=1.0, violations={})
        assert book.study.trials[0].params == {}
        assert book.trials()[0].config == outside


# --- what the sampler is told


@pytest.mark.parametrize(
    ("outcome", "score", "state", "feasible"),
    [
        pytest.param(MEASURED, 5.0, TrialState.COMPLETE, True, id="measured"),
        pytest.param(RULED_OUT, None, TrialState.PRUNED, False, id="infeasible"),
        pytest.param(OOM, None, TrialState.PRUNED, False, id="UP-F12"),
        pytest.param(MACHINE, None, TrialState.FAIL, None, id="machine"),
        pytest.param(LOST, None, TrialState.PRUNED, False, id="slo lost"),
    ],
)
def test_states_and_constraints(
    tmp_path: Path, outcome: Outcome, score: float | None, state: TrialState, feasible: bool | None
) -> None:
    """PT-15: a FAIL is invisible to TPE; what an engine refuses is a violated constraint instead."""
    with ledger(tmp_path) as book:
        tried(book, outcome, score=score)
    with ledger(tmp_path) as book:
        (frozen,) = book.study.trials
        assert frozen.state is state
        assert frozen.values == (None if score is None else [score])
        assert frozen.intermediate_values == {}
        if feasible is None:
            assert frozen.constraints == {}
        else:
            assert all(value <= 0 for value in frozen.constraints.values()) is feasible


def test_missed_limits_are_constraints_by_their_name(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        tried(book, MEASURED, score=9.0, violations={"p95 ttft<=1ms": 3.0, "error_rate<=1%": -1.0})
        tried(book, MEASURED, score=1.0, a=1, violations={"p95 ttft<=1ms": -0.5, "error_rate<=1%": -1.0})
        first = book.study.trials[0].constraints
        assert first["p95 ttft<=1ms"] == 3.0
        assert book.study.best_value == 1.0, "the faster one does not keep the limit"


def test_what_was_known_of_a_dropped_trial_is_an_intermediate_value(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        tried(book, DROPPED, violations={"p95 ttft<=1ms": -0.5})
        tried(book, LOST, a=1)
        tried(book, LOST, a=2, violations={"p95 ttft<=1ms": 0.7})
        tried(book, DROPPED.model_copy(update={"bound": plans.estimate(float("inf"))}), a=3)
    with ledger(tmp_path) as book:
        known, lost, by_how_much, endless = book.study.trials
        assert [trial.state for trial in book.study.trials] == [TrialState.PRUNED] * 4
        assert known.intermediate_values == {0: 50.0}
        assert known.constraints == {"0": -0.5, "runs": -1.0, "p95 ttft<=1ms": -0.5}
        assert (lost.intermediate_values, lost.values) == ({}, None)
        assert max(lost.constraints.values()) > 0, "it lost the SLO, whoever knows by how much"
        assert by_how_much.constraints == {"0": 0.7, "runs": -1.0, "p95 ttft<=1ms": 0.7}
        assert endless.intermediate_values == {}
        assert [trial.outcome for trial in book.trials()][:2] == [DROPPED, LOST]
        assert book.trials()[3].outcome == DROPPED.model_copy(update={"bound": None})


def test_a_dropped_trial_is_settled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ledger(tmp_path) as book:
        cut_off(book, monkeypatch, "before the state", DROPPED, None)
    with ledger(tmp_path) as book:
        book.settle()
        (frozen,) = book.study.trials
        assert (frozen.state, frozen.intermediate_values) == (TrialState.PRUNED, {0: 50.0})


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_only_dropped_and_failed_trials_have_no_best(tmp_path: Path, direction: Direction) -> None:
    """PT-10: the value that Optuna keeps with a pruned trial is no result."""
    with ledger(tmp_path, direction=direction) as book:
        for value, outcome in enumerate((DROPPED, OOM, MACHINE), start=1):
            tried(book, outcome, a=value)
    plain = optuna.load_study(study_name="s", storage=optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.journal"))))
    with pytest.raises(ValueError, match="No trials are completed yet"):
        _ = plain.best_trial
    assert plain.best_trials == []


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize(
    "outcome",
    [
        OOM, RULED_OUT, MACHINE, LOST,
        *(DROPPED.model_copy(update={"bound": plans.estimate(bound)}) for bound in (-1e9, 0.0, 1e9)),
    ],
    ids=["oom", "ruled out", "machine", "slo lost", "dropped low", "dropped at zero", "dropped high"],
)
def test_a_crash_never_wins(tmp_path: Path, direction: Direction, outcome: Outcome) -> None:
    """PT-01, PT-02, PT-10: zero, minus infinity and -1 each make the crash the best of some study."""
    with ledger(tmp_path, direction=direction) as book:
        for value, score in enumerate((-5.0, 0.5, 5.0), start=1):
            tried(book, outcome, a=value, b=True)
            tried(book, MEASURED, score=score, a=value)
        assert book.study.best_value == (5.0 if direction == "maximize" else -5.0)
        assert book.study.best_trial.state is TrialState.COMPLETE
        assert [trial.number for trial in book.study.best_trials] == [book.study.best_trial.number]
        assert all(trial.state is TrialState.COMPLETE for trial in book.study.best_trials)


@pytest.mark.parametrize("outcome", [OOM, RULED_OUT], ids=lambda outcome: outcome.kind)
def test_a_failure_is_worse_than_any_missed_limit(tmp_path: Path, outcome: Outcome) -> None:
    """PT-10: a failure that is encoded inside the range of valid results is taken for one of them."""
    with ledger(tmp_path) as book:
        tried(book, MEASURED, score=1.0, a=1, violations={"p95 ttft<=1ms": 5000.0, "p95 itl<=1ms": 700.0})
        tried(book, outcome, a=2)
        slow, failed = (sum(v for v in trial.constraints.values() if v > 0) for trial in book.study.trials)
        assert failed > slow


@pytest.mark.parametrize(
    ("outcome", "score"), [(MEASURED, None), (OOM, 0.0), (RULED_OUT, 1.0), (MACHINE, -1.0), (DROPPED, 50.0)]
)
def test_a_score_belongs_to_a_measurement_and_only_to_one(tmp_path: Path, outcome: Outcome, score: float | None) -> None:
    with ledger(tmp_path) as book, pytest.raises(ValueError, match="a measured trial has a score"):
        tried(book, outcome, score=score)


# --- a llmtune that dies


class Died(BaseException):
    """Stands for the end of the process: nothing handles it."""


def die(*_: object, **__: object) -> None:
    raise Died


def cut_off(book: Ledger, monkeypatch: pytest.MonkeyPatch, where: str, outcome: Outcome, score: float | None) -> None:
    with monkeypatch.context() as patched:
        if where == "during the trial":
            book.begin(SPACE.config(point(a=1)), point(a=1), SPACE, "search")
            return
        if where == "before the record":
            original = optuna.trial.Trial.set_user_attr
            patched.setattr(
                optuna.trial.Trial, "set_user_attr",
                lambda self, key, value: die() if key == "trial" else original(self, key, value),
            )
        elif where == "after the record":
            patched.setattr(Ledger, "_tell", die)
        elif where == "before the state":
            patched.setattr(optuna.Study, "tell", die)
        with pytest.raises(Died):
            tried(book, outcome, score=score, a=1)


@pytest.mark.parametrize(("outcome", "score"), [(MEASURED, 4.0), (OOM, None), (MACHINE, None)],
                         ids=["measured", "failed", "machine"])
@pytest.mark.parametrize("where", ["during the trial", "before the record", "after the record", "before the state"])
def test_death_at_any_point_loses_nothing_that_was_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, outcome: Outcome, score: float | None
) -> None:
    with ledger(tmp_path) as book:
        tried(book, MEASURED, score=1.0)
        cut_off(book, monkeypatch, where, outcome, score)
    recorded = where in ("after the record", "before the state")
    with ledger(tmp_path) as book:
        assert len(book.trials()) == 1 + recorded
        assert [(number, config.get("a"), purpose) for number, config, purpose in book.leftovers()] == (
            [] if recorded else [(1, 1, "search")])
        book.settle()
        running = [trial for trial in book.study.trials if trial.state is TrialState.RUNNING]
        assert len(running) == (0 if recorded else 1)
        for number, config, purpose in book.leftovers():
            book.finish(Trial(number=number, purpose=purpose, config=config, outcome=MACHINE), score=None, violations={})
        assert book.leftovers() == []
        assert tried(book, MEASURED, score=2.0, a=2) == 2
        states = [trial.state for trial in book.study.trials]
        assert TrialState.RUNNING not in states
        assert book.study.best_value == (4.0 if recorded and score else 2.0)


def test_settling_twice_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ledger(tmp_path) as book:
        cut_off(book, monkeypatch, "before the state", MEASURED, 4.0)
        book.settle()
        book.settle()
        assert book.study.trials[0].values == [4.0]


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_half_written_last_line_is_dropped(tmp_path: Path, cut: int) -> None:
    with ledger(tmp_path) as book:
        tried(book, MEASURED, score=1.0)
        tried(book, OOM, a=1)
    journal = tmp_path / "study.journal"
    whole = journal.read_bytes()
    journal.write_bytes(whole + whole.splitlines(keepends=True)[-1][:cut])
    with ledger(tmp_path) as book:
        assert len(book.trials()) == 2
        assert tried(book, MEASURED, score=2.0, a=2) == 2
    with ledger(tmp_path) as book:
        assert len(book.trials()) == 3
    assert all(json.loads(line) for line in journal.read_text().splitlines())


@pytest.mark.timeout(20)
def test_the_storages_own_lock_of_a_dead_process_holds_nobody_up(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        tried(book, MEASURED, score=1.0)
    (tmp_path / "study.journal.lock").symlink_to(tmp_path / "study.journal")
    started = time.monotonic()
    with ledger(tmp_path) as book:
        tried(book, MEASURED, score=2.0, a=1)
    assert time.monotonic() - started < 10


def test_a_study_without_a_finished_trial_goes_on(tmp_path: Path) -> None:
    """UP-F16: a rival's resume stumbles over `No trials are completed yet`."""
    with ledger(tmp_path) as book:
        book.begin(SPACE.config({}), None, SPACE, "default")
    with ledger(tmp_path) as book:
        assert book.trials() == []
        assert [purpose for _, _, purpose in book.leftovers()] == ["default"]


# --- who may work on it


def test_another_llmtune_is_kept_out_and_named(tmp_path: Path) -> None:
    """UP-F07: trials of two tuners on the same GPUs make each other fail."""
    with ledger(tmp_path):
        with pytest.raises(StudyError) as caught, ledger(tmp_path):
            pass
        assert f"process {os.getpid()}" in caught.value.message
        assert "--study" in (caught.value.hint or "")
        assert caught.value.exit_code == 8
    with ledger(tmp_path) as book:
        assert book.trials() == []


def test_closing_twice_is_safe(tmp_path: Path) -> None:
    """UP-F10, PT-07: a rival hangs in its second clean-up."""
    book = Ledger.open(name="s", question="q", direction="maximize", folder=tmp_path, storage=None)
    book.close()
    book.close()
    with ledger(tmp_path):
        book.close()
        with pytest.raises(StudyError, match="another llmtune"), ledger(tmp_path):
            pass


def test_another_question_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        tried(book, MEASURED, score=1.0)
    before = (tmp_path / "study.journal").read_bytes()
    with pytest.raises(StudyError, match="holds another question") as caught, ledger(tmp_path, question="other"):
        pass
    assert "--study" in (caught.value.hint or "")
    assert (tmp_path / "study.journal").read_bytes() == before
    with ledger(tmp_path) as book:
        assert len(book.trials()) == 1


# --- storages


@pytest.mark.parametrize(
    "content",
    [
        "garbage\nmore\n",
        '{"op_code": 0}\n{"op_code": 99}\n',
        "[1, 2]\n[3]\n",
        '"text"\n"text"\n',
        '{"op_code": "x", "worker_id": 1}\n{}\n',
        "\x00\x01\x02\n\x00\n",
    ],
    ids=["words", "codes", "lists", "texts", "types", "bytes"],
)
def test_a_corrupt_journal_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "study.journal").write_text(content)
    with pytest.raises(StudyError) as caught, ledger(tmp_path):
        pass
    assert "corrupt" in caught.value.message
    assert caught.value.hint
    assert "\n" not in caught.value.message
    assert (tmp_path / "study.journal").read_text() == content
    (tmp_path / "study.journal").unlink()
    with ledger(tmp_path) as book:
        assert book.trials() == [], "the lock was released"


def test_a_journal_that_is_damaged_in_its_middle(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        tried(book, MEASURED, score=1.0)
    journal = tmp_path / "study.journal"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join([*lines[:2], "####\n", *lines[3:]]))
    with pytest.raises(StudyError, match="corrupt"), ledger(tmp_path):
        pass


def test_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        number = book.begin(SPACE.config({}), None, SPACE, "default")
        book._live(number).set_user_attr("score", [1.0, {}])
        book._live(number).set_user_attr("trial", '{"number": 0}')
    with ledger(tmp_path) as book:
        for read in (book.trials, book.settle):
            with pytest.raises(StudyError, match="trial 0 of study 's' cannot be read") as caught:
                read()
            assert "\n" not in caught.value.message


def test_trials_of_another_tool_are_left_alone(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        book.study.ask()
        book.settle()
        assert book.leftovers() == []
        assert book.trials() == []


@pytest.mark.parametrize("scheme", ["journal", "sqlite"])
def test_a_storage_url(tmp_path: Path, scheme: str) -> None:
    folder = tmp_path / "study"
    url = f"{scheme}:///{tmp_path}/shared.{scheme}"
    with ledger(folder, storage=url) as book:
        tried(book, MEASURED, score=3.0, a=1)
        tried(book, OOM, a=2, b=False)
        book.begin(SPACE.config(point(a=3)), point(a=3), SPACE, "search")
    with ledger(folder, storage=url) as book:
        assert [trial.outcome.kind for trial in book.trials()] == ["measured", "failed"]
        assert len(book.leftovers()) == 1
        assert book.study.best_value == 3.0
    with pytest.raises(StudyError, match="another question"), ledger(folder, storage=url, question="other"):
        pass
    assert not (folder / "study.journal").exists()


@pytest.mark.parametrize("scheme", ["journal", "sqlite"])
def test_somebody_who_looks_on_costs_no_trial(tmp_path: Path, scheme: str) -> None:
    """UP-F13: an open dashboard broke a rival's study."""
    url = f"{scheme}:///{tmp_path}/shared.{scheme}"
    seen: list[int] = []
    over = threading.Event()

    def look_on() -> None:
        while not over.is_set():
            with ledger(tmp_path / "elsewhere", storage=url) as book:
                seen.append(len(book.trials()))

    with ledger(tmp_path / "study", storage=url) as book:
        reader = threading.Thread(target=look_on)
        reader.start()
        try:
            numbers = [tried(book, MEASURED, score=float(value), a=value % 4 or None) for value in range(8)]
        finally:
            over.set()
            reader.join(timeout=30)
        assert numbers == list(range(8))
        assert len(book.trials()) == 8
    assert not reader.is_alive()
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("study.journal", "is not a URL"),
        ("journal://", "is not a URL"),
        ("nosql://host/db", "cannot be used"),
        ("sqlite:////nowhere/at/all.db", "cannot be used"),
        ("journal:////nowhere/at/all.journal", "cannot be used"),
        ("postgresql://user:hunter2@127.0.0.1:1/db", "cannot be used"),
        ("redis://user:hunter2@127.0.0.1:1/0", "cannot be used"),
    ],
)
def test_a_storage_that_cannot_be_used(tmp_path: Path, url: str, says: str) -> None:
    with pytest.raises(StudyError) as caught, ledger(tmp_path, storage=url):
        pass
    assert says in caught.value.message
    assert "\n" not in caught.value.message
    assert "hunter2" not in f"{caught.value.message}{caught.value.hint}"
    with ledger(tmp_path) as book:
        assert book.trials() == [], "the lock was released"


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.sshfs"])
def test_sqlite_on_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """UP-F14: on a cluster's shared disk nobody can write to it any more after a while."""
    mounts = tmp_path / "mounts"
    place = str(tmp_path / "nfs disk").replace(" ", "\\040")
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nserver:/x {place} {kind} rw 0 0\ntmpfs {place}/local tmpfs rw 0 0\n")
    monkeypatch.setattr(storage, "_MOUNTS", mounts)
    for folder in ("nfs disk", "nfs disk/local", "nfs disk too"):
        (tmp_path / folder).mkdir(parents=True)
    with pytest.raises(StudyError, match=kind) as caught, ledger(
        tmp_path / "a", storage=f"sqlite:///{tmp_path}/nfs disk/study.db"):
        pass
    assert "journal:///" in (caught.value.hint or "")
    for fine in (f"sqlite:///{tmp_path}/nfs disk/local/s.db", f"sqlite:///{tmp_path}/nfs disk too/s.db",
                 f"journal:///{tmp_path}/nfs disk/study.journal"):
        with ledger(tmp_path / "b", storage=fine) as book:
            assert tried(book, MEASURED, score=1.0) == 0
    monkeypatch.setattr(storage, "_MOUNTS", tmp_path / "none")
    assert storage.file_system(tmp_path) == ""


def test_a_line_that_another_is_writing_is_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, journal = f"journal:///{tmp_path}/shared.journal", tmp_path / "shared.journal"
    with ledger(tmp_path / "a", storage=url) as book:
        tried(book, MEASURED, score=1.0)
    locked: list[bool] = []
    original = storage._drop_half_line
    monkeypatch.setattr(storage, "_drop_half_line", lambda path: (
        locked.append((tmp_path / "shared.journal.lock").is_symlink()), original(path)))
    with ledger(tmp_path / "b", storage=url) as book:
        assert len(book.trials()) == 1
    assert locked == [True]
    assert journal.read_bytes().endswith(b"\n")


def test_a_sqlite_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_text("not a database, but long enough to be looked at " * 50)
    with pytest.raises(StudyError), ledger(tmp_path, storage=f"sqlite:///{tmp_path}/a.db"):
        pass


def test_a_folder_that_cannot_hold_a_study(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match="cannot hold a study") as caught, ledger(tmp_path / "file" / "study"):
        pass
    assert "--out" in (caught.value.hint or "")


def test_settings_keep_their_types_in_the_storage(tmp_path: Path) -> None:
    with ledger(tmp_path) as book:
        tried(book, MEASURED, score=1.0, a=1, b=True, c=0.5)
    with ledger(tmp_path) as book:
        params = book.study.trials[0].params
        assert {flag: type(value) for flag, value in params.items()} == {"a": int, "b": bool, "c": float}
        config = EngineConfig.model_validate(book.study.trials[0].user_attrs["config"])
        assert config.key == SPACE.config(params).key
