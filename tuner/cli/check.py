"""`llmtune check`: what is wrong in deployment files, before anybody starts them."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tuner.app import check as app


def check(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Compose files, Kubernetes manifests, scripts, docker run lines, systemd units, env files, engine "
            "configs, Dockerfiles; of a directory all of these, also in those below it."
        ),
    ],
    engine_version: Annotated[
        str | None,
        typer.Option("--engine-version", help="Check against this release instead of the one that the image names."),
    ] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", help="The GPUs there, e.g. h100x8: also checks memory.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="The model, where the files do not name one that is known.")
    ] = None,
    weights_from: Annotated[
        str | None,
        typer.Option(
            "--weights-from",
            help="Read config.json and the weights' exact sizes over the network: hub, or the https address of the "
            "folder of --model. HF_TOKEN is used where it is set.",
        ),
    ] = None,
    ask_engine: Annotated[
        bool,
        typer.Option(
            "--ask-engine",
            help="Also ask the installed vLLM's own configuration layer (needs --gpu; starts no server).",
        ),
    ] = False,
    engine_command: Annotated[
        str | None, typer.Option("--engine-command", help="The vLLM to ask, e.g. /opt/vllm/bin/vllm; default: on PATH.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF 2.1.0, for code hosts.")] = False,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", help="Leave a rule out, by its name; may be given several times.")
    ] = None,
    notes: Annotated[
        bool,
        typer.Option(
            "--notes", "-v", help="Show notes too: what is worth knowing, and no fault; the engine's own defaults."
        ),
    ] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Make the safe fixes in the files; without it a diff shows them.")
    ] = False,
) -> None:
    """Check deployment files against the engine's releases, the model and the GPUs. Runs nothing. Exit 1 on errors."""
    from tuner.app import check as app
    from tuner.errors import UsageError

    if as_json and as_sarif:
        raise UsageError("--json and --sarif exclude one another", hint="choose one")
    if engine_command is not None and not ask_engine:
        raise UsageError("--engine-command is for --ask-engine", hint="add --ask-engine, or leave it out")
    context = app.context_of(engine_version, gpu, model)
    problems: list[str] = []
    if weights_from is not None:
        from tuner.app.remote_weights import with_hub

        context, problems = with_hub(context, weights_from)
    with ExitStack() as stack:
        if ask_engine:
            from tuner.app.ask_engine import asking

            context = stack.enter_context(asking(context, engine_command))
        checked = app.check_paths(files, context, frozenset(ignore or ()))
    for problem in problems:
        typer.echo(f"warning: {problem}", err=True)
    if as_json:
        typer.echo(json.dumps(app.as_json(checked), indent=2))
    elif as_sarif:
        typer.echo(json.dumps(app.as_sarif(checked), indent=2))
    else:
        _show(checked, fix=fix, notes=notes)
    if fix:
        for path in app.write_fixes(checked):
            typer.echo(f"fixed: {path}", err=True)
    if any(item.errors for item in checked):
        raise typer.Exit(1)


def _show(checked: list[app.Checked], *, fix: bool, notes: bool) -> None:
    for item in checked:
        for issue in item.issues:
            if notes or issue.severity != "note" or issue.rule in _ALWAYS:
                typer.echo(issue.text)
    for item in checked:
        if item.diff:
            typer.echo(item.diff, nl=False)
    counts = {level: sum(i.severity == level for item in checked for i in item.issues) for level in _LEVELS}
    shown = ", ".join(f"{count} {level}{'s' if count != 1 else ''}" for level, count in counts.items())
    mendable = any(item.diff for item in checked) and not fix
    hint = "; --fix makes the changes of the diff" if mendable else ""
    idle = sum(item.idle for item in checked)
    rest = f" ({idle} without a server)" if idle else ""
    typer.echo(f"{len(checked)} file{'s' if len(checked) != 1 else ''}{rest}: {shown}{hint}", err=True)


_ALWAYS = (
    "nothing-found",
    "empty",
    "version-new",
    "version-old",
    "unchecked",
    "unreadable",
    "template",
    "image-version",
    "engine-silent",
)
"""Notes that say what was not checked."""
_LEVELS = ("error", "warning", "note")
