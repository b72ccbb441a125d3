"""`llmtune plan`: capacity and cost before anyone rents a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tuner.app.plan import Answer, Option

_SHOWN = 12


def plan(
    model: Annotated[str, typer.Option("--model", help="Short name (llmtune models), hub id, or directory.")],
    gpu: Annotated[
        str, typer.Option("--gpu", help="GPU type, or several to compare: h100,h200,l40s. h100x8: how many there are.")
    ],
    gpus: Annotated[
        int | None, typer.Option("--gpus", min=1, help="How many there are; without it, how many are needed is found.")
    ] = None,
    rate: Annotated[str | None, typer.Option("--rate", help="Requests: 20/s, 600/min, 50000/day.")] = None,
    workload: Annotated[
        str, typer.Option("--workload", help="Preset, YAML file, or short form 512x256@c64, 512x256@10/s.")
    ] = "chat",
    slo: Annotated[str | None, typer.Option("--slo", help='Limits, e.g. "p99 ttft<=500ms, p95 itl<=40ms".')] = None,
    price: Annotated[
        list[str] | None, typer.Option("--price", help="USD of one GPU-hour: h100=2.50. Repeatable.")
    ] = None,
    prices: Annotated[
        str | None, typer.Option("--prices", help="YAML file of prices instead of the bundled, dated examples.")
    ] = None,
    api_price: Annotated[
        str | None,
        typer.Option("--api-price", help="USD of a hosted API for a million tokens, prompt/answer: 0.20/0.60."),
    ] = None,
    reserved: Annotated[
        bool, typer.Option("--reserved", help="Rank by prices with a commitment instead of on-demand ones.")
    ] = False,
    headroom: Annotated[float, typer.Option("--headroom", help="Share of each replica that is kept free.")] = 0.2,
    lossless: Annotated[
        bool, typer.Option("--lossless", help="Leave out FP8 weights and FP8 KV cache that the checkpoint has not.")
    ] = False,
    from_study: Annotated[
        str | None, typer.Option("--from-study", help="Directory of a measured plan of this model: calibrates with it.")
    ] = None,
    engine_version: Annotated[
        str | None, typer.Option("--engine-version", help="vLLM release; default: the newest that is known.")
    ] = None,
    weights_from: Annotated[
        str | None,
        typer.Option("--weights-from", help="Read config.json and the exact sizes of the weights over the network: "
                     "hub, or the https address of the model's folder. HF_TOKEN is used where it is set."),
    ] = None,
    engines: Annotated[
        str | None,
        typer.Option("--engines", help="Which engine suits the load, with reasons: vllm,trtllm,llama.cpp,ollama."),
    ] = None,
    refresh_prices: Annotated[
        Path | None,
        typer.Option("--refresh-prices", dir_okay=False,
                     help="Download today's on-demand prices into this file and plan with them (extra `prices`)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the best option's deployment files there.", file_okay=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say which GPUs, how many and which settings serve a load, and what it costs. PREDICTED: nothing is started."""
    from tuner.app.given import given
    from tuner.app.plan import make_plan
    from tuner.app.plan_ask import PlanAsk

    if refresh_prices is not None:
        from tuner.app.refresh_prices import refresh

        typer.echo(f"{refresh(refresh_prices)} prices written to {refresh_prices}", err=True)
        prices = prices or str(refresh_prices)
    ask = given(PlanAsk, model=model, gpu=gpu, gpus=gpus, rate=rate, workload=workload, slo=slo,
                price=tuple(price or ()), prices=prices, api_price=api_price, headroom=headroom, lossless=lossless,
                from_study=from_study, engine_version=engine_version, weights_from=weights_from, reserved=reserved,
                engines=engines)
    study = None
    if from_study is not None:
        from tuner.app.plan_files import load_study

        study = load_study(Path(from_study))
    planned = make_plan(ask, study)
    if as_json:
        typer.echo(planned.answer.model_dump_json(indent=2))
    else:
        _show(planned.answer)
    if out is not None:
        from tuner.app.plan_files import emit_planned

        for path in emit_planned(planned, out):
            typer.echo(path, err=as_json)


