"""`llmtune optimize`: options, and the way from them to a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.errors import UsageError

Text = str | None
Count = int | None


def optimize(
    model: Annotated[
        Text, typer.Option("--model", help="Directory with config.json, hub id, or short name (llmtune models).")
    ] = None,
    workload: Annotated[
        Text,
        typer.Option(
            "--workload",
            help="Preset (chat, rag, summarize, code, agent, batch), YAML file, or short form 512x256@c64, "
            "512x256@10/s. Default: chat.",
        ),
    ] = None,
    slo: Annotated[
        Text, typer.Option("--slo", help='Limits, e.g. "p95 ttft<=300ms, p95 itl<=40ms, error_rate<=0.1%".')
    ] = None,
    objective: Annotated[
        Text,
        typer.Option(
            "--objective",
            help="output_tokens_per_s (default), requests_per_s, goodput_per_s, max_concurrency, max_rate, p95_ttft, "
            "p95_itl, p95_e2e, mean_e2e, cost_per_mtok, joules_per_token. Several, by commas: the first decides, the "
            "Pareto front over all is shown.",
        ),
    ] = None,
    baseline: Annotated[
        Text,
        typer.Option(
            "--baseline", help='Your present command ("vllm serve ...") or a file with it: trial 1, and the bar.'
        ),
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option("--set", help="Pin a setting in every trial: flag=value, env:NAME=value, flag=unset. Repeatable."),
    ] = None,
    space: Annotated[Text, typer.Option("--space", help="Search space (YAML); default: the engine's own.")] = None,
    trials: Annotated[Count, typer.Option("--trials", min=1, help="Configurations to launch. Default: 20.")] = None,
    budget: Annotated[Text, typer.Option("--budget", help="Time for search and verification, e.g. 2h.")] = None,
    finalists: Annotated[Count, typer.Option("--finalists", min=1, help="Best ones to verify. Default: 2.")] = None,
    verify_rounds: Annotated[
        Count, typer.Option("--verify-rounds", min=2, help="Fresh servers for each finalist. Default: 3.")
    ] = None,
    requests: Annotated[Count, typer.Option("--requests", min=1, help="Measured requests of a trial.")] = None,
    study: Annotated[Text, typer.Option("--study", help="Name of the study; the same name goes on with it.")] = None,
    study_file: Annotated[
        Path | None, typer.Option("--study-file", help="YAML file with any of these options.", dir_okay=False)
    ] = None,
    storage: Annotated[
        Text, typer.Option("--storage", help="Optuna storage URL; default: a journal file in the study's folder.")
    ] = None,
    out: Annotated[Text, typer.Option("--out", help="Where studies and plans go. Default: outputs.")] = None,
    seed: Annotated[Count, typer.Option("--seed", min=0, help="Seed of search and workload. Default: 0.")] = None,
    engine: Annotated[Text, typer.Option("--engine", help="Inference engine. Default: vllm.")] = None,
    engine_command: Annotated[
        Text, typer.Option("--engine-command", help="The engine's program, e.g. /opt/vllm/bin/vllm; default: on PATH.")
    ] = None,
    image: Annotated[
        Text, typer.Option("--image", help="Image for the deployment files; default: the release's own.")
    ] = None,
    model_name: Annotated[Text, typer.Option("--model-name", help="Name that clients use for the model.")] = None,
    start_timeout: Annotated[
        Text, typer.Option("--start-timeout", help="Longest start, e.g. 20m; default: by size of the model.")
    ] = None,
    max_failures: Annotated[
        Count, typer.Option("--max-failures", min=1, help="Stop searching after so many failed launches.")
    ] = None,
    gpu_hours: Annotated[
        float | None, typer.Option("--gpu-hours", help="Stop searching in time to stay within these device hours.")
    ] = None,
    soak: Annotated[
        Text, typer.Option("--soak", help="Load the winner for this long after the verification, e.g. 1h.")
    ] = None,
    accept_busy: Annotated[
        bool, typer.Option("--accept-busy", help="Do not repeat what other programs may have disturbed.")
    ] = False,
    price: Annotated[
        float | None, typer.Option("--price", help="USD per device and hour, for cost_per_mtok.")
    ] = None,
    sampler: Annotated[Text, typer.Option("--sampler", help="llmtune (default), tpe or random.")] = None,
    warm_start: Annotated[
        Text, typer.Option("--warm-start", help="Folder of an earlier study, whose best are tried first.")
    ] = None,
    gpu: Annotated[Text, typer.Option("--gpu", help="With --dry-run: GPUs that are not here, e.g. h100x8.")] = None,
    engine_version: Annotated[
        Text, typer.Option("--engine-version", help="With --dry-run: a release that is not installed here.")
    ] = None,
    simulate: Annotated[
        Text,
        typer.Option("--simulate", help="Rehearse on the simulator with GPUs that are not here, e.g. h100x8: seconds."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done and what is ruled out; start nothing.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Say more: reasons, phases, log tails.")] = False,
) -> None:
    """Find the settings that serve your traffic best by starting the real engine, and write their deployment files."""
    from tuner.app.ask import Ask, merge
    from tuner.app.given import given
    from tuner.cli.run import dry, live

    ask = given(
        Ask,
        model=model,
        workload=workload,
        slo=slo,
        objective=objective,
        baseline=baseline,
        set=tuple(set or ()),
        space=space,
        trials=trials,
        budget=budget,
        finalists=finalists,
        verify_rounds=verify_rounds,
        requests=requests,
        study=study,
        storage=storage,
        out=out,
        seed=seed,
        engine=engine,
        engine_command=engine_command,
        image=image,
        model_name=model_name,
        start_timeout=start_timeout,
        max_failures=max_failures,
        gpu_hours=gpu_hours,
        soak=soak,
        accept_busy=accept_busy or None,
        price=price,
        sampler=sampler,
        warm_start=warm_start,
        gpu=simulate or gpu,
        engine_version=engine_version,
    )
    merged, sources = merge(ask, study_file)
    if simulate is not None:
        from tuner.cli.run_simulated import simulated

        simulated(merged, sources, as_json=json)
        return
    if (merged.gpu or merged.engine_version) and not dry_run:
        raise UsageError(
            "--gpu and --engine-version describe what is not here", hint="add --dry-run, or leave them out"
        )
    if dry_run:
        dry(merged, sources, as_json=json, verbose=verbose)
    else:
        live(merged, sources, as_json=json, verbose=verbose)
