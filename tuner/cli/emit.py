"""`llmtune emit`: write a plan's files again, or check that they are what the plan says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def emit(
    plan: Annotated[
        Path | None, typer.Argument(help="plan.json, or the directory that holds it.", show_default=False)
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target", "-t", metavar="NAME[,NAME...]", show_default=False,
            help="The formats to write, e.g. `compose,k8s`; without it those that are there, or the default ones.",
        ),
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="Write nothing; show every target and whether the plan can be written so.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write here instead of beside the plan.", file_okay=False)
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 12 and print a diff when files differ from the plan.")
    ] = False,
    frozen: Annotated[
        bool, typer.Option("--frozen", help="Write only what llmtune.lock.json says; exit 12 when that would differ.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files that were edited by hand or not written by llmtune.")
    ] = False,
) -> None:
    """Write the files of a plan again, byte for byte. Needs no GPU, no engine and no study."""
    from tuner.app.emit import check_plan, emit_plan, list_targets
    from tuner.errors import UsageError

    modes = [name for name, said in (("--list", list_), ("--check", check), ("--frozen", frozen)) if said]
    if len(modes) > 1 or (modes and force):
        raise UsageError(f"{' and '.join([*modes, *(['--force'] if force else [])])} exclude one another",
                         hint="choose one")
    if list_:
        rows = list_targets(plan)
        width = max(len(name) for name, _, _ in rows)
        for name, summary, remark in rows:
            typer.echo(f"{name:<{width}}  {summary}{f' ({remark})' if remark else ''}")
        return
    if plan is None:
        raise UsageError("no plan is named", hint="name a plan.json or the directory that holds it, or use --list")
    if check:
        check_plan(plan, out, targets=target or ())
        typer.echo("the files are what the plan says", err=True)
        return
    for path in emit_plan(plan, out, targets=target or (), force=force, frozen=frozen):
        typer.echo(path)
