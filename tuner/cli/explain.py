"""`llmtune explain`: why an engine did not start, or stopped."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def explain(
    log: Annotated[str, typer.Argument(help="A log file of vLLM, TensorRT-LLM or llama.cpp, or - for standard input.")],
    engine: Annotated[
        str | None, typer.Option("--engine", help="Whose log it is: vllm, trtllm or llamacpp. Found out by default.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="The model, where the log does not name one that is known.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find the root cause in a log, work its numbers through and say what helps. Exit 1 when nothing known is in it."""
    from tuner.app.explain import explain_log

    found = explain_log(log, engine=engine, model=model)
    if as_json:
        typer.echo(
            json.dumps({"schema_version": 1, "causes": [item.model_dump(mode="json") for item in found]}, indent=2)
        )
    elif found:
        typer.echo("\n\n".join(item.text for item in found))
    else:
        typer.echo("no known cause of a failure in this log", err=True)
    if not found:
        raise typer.Exit(1)
