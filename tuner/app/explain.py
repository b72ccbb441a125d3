"""`llmtune explain`: the root cause of a log, what its numbers come to, and what to do about it."""

from __future__ import annotations

import sys
from pathlib import Path

from tuner.app.check import model_of
from tuner.errors import SpaceError, UsageError
from tuner.inspect.explain import Explanation, explain
from tuner.inspect.log import read_log

_MOST_BYTES = 64_000_000
ENGINES = ("vllm", "trtllm", "llamacpp")


def explain_log(name: str, *, engine: str | None = None, model: str | None = None) -> tuple[Explanation, ...]:
    """Explain the log in a file, or on standard input for `-`; empty when nothing known is in it.

    Raises:
        UsageError: no such engine, or no such file.
        SpaceError: a file that cannot be read.
        ModelError: no such model.

    """
    if engine is not None and engine not in ENGINES:
        raise UsageError(f"unknown engine {engine!r}", hint=f"one of: {', '.join(ENGINES)}")
    spec = model_of(model) if model is not None else None
    return explain(read_log(_text(name), engine), spec)


def _text(name: str) -> str:
    if name == "-":
        return sys.stdin.buffer.read(_MOST_BYTES).decode("utf-8", errors="replace")
    path = Path(name)
    if not path.exists():
        raise UsageError(f"{name}: no such file", hint="give a log file, or - to read standard input")
    try:
        with path.open("rb") as stream:
            raw = stream.read(_MOST_BYTES)
    except OSError as error:
        raise SpaceError(f"{name}: cannot be read: {error.strerror or error}") from None
    return raw.decode("utf-8", errors="replace")
