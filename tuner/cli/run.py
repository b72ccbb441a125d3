"""Runs `optimize` for the command line: events to the screen, the result to stdout."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from tuner.app.ask import Ask
from tuner.app.events import Event
from tuner.app.forecast import work_plan
from tuner.app.optimize import optimize
from tuner.app.resolve import Resolved, resolve
from tuner.cli.show import Screen, duration, result_lines
from tuner.cli.signals import interruptible
from tuner.domain.plan import Plan
from tuner.errors import UsageError
from tuner.output.bundle import bundle_directory
from tuner.output.files import check_writable
from tuner.runtime.launchers import LAUNCHERS


def dry(ask: Ask, sources: dict[str, str], *, as_json: bool, verbose: bool) -> None:
    """Resolve the question and print the plan of work; start nothing and write nothing."""
    resolved = resolve(ask, sources)
    check_writable(bundle_directory(resolved.out, resolved.spec.model.name, resolved.spec.name))
    plan = work_plan(resolved, ())
    if as_json:
        Console(soft_wrap=True).print_json(
            json.dumps(
                {
                    "predicted": True,
                    "study": resolved.spec.model_dump(mode="json"),
                    "space_size": plan.size,
                    "counted": plan.counted,
                    "ruled_out": plan.ruled_out,
                    "ruled_out_by": {rule: {"points": n, "example": why} for rule, n, why in plan.by_rule},
                    "closed": [closed.model_dump(mode="json") for closed in plan.closed],
                    "starts": plan.starts,
                    "seconds": plan.seconds,
                }
            )
        )
        return
    with Screen(Console(highlight=False, soft_wrap=True), verbose=verbose) as screen:
        screen.tell(plan)
        if plan.ruled_out == plan.counted and plan.by_rule:
            rule, _, reason = plan.by_rule[0]
            raise UsageError(f"every configuration is ruled out, most of them by {rule}: {reason}",
                             hint="name more or larger GPUs, a smaller model, or loosen what is pinned with --set")
        screen.line(f"dry run: nothing was started; it would take about {duration(plan.seconds)} (PREDICTED)")


def live(ask: Ask, sources: dict[str, str], *, as_json: bool, verbose: bool) -> None:
    """Run the study and print its verdict and the files."""
    resolved = resolve(ask, sources)
    with Screen(Console(stderr=True, highlight=False), verbose=verbose) as screen, interruptible() as raise_again:

        def tell(event: Event) -> None:
            raise_again()
            screen.tell(event)

        plan, folder = optimize(resolved, launcher=LAUNCHERS["process"](), tell=tell)
    if as_json:
        Console(soft_wrap=True).print_json(json.dumps(summary(resolved, plan, folder)))
        return
    out = Console(highlight=False, soft_wrap=True)
    for line in result_lines(plan, folder):
        out.print(line, markup=False)


def summary(resolved: Resolved, plan: Plan, folder: Path) -> dict[str, object]:
    """Return what --json prints."""
    return {
        "study": resolved.spec.name,
        "verdict": plan.verdict.model_dump(mode="json"),
        "settings": plan.config.values,
        "changes": [change.model_dump(mode="json") for change in plan.changes],
        "arms": [
            arm.model_dump(mode="json", include={"label", "trial", "score", "ratio", "meets_slo"}) for arm in plan.arms
        ],
        "plan": str(folder / "plan.json"),
        "deploy": str(folder / "deploy"),
    }
