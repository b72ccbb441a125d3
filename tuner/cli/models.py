"""`llmtune models`: the short names that --model and --gpu take."""

from __future__ import annotations

from typing import Annotated

import typer


def models(
    gpus: Annotated[bool, typer.Option("--gpus", help="List the GPU names that --gpu takes instead.")] = False,
) -> None:
    """List the short model names that --model takes, and what they resolve to."""
    from tuner.facts.read import data

    if gpus:
        from tuner.facts.gpus import gpu_table

        for gpu in gpu_table().values():
            typer.echo(f"{', '.join(gpu.aliases):<42} {gpu.name}")
        return

    for alias, entry in data("models.json")["models"].items():
        typer.echo(f"{alias:<18} {entry['hub']}{'  (gated: needs HF_TOKEN)' if entry['gated'] else ''}")
