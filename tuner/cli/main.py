"""The command line: `llmtune COMMAND`. Commands import what they run, so that --help answers at once."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import Annotated

import typer

from tuner import __version__
from tuner.cli import bench, check, emit, explain, models, optimize, plan, studies
from tuner.cli.signals import interruptible
from tuner.errors import InternalError, LlmtuneError, OutputError

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
            try:
                app(standalone_mode=True)
            finally:
                if sys.stdout is not None:  # closed from the start, as by >&-
                    sys.stdout.flush()
    except LlmtuneError as error:
        fail(error)
    except KeyboardInterrupt:
        print("error: stopped", file=sys.stderr)  # noqa: T201
        sys.exit(130)
    except OSError as error:
        _leave_stdout()
        fail(OutputError(f"cannot use {error.filename or 'the standard output'}: {error.strerror or error}",
                         hint="make room or choose another place, and run the command again"))
    except Exception:  # noqa: BLE001  (whatever it is, the user learns whose fault it is)
        traceback.print_exc()
        fail(InternalError("this is a fault of llmtune, and not of what it was given",
                           hint="please report it with the lines above and what `llmtune --version` says"))


def _leave_stdout() -> None:
    """Give up on a standard output that takes nothing, so that Python's own last flush does not fail as well."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(error: LlmtuneError) -> None:
    """Print the error and its hint to stderr and exit with its code."""
    print(f"error: {error.message}", file=sys.stderr)  # noqa: T201  (typer's own printing would import rich)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)  # noqa: T201
    sys.exit(error.exit_code)
