"""The files that the program itself reads, e.g. its configuration as YAML, each with the header of the plan."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.domain.engine import LaunchFile
from tuner.domain.plan import Plan
from tuner.output.header import header_lines
from tuner.output.quoting import comment


class LaunchFilesEmitter:
    """Files of the launch spec, for the start scripts and Compose to pass on."""

    name = "files"
    summary = "the files that the program itself reads"

    def refusal(self, plan: Plan) -> str | None:  # noqa: ARG002
        """Say nothing: every plan can be written so."""
        return None

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return each file of the launch spec under its own name."""
        return launch_files(plan)


def launch_files(plan: Plan) -> dict[str, str]:
    """Return the text of each file of the launch spec, with the plan's header."""
    return {file.name: _with_header(plan, file) for file in plan.launch.files}


def _with_header(plan: Plan, file: LaunchFile) -> str:
    """Put the header on top, below a `#!` line if there is one."""
    first, line_end, rest = file.text.partition("\n")
    head = "\n".join(map(comment, header_lines(plan)))
    body = file.text
    if first.startswith("#!"):
        head, body = f"{first}{line_end}{head}", rest
    return f"{head}\n{body.rstrip()}\n"
