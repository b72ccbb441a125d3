"""`llmtune studies`: look at studies, also while somebody works on them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="studies",
    help="Look at studies and their trials, also while somebody works on them. Read only.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Format(StrEnum):
    """The forms of a table."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


Out = Annotated[Path, typer.Option("--out", help="Where studies are.", file_okay=False)]
Storage = Annotated[
    str | None,
    typer.Option("--storage", help="Optuna storage URL, as optimize was given it; default: the journals under --out."),
]
Name = Annotated[str, typer.Argument(metavar="STUDY", help="The study's name, or MODEL/STUDY.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_(out: Out = Path("outputs"), storage: Storage = None, as_json: Json = False) -> None:
    """List the studies: what they ask, how far they are, the best so far, and who works on them."""
    from tuner.cli.run_studies import run_list

    run_list(out, storage, as_json=as_json)


@app.command("show")
def show(study: Name, out: Out = Path("outputs"), storage: Storage = None, as_json: Json = False) -> None:
    """Show one study: the question, every trial with its outcome and reason, and which settings matter."""
    from tuner.cli.run_studies import run_show

    run_show(study, out, storage, as_json=as_json)


@app.command("export")
def export(
    study: Name,
    format_: Annotated[
        Format, typer.Option("--format", help="csv, json, or parquet (needs llmtune[parquet] and --to).")
    ] = Format.CSV,
    to: Annotated[
        Path | None, typer.Option("--to", help="The file to write; default: standard output.", dir_okay=False)
    ] = None,
    out: Out = Path("outputs"),
    storage: Storage = None,
) -> None:
    """Write a table with one row a trial: outcome, every setting, score and every metric with its interval."""
    from tuner.app.studies import export_study

    text = export_study(study, out, storage, form=format_.value, to=to)
    typer.echo(text if to is None else f"written to {to}", nl=to is not None, err=to is not None)
