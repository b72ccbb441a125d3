"""Asks the engine itself: a program run by its own Python judges settings with its own configuration layer.

It starts with the first question (some seconds of imports) and answers each in 10 to 40 ms, for GPUs that are there or
not. It is optional: an engine or release that cannot be asked gives `cannot_say`, never an error.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet

from tuner.domain.engine import EngineConfig, LaunchSpec
from tuner.domain.finding import Judged
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.domain.study import EngineInstall
from tuner.engines import ENGINES
from tuner.facts.flags import parse_version
from tuner.facts.read import data
from tuner.runtime.environment import engine_environment
from tuner.runtime.installs import python_of

PROGRAM = Path(__file__).parent / "programs" / "vllm_judge.py"
START_LIMIT_S = 180.0
ANSWER_LIMIT_S = 90.0
_MOST_FAILURES = 3
_QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
Cached = Callable[[str], Path | None]
"""Gives the directory in which the files of a hub id lie on this machine, or None."""


class EngineJudge:
    """One engine that can be asked, by one thread. Made by `EngineJudge.open`, which also ends it."""

    def __init__(self, install: EngineInstall, cached: Cached, folder: Path) -> None:
        self.install = install
        self._cached = cached
        self._folder = folder
        self._process: _Process | None = None
        self._hardware: Hardware | None = None
        self._failures = 0

    @classmethod
    @contextmanager
    def open(cls, install: EngineInstall, cached: Cached = lambda _: None) -> Iterator[EngineJudge]:
        """Give a judge; nothing is started before the first question, and nothing is left when the context ends."""
        with tempfile.TemporaryDirectory(prefix="llmtune-ask-") as folder:
            judge = cls(install, cached, Path(folder))
            try:
                yield judge
            finally:
                judge._end()

    def judge(self, config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Judged:
        """Say what the engine's configuration layer says of this configuration on this hardware. Never raises."""
        problem = self._cannot(config, hardware)
        folder = self._model_folder(model) if problem is None else None
        if problem is None and folder is None:
            problem = f"config.json of {model.requested} is not on this machine"
        if problem is not None or folder is None:
            return Judged(verdict="cannot_say", reason=problem or "")
        question = self._question(config, model, folder)
        try:
            answer = self._running(hardware).ask(question, ANSWER_LIMIT_S)
        except _SilentError as error:
            self._end()
            self._failures += 1
            return Judged(verdict="cannot_say", reason=str(error))
        reason = str(answer.get("reason", "")).replace(str(folder), model.location)
        if answer["verdict"] == "unknown":
            return Judged(verdict="cannot_say", reason=reason)
        return Judged(verdict=answer["verdict"], reason=reason, resolved=answer.get("resolved", {}))

    def _cannot(self, config: EngineConfig, hardware: Hardware) -> str | None:
        """Say why there is no point in asking, the first reason that holds."""
        install, known = self.install, _facts()["releases"]
        if install.engine != "vllm" or config.engine != "vllm":
            return f"{config.engine} cannot be asked, only vLLM"
        installed, wanted = parse_version(install.version), parse_version(config.version)
        problems = {
            f"vLLM {installed} cannot be asked: known are the releases {known}": (
                installed not in SpecifierSet(known, prereleases=True)
            ),
            f"the settings are for vLLM {wanted}, and {installed} is installed": (
                wanted.release[:2] != installed.release[:2]
            ),
            "only a CPU build can be asked about CPUs": hardware.kind == "cpu" and install.build != "cpu",
            "the compute capability of the GPU is not known": (
                hardware.kind == "cuda" and (not hardware.gpus or hardware.capability is None)
            ),
            f"the engine's Python failed {_MOST_FAILURES} times": self._failures >= _MOST_FAILURES,
        }
        return next((reason for reason, holds in problems.items() if holds), None)

    def _question(self, config: EngineConfig, model: ModelSpec, folder: Path) -> dict[str, Any]:
        kept = tuple(s for s in config.settings if s.flag not in _facts()["left_out"])
        asked = EngineConfig(engine=config.engine, version=config.version, settings=kept)
        local = model.model_copy(update={"location": str(folder), "source": "directory"})
        spec = ENGINES[config.engine].launch(local, asked, self.install)
        env = {name: value for name, value in spec.env.items() if name.startswith("VLLM_") and name not in _QUIET}
        return {"arguments": list(spec.in_folder(str(self._folder))), "env": env}

    def _model_folder(self, model: ModelSpec) -> Path | None:
        if model.is_local:
            return Path(model.location)
        cached = self._cached(model.location)
        if cached is not None:
            return cached
        config = written_config(model)
        if config is None:
            return None
        folder = self._folder / model.location.replace("/", "--")
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return folder

    def _running(self, hardware: Hardware) -> _Process:
        if self._process is None or self._hardware != hardware:
            self._end()
            self._hardware = hardware
            self._process = _Process(self.install, self._folder)
            self._process.ask(_setup(hardware), START_LIMIT_S)
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