def _show(answer: Answer) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if Console().is_terminal else 200, highlight=False)
    limits = f", SLO {answer.slo}" if answer.slo else ""
    load = f"workload {answer.workload}, {answer.load}{limits}, headroom {answer.headroom:.0%}"
    console.print(f"PREDICTED for {answer.model} on {answer.engine}, {load}")
    title = "PREDICTED, nothing was measured. Best first; * on the Pareto front of cost and p95 end to end"
    table = Table(box=box.SIMPLE, title=title, title_justify="left")
    for name in ("", "GPUs", "N+1", "each server", "req/s a server (80 %)", "out tok/s", "TTFT p50/p95/p99 ms",
                 "ITL p50/p95/p99 ms", "serves", "$/h", "$/month", "$/M out"):
        table.add_column(name, justify="left" if name in ("", "each server", "serves") else "right")
    for option in answer.options[:_SHOWN]:
        table.add_row(*_row(option))
    console.print(table)
    best = answer.options[0]
    parts = ", ".join(f"{name} {value:g}" for name, value in best.memory.items() if name != "KiB of KV cache a token")
    console.print(f"PREDICTED memory of the first, GiB a GPU: {parts} ({best.memory_verdict}); "
                  f"{best.memory['KiB of KV cache a token']:g} KiB of KV cache a token")
    console.print("settings of the first: " + " ".join(f"--{flag} {value}" for flag, value in best.settings.items()))
    for option in {option.gpu: option for option in reversed(answer.options)}.values():
        console.print(f"price of {option.gpu}: {option.price or 'not known'}")
        if option.reserved and option.reserved != option.price and option.cost_reserved:
            console.print(f"  with a commitment: {option.reserved}, so PREDICTED "
                          f"${option.cost_reserved.per_month:,.0f} a month")
    if best.cost and best.capacity_per_replica:
        console.print(f"PREDICTED use of the first: {best.cost.used:.0%} of what its replicas can serve within the "
                      "limits; the rest is idle and paid for, in every cost above")
    if best.break_even:
        console.print(f"price of the hosted API: {answer.api_price}")
        console.print(f"PREDICTED break-even of the first with the API: {best.break_even}")
    for one in answer.engines:
        console.print(f"{one.rank}: {one.title}: {'; '.join(one.reasons)}")
    for text in answer.errors:
        console.print(f"PREDICTED, error: {text}")
    for text in answer.notes:
        console.print(f"note: {text}")
    console.print(f"not in the model: {', '.join(answer.unmodelled)}")
    for line in list(dict.fromkeys(f"{one['gpu']} {one['config']}: {one['reason']}" for one in answer.ruled_out))[:4]:
        console.print(f"ruled out: {line}")


def _row(option: Option) -> tuple[str, ...]:
    predicted, cost, span = option.predicted, option.cost, option.capacity_range
    each = f"{option.capacity_per_replica:.2f}" if option.capacity_per_replica else "-"
    each += f" ({span[0]:.1f}-{span[1]:.1f})" if span else ""
    return (
        "*" if option.pareto else "",
        f"{option.gpus} {option.gpu}",
        str(option.gpus_n_plus_1),
        f"{option.replicas} x {option.label}",
        each,
        f"{option.total_output_tokens_per_s:,.0f}",
        "/".join(f"{predicted.ttft_ms[name]:.0f}" for name in ("p50", "p95", "p99")),
        "/".join(f"{predicted.itl_ms[name]:.1f}" for name in ("p50", "p95", "p99")),
        "yes" if option.enough else "NO",
        f"{cost.per_hour:,.2f}" if cost else "-",
        f"{cost.per_month:,.0f}" if cost else "-",
        f"{cost.per_million_output:.3f}" if cost and cost.per_million_output is not None else "-",
    )
