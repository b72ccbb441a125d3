"""The command line: `llmtune COMMAND`. Commands import what they run, so that --help answers at once."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tuner import __version__
from tuner.cli import bench, check, emit, explain, models, optimize, plan, studies
from tuner.cli.signals import interruptible
from tuner.errors import LlmtuneError

app = typer.Typer(
    name="llmtune",
    help="Tune LLM inference servers by live trials, and write the deployment files of the winner.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("optimize")(optimize.optimize)
app.command("emit")(emit.emit)
app.command("bench")(bench.bench)
app.command("compare")(bench.compare)
app.command("check")(check.check)
app.command("explain")(explain.explain)
app.command("plan")(plan.plan)
app.command("models")(models.models)
app.add_typer(studies.app)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"llmtune {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Tune LLM inference servers by live trials, and write the deployment files of the winner."""
    del version


def main() -> None:
    """Run the command line; every expected error ends in one message, a hint and the exit code of its kind."""
    try:
        with interruptible():
            app(standalone_mode=True)
    except LlmtuneError as error:
        fail(error)
    except KeyboardInterrupt:
        print("error: stopped", file=sys.stderr)  # noqa: T201
        sys.exit(130)


def fail(error: LlmtuneError) -> None:
    """Print the error and its hint to stderr and exit with its code."""
    print(f"error: {error.message}", file=sys.stderr)  # noqa: T201  (typer's own printing would import rich)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)  # noqa: T201
    sys.exit(error.exit_code)
