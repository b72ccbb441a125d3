"""`llmtune bench` and `llmtune compare`: honest numbers of one running server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tuner.errors import UsageError


def bench(
    url: Annotated[str, typer.Option("--url", help="The server, e.g. http://127.0.0.1:8000.")],
    model: Annotated[str | None, typer.Option("--model", help="Model name; default: the only one it serves.")] = None,
    workload: Annotated[
        str, typer.Option("--workload", help="Preset, YAML file, or short form 512x256@c64, 512x256@10/s.")
    ] = "512x256@c16",
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Clients that each wait for their answer.")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", min=0.001, help="Poisson arrivals, requests/s.")] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Double the clients until it no longer pays or breaks the SLO.")
    ] = False,
    slo: Annotated[str | None, typer.Option("--slo", help='Limits, e.g. "p95 ttft<=300ms, p95 itl<=40ms".')] = None,
    duration: Annotated[str | None, typer.Option("--duration", help="Time of each level, e.g. 60s.")] = None,
    precision: Annotated[
        float | None,
        typer.Option(
            "--precision", min=0.001, max=0.5, help="End a level once throughput is known to this share, e.g. 0.02."
        ),
    ] = None,
    soak: Annotated[str | None, typer.Option("--soak", help="One level for this long, e.g. 1h.")] = None,
    requests: Annotated[int | None, typer.Option("--requests", min=1, help="Measured requests of each level.")] = None,
    api: Annotated[str, typer.Option("--api", help="completions or chat.")] = "completions",
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", help="Name of the environment variable that holds the API key.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of lengths and arrivals.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write bench.json, bench.html and every request here.", file_okay=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier result in --out.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Load one running server of any engine with an OpenAI-style API, and print what it did with intervals."""
    from tuner.app.ask import seconds
    from tuner.app.bench import BenchAsk
    from tuner.app.named import resolve_workload
    from tuner.cli.run_bench import run
    from tuner.domain.slo import Slo, parse_slo
    from tuner.domain.workload import ClosedLoop, OpenLoop

    if sum((concurrency is not None, rate is not None, sweep)) > 1:
        raise UsageError("--concurrency, --rate and --sweep are three ways to say how much load", hint="choose one")
    if soak and (duration or sweep):
        raise UsageError("--soak is one level for a long time", hint="leave out --sweep and --duration")
    if api not in ("completions", "chat"):
        raise UsageError(f"--api {api!r} is unknown", hint="completions or chat")
    key = os.environ.get(api_key_env) if api_key_env else None
    if api_key_env and not key:
        raise UsageError(f"the environment variable {api_key_env} is not set")
    load = resolve_workload(workload, requests)
    if concurrency is not None:
        warm = min(2 * concurrency, 64)
        load = load.model_copy(update={"arrivals": ClosedLoop(concurrency=concurrency), "warmup_requests": warm})
    if rate is not None:
        load = load.model_copy(update={"arrivals": OpenLoop(rate_per_s=rate)})
    length = soak or duration
    run(
        BenchAsk(
            url=url,
            workload=load,
            slo=parse_slo(slo) if slo else Slo(),
            model=model,
            api="chat" if api == "chat" else "completions",
            api_key=key,
            sweep=sweep,
            seed=seed,
            out=out,
            force=force,
            precision=precision,
            duration_s=seconds(length, "--soak" if soak else "--duration") if length else None,
        ),
        as_json=json,
    )


def compare(
    a: Annotated[Path, typer.Argument(help="bench.json, or the directory that holds it.")],
    b: Annotated[Path, typer.Argument(help="The other one.")],
    json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON on stdout.")] = False,
) -> None:
    """Compare two results of bench, level by level: the ratio B/A of every metric with its interval."""
    from tuner.cli.run_bench import run_compare

    run_compare(a, b, as_json=json)
