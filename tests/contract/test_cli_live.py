"""llmtune as a program of its own that is killed, interrupted and started again; its engines are stand-ins."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.fakes.command_line import BASIC, SPACE
from tests.fakes.fake_adapter import make_model, make_vllm
from tuner.domain.trial import FailureKind
from tuner.output.bundle import load_plan
from tuner.runtime.base import Handle

pytestmark = [pytest.mark.contract, pytest.mark.skipif(sys.platform != "linux", reason="engines are started on Linux")]

WAIT_S = 60.0


class Study:
    """One study in a folder of its own, and the llmtune that is working on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "llmtune.log"
        make_model(folder / "tiny")
        make_vllm(folder / "engine")
        (folder / "space.yaml").write_text(SPACE)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", "from tuner.cli.main import main; main()", "optimize"]
        command += ["--model", "tiny", "--engine-command", "engine/bin/vllm", "--space", "space.yaml", "-v", *BASIC, *words]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdout=log, stderr=log, env=environment, start_new_session=True)
        return self.process

    def finish(self, *words: str) -> str:
        before = self.log.stat().st_size if self.log.exists() else 0
        assert self.start(*words).wait(timeout=2 * WAIT_S) == 0, self.text()
        return self.text()[before:]

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, what: str) -> None:
        """Wait until the running llmtune says it."""
        until(lambda: re.search(what, self.text()) is not None or self._ended(), f"{what!r} in:\n{self.text()}")
        assert re.search(what, self.text()), self.text()

    def _ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def processes(self) -> list[psutil.Process]:
        """Every living process whose command line names this study's model or engine."""
        found = []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
                if process.status() != psutil.STATUS_ZOMBIE and any(str(self.folder) in word for word in words):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def handles(self) -> list[Handle]:
        return [Handle.model_validate_json(path.read_text()) for path in self.folder.rglob("handle.json")]

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=WAIT_S)
        for process in self.processes():
            process.kill()


def until(condition: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < limit, f"waited in vain for {what}"
        time.sleep(0.05)


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    found = Study(tmp_path)
    yield found
    found.end()


SLOW = ("--set", "env:FAKE_ENGINE_RULES=max-num-seqs=8 ttft*100")
"""The second trial takes its time, so that it can be met in the middle."""


@pytest.mark.timeout(300)
def test_kill_9_in_mid_trial_leaves_nothing_and_loses_nothing(study: Study) -> None:
    first = study.start(*SLOW)
    study.wait_for(r"trial 0: MEASURED")
    study.wait_for(r"\[2/\d+\](?s:.*)measuring")
    assert study.processes(), "an engine is running"
    first.send_signal(signal.SIGKILL)
    first.wait(timeout=WAIT_S)
    until(lambda: study.processes() == [], "the engine to go with its llmtune")

    said = study.finish(*SLOW)
    assert "trial 1 was cut off; it is done again" in said
    assert "1 trial known from before" in said
    assert "trial 0:" not in said.split("verify")[0], "the default is not measured again"
    (plan_file,) = study.folder.rglob("plan.json")
    plan = load_plan(plan_file)
    assert [(row.number, row.outcome) for row in plan.trials] == [(0, "measured"), (1, "failed"), (2, "measured")]
    assert plan.trials[1].failure is FailureKind.MACHINE
    assert plan.trials[1].key == plan.trials[2].key
    assert study.processes() == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_stops_cleanly_and_says_how_to_go_on(study: Study, number: signal.Signals) -> None:
    running = study.start(*SLOW)
    study.wait_for(r"trial 0: MEASURED")
    study.wait_for(r"\[2/\d+\](?s:.*)measuring")
    running.send_signal(number)
    assert running.wait(timeout=WAIT_S) == 130
    assert "error: stopped; every finished trial of study" in study.text()
    assert "hint: the same command goes on from here" in study.text()
    assert "Traceback" not in study.text()
    assert study.processes() == []
    assert not list(study.folder.rglob("plan.json"))
    assert study.handles() == []
