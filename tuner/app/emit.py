"""`emit`: a plan's files again, and the check that they are still what it says."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import DriftError
from tuner.output import bundle


def emit_plan(plan: Path, out: Path | None, *, force: bool = False) -> tuple[Path, ...]:
    """Write all files of the plan into `out`, by default beside it, and return their paths.

    Raises:
        LlmtuneError: the plan cannot be read, or a file there is not ours or was edited.

    """
    return bundle.emit(bundle.load_plan(plan), out or _home(plan), force=force)


def check_plan(plan: Path, out: Path | None) -> None:
    """Compare the files with the plan.

    Raises:
        DriftError: they differ; the message holds the unified diff.

    """
    diff = bundle.check(bundle.load_plan(plan), out or _home(plan))
    if diff:
        raise DriftError(f"the files differ from {plan}\n{diff.rstrip()}", hint="llmtune emit writes them again")


def _home(plan: Path) -> Path:
    return plan if plan.is_dir() else plan.parent
