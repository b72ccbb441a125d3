"""Who works on a trial: nobody's running trial is taken from them, and what the dead left is done again once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.trial import TrialState

from tests.unit.test_search_ledger import MACHINE, MEASURED, SPACE, point, tried
from tuner.domain.trial import Trial
from tuner.errors import StudyError
from tuner.search import owner as owners
from tuner.search.ledger import Ledger
from tuner.search.owner import SILENCE_S, Owner, is_gone, this_process
from tuner.search.pulse import SIGN, Pulse
from tuner.search.storage import lock_owner

pytestmark = pytest.mark.unit

NOW = 1_800_000_000.0


def me(**changes: Any) -> Owner:
    return this_process(Path("/studies/mine")).model_copy(update=changes)


@contextmanager
def shared(tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch | None = None, **who: Any) -> Iterator[Ledger]:
    """Open the shared study from a folder, as the process that `who` says."""
    url = f"journal:///{tmp_path}/shared.journal"
    with Ledger.open(name="s", question="q", direction="maximize", folder=tmp_path / folder, storage=url) as book:
        book._owner = book._owner.model_copy(update=who)
        yield book


def begun(book: Ledger, **choices: Any) -> int:
    return book.begin(SPACE.config(point(**choices)), point(**choices), SPACE, "search")


ELSEWHERE = {"host": "other", "boot": "b", "pids": "p", "pid": 7}


# --- the rule


@pytest.mark.parametrize(
    ("changes", "silent_s", "gone"),
    [
        pytest.param({"folder": "x"}, 1e9, False, id="this very process in another folder, however silent"),
        pytest.param({}, 0, True, id="the same folder: its lock is ours now"),
        pytest.param({"folder": "x", "pid": 2**22 + 1}, 0, True, id="no such process"),
        pytest.param({"folder": "x", "started": 1.0}, 0, True, id="the pid names another process now"),
        pytest.param({"folder": "x", "pids": "pid:[1]", "pid": 2**22 + 1}, 60, False, id="another container: not seen from here"),
        pytest.param({"folder": "x", "pids": "pid:[1]"}, SILENCE_S + 1, True, id="another container, silent"),
        pytest.param({"boot": "b"}, 1e9, True, id="before this boot"),
        pytest.param({"boot": "b"}, 0, False, id="another machine of the same name"),
        pytest.param({"host": "other"}, 0, False, id="another host, alive"),
        pytest.param({"host": "other"}, SILENCE_S - 1, False, id="another host, busy"),
        pytest.param({"host": "other"}, SILENCE_S + 1, True, id="another host, silent"),
        pytest.param({"host": "other"}, -3600, False, id="another host whose clock is ahead"),
    ],
)
def test_who_is_gone(changes: dict[str, Any], silent_s: float, gone: bool) -> None:
    assert is_gone(me(**changes), me=me(), last_sign=NOW - silent_s, now=NOW) is gone


def test_a_zombie_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        owner = me(pid=child.pid, started=owners._start_of(child.pid), folder="x")
        assert not is_gone(owner, me=me(), last_sign=NOW, now=NOW)
        assert owner.runs
        child.kill()
        for _ in range(500):
            if not owner.runs:
                break
            time.sleep(0.01)
        assert is_gone(owner, me=me(), last_sign=NOW, now=NOW), "not waited for yet, and dead all the same"


def test_a_system_that_tells_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(owners, "_PROC", tmp_path)
    mine = this_process(tmp_path)
    assert (mine.boot, mine.pids, mine.started) == ("", "", 0.0)
    assert not is_gone(mine.model_copy(update={"host": "other"}), me=mine, last_sign=NOW - 60, now=NOW)


def test_a_lock_names_who_holds_it(tmp_path: Path) -> None:
    lock = tmp_path / "study.lock"
    with Ledger.open(name="s", question="q", direction="maximize", folder=tmp_path, storage=None):
        found = lock_owner(lock)
        assert found is not None
        assert found.pid == os.getpid()
        assert found.runs
        assert str(tmp_path) not in lock.read_text()
    assert lock_owner(lock) is None
    lock.write_text("4711\n")
    assert lock_owner(lock) is None, "written by an earlier llmtune"


# --- two at one storage


def test_a_living_one_elsewhere_is_left_alone_and_counted(tmp_path: Path) -> None:
    """A second llmtune used to take the first one's running trial for one that a dead process left."""
    with shared(tmp_path, "a") as first:
        number = begun(first, a=1)
        assert (first.leftovers(), first.running()) == ([], [])
        with shared(tmp_path, "b", **ELSEWHERE) as second:
            assert second.leftovers() == []
            assert [(n, config.get("a")) for n, config in second.running()] == [(number, 1)]
            second.settle()
            assert begun(second, a=2) == number + 1
            assert [n for n, _ in first.running()] == [number + 1]


