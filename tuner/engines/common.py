"""What adapters share: reading logs by patterns that are data, and refusing secrets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

from tuner.domain.engine import ENV_PREFIX
from tuner.domain.trial import FailureKind
from tuner.engines.base import Diagnosis
from tuner.errors import FlagError
from tuner.facts.read import data

GIB = 1 << 30
_MOST_CHARACTERS = 400
_SECRET = re.compile(r"SECRET|(?:^|[_:])(?:TOKEN|PASSWORD|PASSWD|CREDENTIALS?|KEY|KEY_ID)$")

Complaint = Callable[[str], str | None]
"""Takes a line of a log and returns what it complains of, without the logger's own words; None for other lines."""


def refuse_secret(flag: str) -> None:
    """Refuse an environment variable whose name says that it holds a secret.

    Raises:
        FlagError: settings are written to files.

    """
    if flag.startswith(ENV_PREFIX) and _SECRET.search(flag):
        raise FlagError(
            f"{flag} looks like a secret, and settings are written to files",
            hint="set it in the environment; deployment files pass it on by name",
        )


class Cause(NamedTuple):
    """A pattern that a log's complaint matches: its kind and name, the complaint, its line (from 1), named groups."""

    kind: FailureKind
    id: str
    reason: str
    line: int
    groups: dict[str, str]


def find_cause(engine: str, log: str, complaint: Complaint) -> Cause | None:
    """Return what the first of the engine's patterns finds in the log's complaints, or None."""
    lines = [(number, text) for number, line in enumerate(log.splitlines(), 1) if (text := complaint(line))]
    for kind, name, pattern, quick in _patterns(engine):
        for number, line in lines:
            match = pattern.search(line) if quick.search(line) else None
            if match:
                text = match[1] if pattern.groups and match[1] else match[0]
                text = re.sub(r" \[type=\w+, input_value=.*$", "", text).strip()
                groups = {key: value for key, value in match.groupdict().items() if value is not None}
                return Cause(kind, name, text[:_MOST_CHARACTERS], number, groups)
    return None


def root_cause(engine: str, log: str, complaint: Complaint) -> Diagnosis | None:
    """Return kind and reason of what `find_cause` finds, or None."""
    cause = find_cause(engine, log, complaint)
    return None if cause is None else Diagnosis((cause.kind, cause.reason))


def fatal_line(engine: str, log: str, complaint: Complaint) -> str | None:
    """Return the first complaint that names one of the engine's fatal texts, as the whole line."""
    for text in data(f"{engine}/failures.yaml")["fatal"]:
        position = log.find(text)
        while position >= 0:
            line = log[log.rfind("\n", 0, position) + 1 :].split("\n", 1)[0]
            if text in (complaint(line) or ""):
                return line.strip()
            position = log.find(text, position + 1)
    return None


def furthest_phase(engine: str, log: str) -> str:
    """Return the name of the last of the engine's phases that the log mentions."""
    current = "starting"
    for entry in data(f"{engine}/failures.yaml")["phases"]:
        if re.search(entry["pattern"], log):
            current = entry["name"]
    return current


def without_known_cause(exit_code: int | None) -> Diagnosis:
    """Say what an exit code alone tells."""
    if exit_code is None:
        return Diagnosis((FailureKind.HUNG, "still running without an answer, and the log names no error"))
    if exit_code in (-9, 137):
        return Diagnosis((FailureKind.OUT_OF_MEMORY, "killed by SIGKILL, most often by the out-of-memory killer"))
    if exit_code == 2:
        return Diagnosis((FailureKind.BAD_FLAG, "the argument parser refused the command line"))
    return Diagnosis((FailureKind.CRASHED, f"exit code {exit_code}, and the log names no known error"))


def last(log: str, pattern: str) -> str | None:
    """Return the first group of the pattern's last match."""
    found: list[str] = re.findall(pattern, log)
    return found[-1] if found else None


def gib(log: str, pattern: str) -> int | None:
    """Return the bytes of the last match, whose first group is a number of GiB."""
    found = last(log, pattern)
    return int(float(found) * GIB) if found else None


def matching_lines(log: str, patterns: Iterable[str]) -> tuple[str, ...]:
    """Return each text that one of the patterns finds, once, in the order of the log."""
    joined = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    return tuple(dict.fromkeys(match[0].strip() for match in joined.finditer(log)))


def quick_form(pattern: str) -> re.Pattern[str]:
    """Return a pattern without the `.*` in front, which finds the same lines much faster."""
    return re.compile("(" + pattern[3:] if pattern.startswith("(.*") else pattern)


@cache
def _patterns(engine: str) -> tuple[tuple[FailureKind, str, re.Pattern[str], re.Pattern[str]], ...]:
    entries: list[dict[str, Any]] = data(f"{engine}/failures.yaml")["patterns"]
    return tuple(
        (
            FailureKind(entry["kind"]),
            entry.get("id", entry["kind"]),
            re.compile(entry["pattern"]),
            quick_form(entry["pattern"]),
        )
        for entry in entries
    )
