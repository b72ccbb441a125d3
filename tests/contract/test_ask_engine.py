"""Asking the engine with stand-ins for its Python: what it sees, and that nothing of it stays, whatever it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.fakes import plans
from tuner.app.ask_engine import judged_infeasible
from tuner.cli.main import app
from tuner.domain.hardware import Gpu, Hardware
from tuner.domain.model import ModelSpec
from tuner.domain.study import EngineInstall
from tuner.facts.catalog import model_by_alias
from tuner.runtime import ask_engine
from tuner.runtime.ask_engine import EngineJudge, written_config

pytestmark = pytest.mark.contract

INSTALL = EngineInstall(engine="vllm", version="0.32.0", build="cpu", program=(sys.executable, "-m", "vllm"))
H100 = Gpu(name="NVIDIA H100 80GB HBM3", memory_bytes=80 << 30, capability=9.0)
CARDS = Hardware(kind="cuda", gpus=(H100, H100.model_copy(update={"index": 1})))
ANSWER = 'print(json.dumps({"verdict": "refused", "reason": json.dumps(question)}), flush=True)'
PROGRAM = """\
import json, os, sys, time
setup = json.loads(sys.stdin.readline())
with open({pids!r}, "a") as pids:
    pids.write(f"{{os.getpid()}}\\n")
print(json.dumps({{"ready": "0.32.0"}}), flush=True)
for line in sys.stdin:
    question = json.loads(line)
    {does}
"""


class Stand:
    """A program in the place of the engine's, and the pids it ran under."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pids = folder / "pids"
        self._file = folder / "judge.py"
        monkeypatch.setattr(ask_engine, "PROGRAM", self._file)

    def does(self, code: str) -> None:
        self._file.write_text(PROGRAM.format(pids=str(self.pids), does=textwrap.indent(code, "    ").strip()))

    @property
    def started(self) -> list[int]:
        return [int(line) for line in self.pids.read_text().split()] if self.pids.exists() else []


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    found = Stand(tmp_path, monkeypatch)
    found.does(ANSWER)
    return found


@pytest.fixture
def model() -> ModelSpec:
    found = model_by_alias("llama-3-8b")
    assert found is not None
    return found


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_it_asks_in_the_words_of_a_launch(stand: Stand, model: ModelSpec) -> None:
    config = plans.config(
        ("max-num-seqs", 8), ("worker-cls", "own.Own"), ("env:VLLM_X", "1"), ("env:PATH", "/"), version="0.32.0"
    )
    with EngineJudge.open(INSTALL) as judge:
        said = judge.judge(config, model, CARDS)
    assert said.verdict == "refused"
    assert '"--max-num-seqs", "8"' in said.reason
    assert '"env": {"VLLM_X": "1"}' in said.reason
    assert "own.Own" not in said.reason
    assert f'["{model.location}"' in said.reason, "the temporary folder is not shown"


def test_one_program_a_hardware_and_none_at_the_end(stand: Stand, model: ModelSpec) -> None:
    config = plans.config(version="0.32.0")
    other = Hardware(kind="cuda", gpus=(H100,))
    with EngineJudge.open(INSTALL) as judge:
        assert stand.started == []
        for cards in (CARDS, CARDS, other):
            assert judge.judge(config, model, cards).verdict == "refused"
        first, second = stand.started
        assert not lives(first)
        assert lives(second)
    assert not lives(second)


def test_no_secret_reaches_it(stand: Stand, model: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "OPENAI_API_KEY", "VLLM_API_KEY"):
        monkeypatch.setenv(name, "not-for-it")
    stand.does(
        'print(json.dumps({"verdict": "refused", "reason": " ".join(os.environ.values()) + os.environ["HF_HUB_OFFLINE"]}), flush=True)'
    )
    with EngineJudge.open(INSTALL) as judge:
        reason = judge.judge(plans.config(version="0.32.0"), model, CARDS).reason
    assert "not-for-it" not in reason
    assert reason.endswith("1")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("sys.exit('out of luck')", "ended: out of luck"),
        ("print('Hello', flush=True)", "no answer but b'Hello'"),
        ("print('[1]', flush=True)", "no answer but"),
        ("time.sleep(60)", "in time"),
        ("os.close(1); time.sleep(60)", "ended: it said nothing"),
        ("sys.stdout.write('{\"verd'); sys.stdout.flush(); os.kill(os.getpid(), 9)", "ended"),
        ('print(json.dumps({"verdict": "unknown", "reason": "no such file"}), flush=True)', "no such file"),
    ],
)
def test_a_program_that_misbehaves_says_nothing(
    stand: Stand, model: ModelSpec, monkeypatch: pytest.MonkeyPatch, code: str, reason: str
) -> None:
    monkeypatch.setattr(ask_engine, "ANSWER_LIMIT_S", 1.0)
    stand.does(code)
    with EngineJudge.open(INSTALL) as judge:
        said = judge.judge(plans.config(version="0.32.0"), model, CARDS)
        assert judged_infeasible(judge, plans.config(version="0.32.0"), model, CARDS) is None
    assert said.verdict == "cannot_say"
    assert reason in said.reason
    assert not any(lives(pid) for pid in stand.started)