def test_another_folder_of_the_same_machine_is_judged_by_its_process(tmp_path: Path) -> None:
    with shared(tmp_path, "a") as first, shared(tmp_path, "b") as second:
        number = begun(first, a=1)
        assert second.leftovers() == []
        assert [n for n, _ in second.running()] == [number]
        first._owner = first._owner.model_copy(update={"pid": 2**22 + 1})
        lost = begun(first, a=2)
        assert [n for n, *_ in second.leftovers()] == [lost]


def test_what_a_silent_machine_left_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with shared(tmp_path, "a", **ELSEWHERE) as first:
        number = begun(first, a=1)
        with shared(tmp_path, "b") as second:
            assert second.leftovers() == []
            then = owners.now_s()
            monkeypatch.setattr("tuner.search.ledger.now_s", lambda: then + SILENCE_S + 5)
            assert [n for n, *_ in second.leftovers()] == [number]
            assert second.running() == []
            first._live(number).set_user_attr(SIGN, then + SILENCE_S)
            assert second.leftovers() == [], "it gave a sign of life"


def test_two_that_find_the_same_leftover_do_it_again_once(tmp_path: Path) -> None:
    with shared(tmp_path, "dead", pid=2**22 + 1) as dead:
        number = begun(dead, a=1)
    with shared(tmp_path, "a") as first, shared(tmp_path, "b") as second:
        config = SPACE.config(point(a=1))
        ended = Trial(number=number, purpose="search", config=config, outcome=MACHINE)
        assert [n for n, *_ in first.leftovers()] == [n for n, *_ in second.leftovers()] == [number]
        assert first.finish(ended, score=None, violations={})
        assert not second.finish(ended.model_copy(update={"attempts": 2}), score=None, violations={})
        assert [trial.attempts for trial in first.trials()] == [1]


def test_both_at_once_and_only_one_was_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with shared(tmp_path, "a") as first, shared(tmp_path, "b") as second:
        number = begun(first, a=1)
        config = SPACE.config(point(a=1))
        ours = Trial(number=number, purpose="search", config=config, outcome=MEASURED)
        theirs = Trial(number=number, purpose="search", config=config, outcome=MACHINE)
        original = Ledger._tell

        def overtaken(self: Ledger, *words: Any) -> None:
            monkeypatch.setattr(Ledger, "_tell", original)
            second.finish(theirs, score=None, violations={})
            original(self, *words)

        monkeypatch.setattr(Ledger, "_tell", overtaken)
        assert not first.finish(ours, score=1.0, violations={})
        (frozen,) = first.study.trials
        assert (frozen.state, frozen.values) == (TrialState.FAIL, None)
        assert first.trials() == [theirs]


def test_somebody_told_our_own_record_for_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with shared(tmp_path, "a") as first:
        number = begun(first, a=1)
        ours = Trial(number=number, purpose="search", config=SPACE.config(point(a=1)), outcome=MEASURED)
        original = Ledger._tell
        monkeypatch.setattr(Ledger, "_tell", lambda self, *words: [original(self, *words), original(self, *words)])
        assert first.finish(ours, score=1.0, violations={})
        assert first.study.best_value == 1.0


def test_a_value_that_no_storage_takes_is_still_an_error(tmp_path: Path) -> None:
    with shared(tmp_path, "a") as book, pytest.raises(StudyError, match="NaN is not allowed"):
        tried(book, MEASURED, score=1.0, violations={"p95 ttft<=1ms": float("nan")})


def test_of_two_that_begin_the_same_configuration_the_first_has_it(tmp_path: Path) -> None:
    """Two tuners with one seed propose the same first point."""
    config, choices = SPACE.config(point(a=1)), point(a=1)
    with shared(tmp_path, "a") as first, shared(tmp_path, "b", **ELSEWHERE) as second:
        number = first.claim(config, choices, SPACE, "search")
        assert number == 0
        assert second.claim(config, choices, SPACE, "search") is None
        assert [n for n, _ in second.running()] == [number]
        first.finish(Trial(number=0, purpose="search", config=config, outcome=MEASURED), score=1.0, violations={})
        assert second.claim(config, choices, SPACE, "search") is None, "it was finished meanwhile"
        assert second.claim(SPACE.config(point(a=2)), point(a=2), SPACE, "search") == 3
        assert [trial.state for trial in first.study.trials] == [
            TrialState.COMPLETE, TrialState.FAIL, TrialState.FAIL, TrialState.RUNNING]
        assert len(first.trials()) == 1
        assert second.leftovers() == []


