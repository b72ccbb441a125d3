"""The command line in this process, on a machine of our choice."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fakes import plans
from tests.fakes.fake_adapter import make_model, make_vllm
from tuner.app import resolve
from tuner.cli.main import main

BASIC = ["--workload", "8x6@c4", "--requests", "12", "--trials", "2", "--finalists", "1", "--verify-rounds", "2",
         "--accept-busy"]
SPACE = "engine: vllm\nsettings:\n  - flag: max-num-seqs\n    values: [unset, 8]\n    why: because\n"


class Said(NamedTuple):
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str


Llmtune = Callable[..., Said]


def make_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with a model, an engine and a space, on a machine without GPUs, and go there."""
    make_model(folder / "tiny")
    make_vllm(folder / "engine")
    (folder / "space.yaml").write_text(SPACE)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(resolve, "detect_hardware", lambda: plans.CPU)
    monkeypatch.setenv("HF_HOME", str(folder / "no-cache"))
    return folder


@contextmanager
def command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Llmtune]:
    """Give a function that runs `llmtune` with these words, and hold it to leave signal handlers as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def run(*words: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["llmtune", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Said(int(ended.value.code or 0), said.out, said.err)

    yield run
    assert {number: signal.getsignal(number) for number in before} == before


def optimize(llmtune: Llmtune, *words: str, model: str = "tiny", engine: str = "engine/bin/vllm") -> Said:
    """Run `llmtune optimize` on what `make_place` made."""
    return llmtune("optimize", "--model", model, "--engine-command", engine, "--space", "space.yaml", *BASIC, *words)


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def held(said: Said, code: int, says: str, hint: str | None = None) -> None:
    """Hold an answer to one error of this kind: its code, one `error:` line, perhaps a hint, nothing on stdout."""
    assert said.code == code, said
    lines = said.err.splitlines()
    (error,) = [line for line in lines if line.startswith("error: ")]
    assert says in error
    hints = [line for line in lines if line.startswith("hint: ")]
    assert len(hints) <= 1
    assert hint is None or (hints and hint in hints[0]), lines
    assert "Traceback" not in said.err
    assert said.out == ""
