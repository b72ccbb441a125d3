"""Traces of real traffic: the public forms of Azure, BurstGPT and Mooncake.

Azure LLM inference traces (https://github.com/Azure/AzurePublicDataset): CSV with TIMESTAMP, ContextTokens,
GeneratedTokens. BurstGPT (https://github.com/HPMLL/BurstGPT): CSV with Timestamp in seconds, Request tokens, Response
tokens. Mooncake (https://github.com/kvcache-ai/Mooncake): JSON lines with timestamp in ms, input_length,
output_length, hash_ids; equal ids are equal blocks of 512 tokens.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from tuner.domain.json_text import parse_json
from tuner.domain.workload import Trace
from tuner.errors import SpaceError

BLOCK_TOKENS = 512
Format = Literal["azure", "burstgpt", "mooncake"]


@dataclass(frozen=True, slots=True)
class TracePoint:
    """One request of a trace; `at_s` counts from the first."""

    at_s: float
    input_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...] = ()


def read_trace(trace: Trace) -> list[TracePoint]:
    """Read the trace's requests in order of time, the first at zero, at the trace's speed.

    Requests without an answer (BurstGPT logs failed ones with zero tokens) are left out.

    Raises:
        SpaceError: the file cannot be read, is not the one that was meant, or a line is wrong (file and line).

    """
    path = Path(trace.path).expanduser()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SpaceError(f"cannot read the trace {path}: {error.strerror}", hint="check the path") from error
    digest = hashlib.sha256(data).hexdigest()
    if trace.sha256 and digest != trace.sha256:
        raise SpaceError(f"{path} is not the trace that was meant: its SHA-256 is {digest}",
                         hint=f"the workload says {trace.sha256}")
    lines = data.decode("utf-8-sig", errors="replace").splitlines()
    form: Format = _detect(path, lines) if trace.format == "auto" else trace.format
    points = sorted(_READERS[form](path, lines), key=lambda point: point.at_s)
    points = [point for point in points if point.input_tokens > 0 and point.output_tokens > 0]
    if not points:
        raise SpaceError(f"{path} holds no request with a prompt and an answer", hint="is it the right file?")
    first = points[0].at_s
    return [replace(point, at_s=(point.at_s - first) / trace.speed) for point in points]


def _detect(path: Path, lines: list[str]) -> Format:
    head = lines[0].lower() if lines else ""
    if head.startswith("{"):
        return "mooncake"
    if "contexttokens" in head:
        return "azure"
    if "request tokens" in head:
        return "burstgpt"
    raise SpaceError(f"{path}:1: this is no trace that llmtune knows",
                     hint="known are Azure (CSV), BurstGPT (CSV) and Mooncake (JSON lines)")


def _azure(path: Path, lines: list[str]) -> Iterator[TracePoint]:
    for number, row in _rows(path, lines, ("TIMESTAMP", "ContextTokens", "GeneratedTokens")):
        with _Line(path, number):
            yield TracePoint(_moment(row["TIMESTAMP"]), int(row["ContextTokens"]), int(row["GeneratedTokens"]))


def _burstgpt(path: Path, lines: list[str]) -> Iterator[TracePoint]:
    for number, row in _rows(path, lines, ("Timestamp", "Request tokens", "Response tokens")):
        with _Line(path, number):
            yield TracePoint(float(row["Timestamp"]), int(row["Request tokens"]), int(row["Response tokens"]))


def _mooncake(path: Path, lines: list[str]) -> Iterator[TracePoint]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        with _Line(path, number):
            row = parse_json(line)
            yield TracePoint(float(row["timestamp"]) / 1000, int(row["input_length"]), int(row["output_length"]),
                             tuple(int(block) for block in row.get("hash_ids", ())))


_READERS: dict[Format, Callable[[Path, list[str]], Iterator[TracePoint]]] = {
    "azure": _azure, "burstgpt": _burstgpt, "mooncake": _mooncake,
}


def _rows(path: Path, lines: list[str], needed: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.DictReader(lines)
    missing = [name for name in needed if name not in (reader.fieldnames or ())]
    if missing:
        raise SpaceError(f"{path}:1: no column {', '.join(missing)}", hint=f"columns are {', '.join(needed)}")
    for row in reader:
        yield reader.line_num, row


def _moment(text: str) -> float:
    """Read Azure's times, which have seven digits behind the point and no zone, or a zone."""
    head, point, tail = text.partition(".")
    if point:
        digits = tail[:len(tail) - len(tail.lstrip("0123456789"))]
        text = f"{head}.{digits[:6]:0<6}{tail[len(digits):]}"
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class _Line:
    """Turns what goes wrong while a line is read into one clear error."""

    def __init__(self, path: Path, number: int) -> None:
        self._where = f"{path}:{number}"

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:  # noqa: ANN401
        if isinstance(error, (ValueError, KeyError, TypeError)):
            raise SpaceError(f"{self._where}: cannot read this request: {error}",
                             hint="correct or remove the line") from error
