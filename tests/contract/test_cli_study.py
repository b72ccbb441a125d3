"""Studies from the command line, with a fake launcher: what is printed, what is kept, and what a full disk does."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from optuna.storages.journal import JournalFileBackend

from tests.fakes.command_line import Llmtune, command_line, held, make_place, optimize, tree
from tests.fakes.fake_launcher import Death, FakeLauncher
from tests.fakes.studies import light_collector
from tests.fakes.truth_server import Behaviour
from tuner.errors import PortError
from tuner.output import evidence
from tuner.output.files import output_error
from tuner.runtime.launchers import LAUNCHERS
from tuner.search.ledger import Ledger

pytestmark = pytest.mark.contract


@pytest.fixture(autouse=True, scope="module")
def _light() -> Iterator[None]:
    with light_collector():
        yield


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_place(tmp_path, monkeypatch)


@pytest.fixture
def llmtune(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Llmtune]:
    with command_line(monkeypatch, capsys) as run:
        yield run


def fast(_: object) -> Behaviour:
    return Behaviour(ttft_ms=2.0, itl_ms=1.0)


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> FakeLauncher:
    found = FakeLauncher(fast)
    monkeypatch.setitem(LAUNCHERS, "process", lambda: found)
    return found


def test_a_study_from_the_command_line(place: Path, llmtune: Llmtune, launcher: FakeLauncher) -> None:
    said = optimize(llmtune)
    assert said.code == 0, said
    plan = next(place.rglob("plan.json"))
    assert f"plan:    {plan.relative_to(place)}" in said.out
    assert said.out.startswith("verdict: ")
    assert "MEASURED" in said.out
    assert "space      2 configurations" in said.err
    assert "[1/" in said.err
    assert "trial 0: MEASURED" in said.err
    assert "\x1b[" not in said.err + said.out, "no escape codes when not on a terminal"
    again = optimize(llmtune, "--json")
    shown = json.loads(again.out)
    assert shown["plan"] == str(plan.relative_to(place))
    assert shown["verdict"]["kind"]
    assert [arm["label"] for arm in shown["arms"]] == ["default", "best"]
    assert len(launcher.started) == 2 + 4, "the second time everything was known"


def test_another_question_under_the_same_name(place: Path, llmtune: Llmtune, launcher: FakeLauncher) -> None:
    assert optimize(llmtune, "--study", "mine").code == 0
    before = tree(place)
    held(optimize(llmtune, "--study", "mine", "--set", "enforce-eager=true"), 8, "holds another question", "--study")
    assert tree(place) == before


def test_a_locked_study(place: Path, llmtune: Llmtune, launcher: FakeLauncher) -> None:
    assert optimize(llmtune, "--study", "mine").code == 0
    folder = next(place.rglob("study.journal")).parent
    with Ledger.open(name="other", question="q", direction="maximize", folder=folder, storage=None):
        held(optimize(llmtune, "--study", "mine"), 8, f"process {os.getpid()}", "wait for it")


def test_a_corrupt_storage(place: Path, llmtune: Llmtune, launcher: FakeLauncher) -> None:
    assert optimize(llmtune, "--study", "mine").code == 0
    next(place.rglob("study.journal")).write_text("garbage\ngarbage\n")
    held(optimize(llmtune, "--study", "mine"), 8, "is corrupt", "another study")


def test_a_taken_port(place: Path, llmtune: Llmtune, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoPort(FakeLauncher):
        @contextmanager
        def start(self, spec: Any, folder: Path) -> Iterator[Any]:
            raise PortError("no loopback port is free", hint="close something")
            yield

    monkeypatch.setitem(LAUNCHERS, "process", NoPort)
    said = optimize(llmtune)
    assert said.code == 10
    assert "error: no loopback port is free" in said.err


@pytest.mark.parametrize("where", ["evidence", "journal"])
def test_a_full_disk_ends_the_study_and_loses_nothing(
    place: Path, llmtune: Llmtune, launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as patched:
        if where == "evidence":
            original = evidence.write_text

            def write_text(path: Path, text: str) -> None:
                if path.match("0001/outcome.json"):
                    raise output_error(path, full)
                original(path, text)

            patched.setattr(evidence, "write_text", write_text)
        else:
            append = JournalFileBackend.append_logs
            count = iter(range(1000))

            def append_logs(self: Any, logs: Any) -> None:
                if next(count) > 9:
                    raise full
                append(self, logs)

            patched.setattr(JournalFileBackend, "append_logs", append_logs)
        said = optimize(llmtune)
        assert said.code == 9, said
        assert "error: " in said.err
        assert "No space left on device" in said.err
        assert "hint: make room" in said.err
        assert "Traceback" not in said.err
        assert not list(place.rglob("plan.json"))
    assert all(server.teardown is not None for server in launcher.servers)
    launched = len(launcher.started)
    assert optimize(llmtune).code == 0
    assert len(launcher.started) - launched < 2 + 4, "what was finished before is kept"


def test_nothing_that_can_be_measured(place: Path, llmtune: Llmtune, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = FakeLauncher(fast, lambda _: Death(1, "ERROR 01-01 00:00:00 [a.py:1] RuntimeError: no luck"))
    monkeypatch.setitem(LAUNCHERS, "process", lambda: dead)
    said = optimize(llmtune, "-v")
    assert said.code == 11
    assert "hint: the last launch failed: no luck; its log is" in said.err
    assert "FAILED crashed: no luck" in said.err


def test_emit_writes_again_and_checks(place: Path, llmtune: Llmtune, launcher: FakeLauncher) -> None:
    assert optimize(llmtune).code == 0
    plan = next(place.rglob("plan.json"))
    before = tree(plan.parent / "deploy")
    assert llmtune("emit", str(plan), "--check").code == 0
    script = plan.parent / "deploy" / "serve.sh"
    script.write_text(script.read_text() + "# edited\n")
    drift = llmtune("emit", str(plan), "--check")
    assert drift.code == 12
    assert "+# edited" in drift.err or "-# edited" in drift.err
    held(llmtune("emit", str(plan)), 9, "serve.sh")
    assert llmtune("emit", str(plan), "--force").code == 0
    assert tree(plan.parent / "deploy") == before
