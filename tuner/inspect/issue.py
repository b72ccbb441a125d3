"""Issue: one thing that a check has to say about one line of a file, and what would make it right."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tuner.domain.record import Record

Severity = Literal["error", "warning", "note"]
RANK: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


class Edit(Record):
    """A change inside one line that keeps the meaning of all others; `new` None takes the whole line away."""

    line: int
    old: str
    new: str | None


class Issue(Record):
    """`error`: cannot work, or does silently something else. `warning`: works, with a known cost or risk.

    `note`: worth knowing, or a part that could not be read. Lines count from 1.
    """

    file: str
    line: int
    severity: Severity
    rule: str
    message: str
    fix: str = ""
    source: str = ""
    edit: Edit | None = None

    @property
    def text(self) -> str:
        """`file:line: severity rule: message`, and the fix on a line of its own."""
        head = f"{self.file}:{self.line}: {self.severity} {self.rule}: {self.message}"
        return f"{head}\n    fix: {self.fix}" if self.fix else head


class Word(NamedTuple):
    """One word of a command, where it stands, and what could not be known of it.

    `unset` names variables that nothing in the file sets; `open` says that the text is not the whole truth (a variable
    without value, a command substitution); `default` says that the text is what a variable falls back to.
    """

    text: str
    line: int
    open: bool = False
    default: bool = False
    unset: tuple[str, ...] = ()
    item: bool = False
    """Whether the word was one element of a list (YAML), so that spaces in it were not split."""


def ordered(issues: list[Issue]) -> tuple[Issue, ...]:
    """Sort by line, errors first within a line, each said once."""
    unique = {(item.file, item.line, item.rule, item.message): item for item in issues}
    return tuple(sorted(unique.values(), key=lambda item: (item.file, item.line, RANK[item.severity], item.rule)))


class Report:
    """Collects the issues of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.issues: list[Issue] = []

    def say(self, severity: Severity, line: int, rule: str, text: tuple[str, str], edit: Edit | None = None) -> None:
        """Add an issue; `text` is the message and the fix."""
        message, fix = text
        self.issues.append(
            Issue(file=self.file, line=max(line, 1), severity=severity, rule=rule, message=message, fix=fix, edit=edit)
        )

    def error(self, line: int, rule: str, message: str, fix: str = "", *, edit: Edit | None = None) -> None:
        """Say that something cannot work, or silently does something else."""
        self.say("error", line, rule, (message, fix), edit)

    def warning(self, line: int, rule: str, message: str, fix: str = "", *, edit: Edit | None = None) -> None:
        """Say that something works, with a known cost or risk."""
        self.say("warning", line, rule, (message, fix), edit)

    def note(self, line: int, rule: str, message: str, fix: str = "", *, edit: Edit | None = None) -> None:
        """Say something worth knowing."""
        self.say("note", line, rule, (message, fix), edit)
