"""`llmtune models`: the short names that --model takes."""

from __future__ import annotations

import typer


def models() -> None:
    """List the short model names that --model takes, and what they resolve to."""
    from tuner.facts.read import data

    for alias, entry in data("models.yaml")["models"].items():
        typer.echo(f"{alias:<18} {entry['hub']}{'  (gated: needs HF_TOKEN)' if entry['gated'] else ''}")