def test_a_fault_of_the_machine_is_nobodys_claim(tmp_path: Path) -> None:
    config = SPACE.config(point(a=1))
    with shared(tmp_path, "a") as first, shared(tmp_path, "b", **ELSEWHERE) as second:
        number = first.claim(config, point(a=1), SPACE, "search")
        assert number is not None
        first.finish(Trial(number=number, purpose="search", config=config, outcome=MACHINE), score=None, violations={})
        assert second.claim(config, point(a=1), SPACE, "search") == 1


def test_alone_in_a_folder_a_configuration_may_be_tried_again(tmp_path: Path) -> None:
    with Ledger.open(name="s", question="q", direction="maximize", folder=tmp_path, storage=None) as book:
        config = SPACE.config(point(a=1))
        assert book.claim(config, point(a=1), SPACE, "search") == 0
        assert book.claim(config, point(a=1), SPACE, "search") == 1


def test_whoever_ends_gives_up_what_was_begun(tmp_path: Path) -> None:
    with shared(tmp_path, "b") as second:
        with shared(tmp_path, "a", **ELSEWHERE) as first:
            number = begun(first, a=1)
            done = tried(first, MEASURED, score=1.0, a=2)
            assert [n for n, _ in second.running()] == [number]
        assert [n for n, *_ in second.leftovers()] == [number]
        assert second.study.trials[done].state is TrialState.COMPLETE


def test_an_owner_of_another_version_is_judged_by_its_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shared(tmp_path, "a", **ELSEWHERE) as first, shared(tmp_path, "b") as second:
        number = begun(first, a=1)
        first._live(number).set_user_attr("owner", {"host": "other", "and": "more"})
        assert second.leftovers() == []
        then = owners.now_s()
        monkeypatch.setattr("tuner.search.ledger.now_s", lambda: then + SILENCE_S + 5)
        assert [n for n, *_ in second.leftovers()] == [number]


def test_trials_without_an_owner_are_what_they_were(tmp_path: Path) -> None:
    with shared(tmp_path, "a") as book:
        book.study.add_trial(optuna.trial.create_trial(
            state=TrialState.RUNNING,
            user_attrs={"config": SPACE.config({}).model_dump(mode="json"), "purpose": "search"}))
        assert [n for n, *_ in book.leftovers()] == [0]


# --- signs of life


def until(condition: Any) -> bool:
    for _ in range(1000):
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_a_running_trial_gives_signs_of_life_until_it_ends(tmp_path: Path) -> None:
    with shared(tmp_path, "a") as book:
        book._pulse = Pulse(every_s=0.02)
        number = begun(book, a=1)
        first = book.study.trials[0].user_attrs[SIGN]
        assert until(lambda: book.study.trials[0].user_attrs[SIGN] > first)
        config = SPACE.config(point(a=1))
        assert book.finish(Trial(number=number, purpose="search", config=config, outcome=MEASURED), score=1.0, violations={})
    assert not [thread for thread in threading.enumerate() if thread.name == "signs of life"]


def test_alone_nobody_is_told(tmp_path: Path) -> None:
    with Ledger.open(name="s", question="q", direction="maximize", folder=tmp_path, storage=None) as book:
        begun(book, a=1)
        assert not [thread for thread in threading.enumerate() if thread.name == "signs of life"]


@pytest.mark.parametrize("error", [StorageInternalError("locked"), OSError("full"), UpdateFinishedTrialError("told")])
def test_a_storage_that_is_busy_ends_no_trial(error: Exception) -> None:
    """UP-F17: a heartbeat that came too late broke a rival's study; here it may fail, and the trial goes on."""
    stamps: list[str] = []

    class Busy:
        number = 3

        def set_user_attr(self, key: str, value: float) -> None:
            stamps.append(key)
            if len(stamps) < 3:
                raise error

    pulse = Pulse(every_s=0.01)
    pulse.begin(Busy())  # type: ignore[arg-type]
    assert until(lambda: len(stamps) > 4)
    pulse.end(3)
    pulse.end(3)
    pulse.close()
    pulse.close()
    assert set(stamps) == {SIGN}


def test_silence_is_long_against_a_beat() -> None:
    """UP-F17: a busy host misses a few."""
    assert owners.BEAT_S * 10 <= SILENCE_S