class _SilentError(Exception):
    """The program gave no answer; the text says why."""


class _Process:
    """The program while it runs: a line in, a line out."""

    def __init__(self, install: EngineInstall, folder: Path) -> None:
        try:
            python = python_of(install.program)
        except OSError as error:
            raise _SilentError(f"{install.program[0]} cannot be read: {error.strerror}") from error
        if python is None:
            raise _SilentError(f"cannot tell which Python runs {install.program[0]}")
        self._errors = folder / "stderr"
        self._unread = b""
        with self._errors.open("wb") as errors:
            try:
                self._process = subprocess.Popen(
                    [str(python), str(PROGRAM)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=_environment(install),
                    cwd=folder,
                    start_new_session=True,
                )
            except OSError as error:
                raise _SilentError(f"{python} cannot be run: {error.strerror}") from error

    def ask(self, message: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """Send one line and wait for one.

        Raises:
            _SilentError: none came in time, or something that is no answer.

        """
        stdin = self._process.stdin
        with suppress(OSError):  # a program that is gone is noticed while reading
            if stdin is not None:
                stdin.write(json.dumps(message).encode() + b"\n")
                stdin.flush()
        line = self._line(time.monotonic() + limit_s)
        try:
            answer = json.loads(line)
        except ValueError as error:
            raise _SilentError(f"the engine's Python gave no answer but {line[:80]!r}") from error
        if not isinstance(answer, dict) or not ({"ready", "verdict"} & answer.keys()):
            raise _SilentError(f"the engine's Python gave no answer but {line[:80]!r}")
        return answer

    def _line(self, limit: float) -> bytes:
        stdout = self._process.stdout
        descriptor = stdout.fileno() if stdout is not None else -1
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while b"\n" not in self._unread:
            left = limit - time.monotonic()
            if left <= 0:
                raise _SilentError("the engine's Python did not answer in time")
            if not poll.poll(left * 1000):
                continue
            read = os.read(descriptor, 65536)
            if not read:
                raise _SilentError(f"the engine's Python ended: {self._last_words()}")
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _last_words(self) -> str:
        lines = self._errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"

    def close(self) -> None:
        """End the program and whatever it started; it holds nothing that could be lost."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # not yet waited for, so the number is still its own
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _environment(install: EngineInstall) -> dict[str, str]:
    """Return the environment of an engine under test, without secrets, offline and quiet."""
    spec = LaunchSpec(program=install.program, arguments=(), bind=(), model="", model_is_local=True, served_name="")
    return {**engine_environment(spec, os.environ), **_QUIET}


def _setup(hardware: Hardware) -> dict[str, Any]:
    if hardware.kind == "cpu":
        return {"gpu": None, "parent": os.getpid()}
    capability = hardware.capability or 0.0
    gpu = {
        "name": hardware.gpus[0].name,
        "capability": [int(capability), round(capability * 10) % 10],
        "memory_bytes": min(gpu.memory_bytes for gpu in hardware.gpus),
        "count": len(hardware.gpus),
    }
    return {"gpu": gpu, "parent": os.getpid()}


def written_config(model: ModelSpec) -> dict[str, Any] | None:
    """Return the config.json of a model that only the table knows, for families where the table says enough of it."""
    family = _facts()["families"].get(model.architecture)
    if family is None or model.quantization is not None or model.layers is None:
        return None
    config = {
        "architectures": [model.architecture],
        "model_type": family["model_type"],
        "num_hidden_layers": model.layers,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_attention_heads": model.attention_heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_context,
        "dtype": model.dtype,
        "tie_word_embeddings": bool(model.tied_embeddings),
        "num_experts_per_tok": model.experts_per_token,
        "moe_intermediate_size": model.moe_intermediate_size,
        family.get("experts", "num_experts"): model.experts,
    }
    return {key: value for key, value in config.items() if value is not None}


def _facts() -> Any:  # noqa: ANN401  (a data file)
    return data("vllm/judge.yaml")
