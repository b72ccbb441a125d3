"""`llmtune emit`: write a plan's files again, or check that they are what the plan says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def emit(
    plan: Annotated[Path, typer.Argument(help="plan.json, or the directory that holds it.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Write here instead of beside the plan.", file_okay=False)
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 12 and print a diff when files differ from the plan.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files that were edited by hand or not written by llmtune.")
    ] = False,
) -> None:
    """Write the files of a plan again, byte for byte. Needs no GPU, no engine and no study."""
    from tuner.app.emit import check_plan, emit_plan

    if check:
        check_plan(plan, out)
        typer.echo("the files are what the plan says", err=True)
        return
    for path in emit_plan(plan, out, force=force):
        typer.echo(path)
