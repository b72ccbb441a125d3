"""What the study is to be best at: read from what the user wrote, and checked against what can be known here."""

from __future__ import annotations

from typing import get_args

from tuner.domain.hardware import Hardware
from tuner.domain.slo import Slo
from tuner.domain.study import KNEES, Objective
from tuner.domain.workload import ClosedLoop, OpenLoop, Workload
from tuner.errors import UsageError
from tuner.facts.gpus import facts_of
from tuner.facts.prices import price_of

KNOWN: tuple[Objective, ...] = get_args(Objective)


def parse_objectives(text: str | None, slo: Slo, workload: Workload, hardware: Hardware) -> tuple[Objective, ...]:
    """Read `output_tokens_per_s,p95_ttft`: the first decides, the rest join the Pareto front.

    Raises:
        UsageError: unknown, said twice, or not to be had with this SLO, workload or machine.

    """
    if text is None:
        return ("output_tokens_per_s",)
    names = [part.strip().replace("-", "_") for part in text.split(",")]
    found = tuple(_known(name) for name in names)
    if len(set(found)) < len(found):
        raise UsageError(f"--objective {text!r} names one twice", hint="say each objective once")
    for objective in found:
        _check(objective, slo, workload, hardware)
    knees = [objective for objective in found if objective in KNEES]
    if knees and found[0] not in KNEES:
        raise UsageError(f"{knees[0]} needs a search over load levels", hint=f"put it first: {knees[0]},...")
    if len(knees) > 1:
        raise UsageError("max_concurrency and max_rate are two ways to load a server", hint="choose one of them")
    return found


def price_per_hour(stated: float | None, objectives: tuple[Objective, ...], hardware: Hardware) -> float | None:
    """Return USD for one device and hour, where the objectives ask for it: what the user said, else an example price.

    Raises:
        UsageError: nobody knows the price.

    """
    if "cost_per_mtok" not in objectives:
        if stated is not None:
            raise UsageError("--price has no use without --objective cost_per_mtok", hint="name that, or leave it out")
        return None
    if stated is not None:
        return stated
    facts = facts_of(hardware.gpus[0].name) if hardware.gpus else None
    price = price_of(facts.name, {}) if facts else None
    if price is None:
        raise UsageError(f"no price of {hardware.label} is known", hint="say --price 2.50, in USD per device and hour")
    return price.usd


def _known(name: str) -> Objective:
    for objective in KNOWN:
        if name == objective:
            return objective
    raise UsageError(f"unknown objective {name!r}", hint=f"one or several of: {', '.join(KNOWN)}")


def _check(objective: Objective, slo: Slo, workload: Workload, hardware: Hardware) -> None:
    if objective == "goodput_per_s" and not slo.limits:
        raise UsageError("goodput counts requests that keep an SLO, and there is none", hint="add --slo")
    if objective in KNEES:
        if not slo.limits:
            raise UsageError(f"{objective} is the highest load that keeps an SLO, and there is none", hint="add --slo")
        if not isinstance(workload.arrivals, (ClosedLoop, OpenLoop)):
            raise UsageError(
                f"{objective} changes the load, and a workload of {workload.arrivals.kind} has its own",
                hint="choose a workload with clients or a rate, e.g. 512x256@c16 or 512x256@2/s",
            )
    if objective == "joules_per_token" and hardware.kind != "cuda":
        raise UsageError("joules_per_token needs GPUs that tell their power", hint="choose another --objective")
