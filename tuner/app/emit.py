"""`emit`: a plan's files again, in the usual or in other formats, and the check that they still are what it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tuner.domain.plan import Plan
from tuner.errors import DriftError
from tuner.output import bundle
from tuner.output.emitters import ALWAYS, DEFAULT_TARGETS, EMITTERS, choose


def emit_plan(
    plan: Path, out: Path | None, *, targets: Sequence[str] = (), force: bool = False, frozen: bool = False,
) -> tuple[Path, ...]:
    """Write the files of the plan into `out`, by default beside it, and return their paths.

    Without `targets` the formats of the bundle that lies there are written, or the usual ones.

    Raises:
        LlmtuneError: the plan cannot be read, there is no such target, a file there is not ours or was edited, or
            `frozen` and the lock file says otherwise.

    """
    loaded = bundle.load_plan(plan)
    chosen = _chosen(targets, loaded)
    return bundle.emit(loaded, out or _home(plan), targets=chosen, force=force, frozen=frozen)


def check_plan(plan: Path, out: Path | None, *, targets: Sequence[str] = ()) -> None:
    """Compare the files with the plan.

    Raises:
        DriftError: they differ; the message holds the unified diff.

    """
    loaded = bundle.load_plan(plan)
    diff = bundle.check(loaded, out or _home(plan), _chosen(targets, loaded))
    if diff:
        raise DriftError(f"the files differ from {plan}\n{diff.rstrip()}", hint="llmtune emit writes them again")


def list_targets(plan: Path | None) -> tuple[tuple[str, str, str], ...]:
    """Return name, summary and a remark of every target: `default`, or why this plan cannot be written so."""
    loaded = bundle.load_plan(plan) if plan is not None else None
    return tuple(
        (name, emitter.summary, (loaded and emitter.refusal(loaded)) or ("default" if name in DEFAULT_TARGETS else ""))
        for name, emitter in EMITTERS.items() if name not in ALWAYS
    )


def _chosen(targets: Sequence[str], plan: Plan) -> tuple[str, ...] | None:
    names = [name for text in targets for name in text.split(",")]
    return choose(names, plan) if names else None


def _home(plan: Path) -> Path:
    return plan if plan.is_dir() else plan.parent
