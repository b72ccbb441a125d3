"""Rules about systemd units around a server."""

from __future__ import annotations

import re

from tuner.inspect.issue import Report, Word
from tuner.inspect.lint_environment import variable
from tuner.inspect.read_scripts import Unit
from tuner.inspect.shell import read_shell
from tuner.inspect.view import View

_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
_SHELL_ONLY = re.compile(r"(?:^|\s)(?:&&|\|\||\||;|>|<|2>&1)(?:\s|$)|\$\(|`")


def lint_unit(unit: Unit, views: list[View], report: Report) -> None:
    """Check a systemd unit."""
    for problem in unit.problems:
        report.error(problem.line, "unit-syntax", problem.message)
    for key in ("StartLimitIntervalSec", "StartLimitBurst"):
        for word in unit.of(key, "Service"):
            report.error(
                word.line, "unit-section", f"{key} in [Service] is ignored with a warning", "move it to [Unit]"
            )
    for word in unit.of("ExecStart"):
        _exec_start(word, report)
    _service(unit, report, starts_server=bool(views))
    for word in unit.of("Environment"):
        for name, words in read_shell(word.text, word.line).assigned.items():
            if words:
                variable(name, words[0]._replace(line=word.line), report)
    for view in views:
        wait = view.arguments.count("shutdown-timeout")
        stop = unit.of("TimeoutStopSec")
        if wait is not None and stop and stop[0].text.isdigit() and int(stop[0].text) < wait + 15:
            report.warning(
                stop[0].line, "grace-short", f"killed after {stop[0].text} s, but --shutdown-timeout is {wait} s"
            )


def _service(unit: Unit, report: Report, *, starts_server: bool) -> None:
    for word in unit.of("Restart"):
        if word.text == "always" and not unit.of("StartLimitBurst", "Unit") and starts_server:
            report.warning(
                word.line,
                "restart-loop",
                "Restart=always: a configuration that cannot start is tried again and again",
                "Restart=on-failure, and StartLimitBurst and StartLimitIntervalSec in [Unit]",
            )
    for word in unit.of("Type"):
        if word.text in ("notify", "forking") and starts_server:
            report.error(
                word.line,
                "unit-type",
                f"Type={word.text}: the server neither notifies systemd nor forks, so the start times out",
                "Type=exec",
            )


def _exec_start(word: Word, report: Report) -> None:
    text = word.text.lstrip("@-:+!|")
    program = text.split(None, 1)[0] if text.split() else ""
    if program and not program.startswith("/") and "/" in program:
        report.error(word.line, "unit-path", f"ExecStart={program}: systemd wants an absolute path", "write it in full")
    through_shell = re.match(r"\S*/?(?:ba|da)?sh\s+-\w*c\b", text)
    if not through_shell and _SHELL_ONLY.search(_QUOTED.sub("", text)):
        report.error(
            word.line,
            "unit-shell",
            "ExecStart is no shell: pipes, redirections, && and $(...) are passed on as words",
            "put the command into a script",
        )
