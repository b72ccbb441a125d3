"""What the log of an engine says of itself: which engine, which release, and the numbers of its memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tuner.domain.trial import FailureKind
from tuner.engines import trtllm, vllm
from tuner.engines.common import Cause, Complaint, find_cause, furthest_phase
from tuner.facts.read import data

_ENGINES = (
    ("trtllm", re.compile(r"\[TRT-LLM\]|\[TensorRT-LLM\]|tensorrt_llm|trtllm-")),
    ("llamacpp", re.compile(r"llama_model_load|ggml_|llama-server|llama_context|load_tensors:|srv +\w+:|GGUF")),
    ("vllm", re.compile(r"vllm|EngineCore|api_server\.py|\[core\.py")),
)
_COMPLAINTS: dict[str, Complaint] = {"vllm": vllm.complaint, "trtllm": trtllm.complaint}
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_DOCKER = re.compile(
    r"^(?:[\w.-]+[ \t]+\| )?(?:\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) )?(?:std(?:out|err) [FP] )?", re.MULTILINE
)
"""What Compose and container runtimes put in front of a line."""


@dataclass(frozen=True)
class LogReading:
    """A log with its cause and the texts of its numbers, by the names of log_readings.yaml and of groups."""

    engine: str
    cause: Cause | None
    symptoms: tuple[Cause, ...]
    texts: dict[str, str]
    phase: str
    """Where the start stood at the line of the cause."""


def read_log(text: str, engine: str | None = None) -> LogReading:
    """Read a log; which engine wrote it is found by its words, unless said. Never raises on what is in it."""
    log = _DOCKER.sub("", _ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))
    named = engine or next((name for name, pattern in _ENGINES if pattern.search(log)), None)
    name, cause = named or "vllm", None
    for candidate in (named,) if named else ("vllm", "llamacpp", "trtllm"):
        cause = find_cause(candidate, log, _COMPLAINTS.get(candidate, _any_line))
        if cause is not None:
            name = candidate
            break
    readings: dict[str, list[str]] = data("log_readings.yaml")["readings"]
    texts = {key: found for key, patterns in readings.items() if (found := _first(log, patterns)) is not None}
    if cause is not None:
        texts |= cause.groups
    before = "\n".join(log.split("\n")[: cause.line]) if cause is not None else log
    return LogReading(name, cause, tuple(_symptoms(name, log)), texts, furthest_phase(name, before))


def _symptoms(engine: str, log: str) -> list[Cause]:
    """Find what is said in passing; kind does not matter for it."""
    found: list[Cause] = []
    for entry in data(f"{engine}/failures.yaml").get("symptoms", ()):
        match = re.search(entry["pattern"], log)
        if match:
            groups = {key: value for key, value in match.groupdict().items() if value is not None}
            line = log.count("\n", 0, match.start()) + 1
            found.append(Cause(FailureKind.MACHINE, entry["id"], match[0].strip()[:400], line, groups))
    return sorted(found, key=lambda cause: cause.line)


def _any_line(line: str) -> str | None:
    return line.strip() or None


def _first(log: str, patterns: list[str]) -> str | None:
    for pattern in patterns:
        match = re.search(pattern, log)
        if match:
            return match[1].replace(",", "")
    return None