def test_it_gives_up_after_three_failures(stand: Stand, model: ModelSpec) -> None:
    stand.does("sys.exit('out of luck')")
    with EngineJudge.open(INSTALL) as judge:
        said = [judge.judge(plans.config(version="0.32.0"), model, CARDS).reason for _ in range(5)]
    assert len(stand.started) == 3
    assert said[-1] == "the engine's Python failed 3 times"


@pytest.mark.parametrize(
    ("install", "version", "cards", "name", "reason"),
    [
        ({"version": "0.33.0"}, "0.33.0", CARDS, "llama-3-8b", "vLLM 0.33.0 cannot be asked"),
        ({}, "0.31.0", CARDS, "llama-3-8b", "the settings are for vLLM 0.31.0"),
        ({"engine": "trtllm"}, "0.32.0", CARDS, "llama-3-8b", "only vLLM"),
        ({"build": "cuda"}, "0.32.0", Hardware(kind="cpu"), "llama-3-8b", "only a CPU build"),
        ({}, "0.32.0", Hardware(kind="cuda", gpus=(Gpu(name="x", memory_bytes=1),)), "llama-3-8b", "capability"),
        ({}, "0.32.0", CARDS, "deepseek-v3", "config.json of deepseek-v3"),
        ({"program": ("/no/such/python",)}, "0.32.0", CARDS, "llama-3-8b", "/no/such/python cannot be run"),
        ({"program": ("/no/such/vllm",)}, "0.32.0", CARDS, "llama-3-8b", "/no/such/vllm cannot be read"),
    ],
)
def test_what_cannot_be_asked_is_said(
    stand: Stand, install: dict[str, object], version: str, cards: Hardware, name: str, reason: str
) -> None:
    model = model_by_alias(name)
    assert model is not None
    with EngineJudge.open(INSTALL.model_copy(update=install)) as judge:
        said = judge.judge(plans.config(version=version), model, cards)
    assert said.verdict == "cannot_say"
    assert reason in said.reason
    assert stand.started == []


def test_it_dies_with_a_killed_parent(stand: Stand, tmp_path: Path) -> None:
    """The real program watches its parent also while the engine is busy."""
    watch = (
        "import os, sys, threading; sys.path.insert(0, sys.argv[1]); import vllm_judge, time; "
        "threading.Thread(target=vllm_judge._watch, args=(os.getppid(),), daemon=True).start(); "
        "print(os.getpid(), flush=True); time.sleep(60)"
    )
    programs = Path(ask_engine.__file__).parent / "programs"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {watch!r}, {str(programs)!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert lives(pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        limit = time.monotonic() + 30
        while lives(pid) and time.monotonic() < limit:
            time.sleep(0.1)
        assert not lives(pid)


def test_the_config_of_a_known_model(model: ModelSpec) -> None:
    config = written_config(model)
    assert config is not None
    assert (config["model_type"], config["num_key_value_heads"], config["max_position_embeddings"]) == (
        "llama",
        8,
        8192,
    )
    assert written_config(model.model_copy(update={"quantization": "awq"})) is None


def test_check_asks_and_shows_what_the_engine_says(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.app.ask_engine.detect_engine", lambda _, __: INSTALL)
    script = tmp_path / "serve.sh"
    script.write_text("#!/bin/sh\nexec vllm serve meta-llama/Meta-Llama-3-8B-Instruct --host 127.0.0.1\n")
    run = CliRunner()
    stand.does('print(json.dumps({"verdict": "refused", "reason": "it says no"}), flush=True)')
    refused = run.invoke(app, ["check", str(script), "--ask-engine", "--gpu", "h100"])
    assert refused.exit_code == 1
    assert f"{script}:2: error engine-refuses: the installed engine refuses this: it says no" in refused.output
    stand.does('print(json.dumps({"verdict": "accepted", "resolved": {"max-num-seqs": 1024}}), flush=True)')
    accepted = run.invoke(app, ["check", str(script), "--ask-engine", "--gpu", "h100", "-v"])
    assert accepted.exit_code == 0
    assert "note engine-accepts: the installed engine accepts this and would use: max-num-seqs 1024" in accepted.output
    assert "engine-accepts" not in run.invoke(app, ["check", str(script), "--ask-engine", "--gpu", "h100"]).output
    newer = run.invoke(app, ["check", str(script), "--ask-engine", "--gpu", "h100", "--engine-version", "0.33.0"])
    assert "note engine-silent: the installed engine was not asked: the settings are for vLLM 0.33.0" in newer.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ask-engine"], "--ask-engine needs to know the hardware"),
        (["--engine-command", "vllm"], "--engine-command is for --ask-engine"),
    ],
)
def test_options_that_need_one_another(tmp_path: Path, words: list[str], message: str) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("vllm serve x/y\n")
    result = CliRunner().invoke(app, ["check", str(script), *words])
    assert message in str(result.exception)
