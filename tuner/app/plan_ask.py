"""What `plan` is asked, checked and resolved: model, GPUs, load, limits, prices. Nothing is started or measured."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from tuner.app.calibration import Calibration, calibrate, refuse_other_model
from tuner.app.named import resolve_model, resolve_workload
from tuner.capacity.latency import Coefficients
from tuner.domain.model import ModelSpec
from tuner.domain.plan import Plan
from tuner.domain.record import Stated
from tuner.domain.slo import Slo, parse_slo
from tuner.domain.workload import ClosedLoop, OpenLoop, Workload
from tuner.errors import ModelError, UsageError
from tuner.facts.flags import flag_table, newest_version, parse_version
from tuner.facts.gpus import MOST_GPUS, GpuFacts, named_gpu
from tuner.facts.prices import (
    ApiPrice,
    Price,
    known_api_prices,
    known_prices,
    load_api_prices,
    load_prices,
    parse_prices,
)
from tuner.facts.read import data

_MOST_A_SECOND = 1_000_000
_RATE = re.compile(r"^(\d+(?:\.\d+)?)\s*(?:/|\s*per\s*)?\s*(s|sec|second|m|min|minute|h|hour|day|d)?$")
_SECONDS = {"s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0,
            "d": 86400.0, "day": 86400.0}


class PlanAsk(Stated):
    """Every value as it was given; None is not given."""

    model: str
    gpu: str
    gpus: int | None = Field(default=None, ge=1, le=MOST_GPUS)
    rate: str | None = None
    workload: str = "chat"
    slo: str | None = None
    price: tuple[str, ...] = ()
    prices: str | None = None
    api_price: str | None = None
    headroom: float = 0.2
    lossless: bool = False
    from_study: str | None = None
    weights_from: str | None = None
    reserved: bool = False
    engines: str | None = None
    engine: str = "vllm"
    engine_version: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class Question:
    """The resolved question. Either `rate` (requests a second) or `in_flight` (clients of a closed loop) is set."""

    ask: PlanAsk
    model: ModelSpec
    gpus: tuple[GpuFacts, ...]
    counts: dict[str, int]
    """How many there are of a type, by its name; none: as many as are needed."""
    rate: float | None
    in_flight: int | None
    workload: Workload
    slo: Slo
    stated: dict[str, float]
    rows: tuple[Price, ...]
    headroom: float
    version: str
    notes: tuple[str, ...]
    calibration: Calibration | None = None
    api_rows: tuple[ApiPrice, ...] = ()
    api: ApiPrice | None = None
    """The price of a hosted API that was given; without it the cheapest known one of this model counts."""
    engines: tuple[str, ...] = ()
    """Between which to choose; none: the question was not asked."""

    @property
    def price_kind(self) -> str:
        """Which prices count: without a commitment, or with one."""
        return "reserved" if self.ask.reserved else "on-demand"

    def coefficients(self, gpu: str) -> Coefficients | None:
        """Return calibrated coefficients for the GPU type that was measured, None for the published ones."""
        own = self.calibration
        return own.found if own is not None and own.gpu == gpu else None

    @property
    def command(self) -> str:
        """The command that asks the same."""
        ask = self.ask
        words = ["llmtune plan", f"--model {ask.model}", f"--gpu {ask.gpu}"]
        words += [f"--gpus {ask.gpus}"] if ask.gpus else []
        words += [f"--weights-from {ask.weights_from}"] if ask.weights_from else []
        words += [f"--rate {ask.rate}"] if ask.rate else []
        words += [f"--workload {ask.workload}"]
        words += [f'--slo "{ask.slo}"'] if ask.slo else []
        words += [f"--price {price}" for price in ask.price]
        words += [f"--prices {Path(ask.prices).name}"] if ask.prices else []
        words += [f"--from-study {Path(ask.from_study).name}"] if ask.from_study else []
        words += ["--lossless"] if ask.lossless else []
        words += ["--reserved"] if ask.reserved else []
        words += [f"--engines {ask.engines}"] if ask.engines else []
        words += [f"--api-price {ask.api_price}"] if ask.api_price else []
        words += [f"--headroom {ask.headroom:g}"] if ask.headroom != 0.2 else []
        return " ".join(words)


def resolve_plan(ask: PlanAsk, study: Plan | None = None) -> Question:
    """Check everything that was asked; `study` is the plan to calibrate with.

    Raises:
        LlmtuneError: of the kind that fits what is wrong, with near misses where a name is not known.

    """
    if ask.engine != "vllm":
        raise UsageError(f"speed is predicted for vllm only, not for {ask.engine!r}",
                         hint="`llmtune optimize --engine` measures the others")
    if not 0 <= ask.headroom < 0.95:
        raise UsageError(f"--headroom {ask.headroom} is not a share from 0 to 0.95",
                         hint="0.2 keeps a fifth of each replica free")
    model = resolve_model(ask.model, None)
    if ask.weights_from is not None:
        from tuner.app.remote_weights import with_remote_weights  # noqa: PLC0415  (an HTTP client, seldom needed)

        model = with_remote_weights(model, ask.weights_from)
    missing = [name for name in ("layers", "parameters", "hidden_size") if not getattr(model, name)]
    if missing:
        raise ModelError(
            f"too little is known of {model.location} ({', '.join(missing)} missing), so nothing can be predicted",
            hint="give a directory with its config.json and weights, another name that `llmtune models` lists, or "
            "--weights-from hub to read what the hub says of it")
    workload = resolve_workload(ask.workload, None)
    if model.max_context and workload.longest > model.max_context:
        raise UsageError(
            f"the longest request of workload {workload.name} has {workload.longest} tokens, and {model.name} takes "
            f"{model.max_context}", hint="choose a shorter workload or a model with a longer context")
    gpus, counts = _gpus(ask)
    version = str(parse_version(ask.engine_version or newest_version(ask.engine)))
    rate, in_flight, notes = _load(ask, workload)
    if doubt := flag_table(ask.engine, version).doubt:
        notes = (doubt, *notes)
    stated = parse_prices(ask.price)
    names = [gpu.name for gpu in gpus]
    idle = [name for name in stated if name not in names]
    if idle:
        raise UsageError(f"--price is given for {', '.join(idle)}, and the plan is for {', '.join(names)}",
                         hint="leave that price out, or add the GPU to --gpu")
    calibration = calibrate(study) if study is not None else None
    if calibration is not None:
        refuse_other_model(calibration, model)
        notes = (*notes, calibration.text)
    return Question(
        ask=ask, model=model, gpus=gpus, counts=counts, rate=rate, in_flight=in_flight,
        workload=workload, slo=parse_slo(ask.slo) if ask.slo else Slo(),
        stated=stated, rows=load_prices(Path(ask.prices)) if ask.prices else known_prices(),
        api_rows=load_api_prices(Path(ask.prices)) if ask.prices else known_api_prices(),
        engines=parse_engines(ask.engines) if ask.engines else (),
        headroom=ask.headroom, version=version, notes=notes,
        calibration=calibration, api=_api_price(ask.api_price) if ask.api_price else None,
    )


def _gpus(ask: PlanAsk) -> tuple[tuple[GpuFacts, ...], dict[str, int]]:
    """Return the types that are named, and how many there are of each: `h100x8`, or --gpus for all types."""
    found: dict[str, GpuFacts] = {}
    counts: dict[str, int] = {}
    for part in filter(str.strip, ask.gpu.split(",")):
        facts, own = named_gpu(part)
        if facts.name in found:
            raise UsageError(f"--gpu {ask.gpu} names {facts.name} twice", hint="name each type once")
        if own is not None and ask.gpus not in (None, own):
            raise UsageError(f"--gpu {part.strip()} and --gpus {ask.gpus} say different numbers", hint="say it once")
        found[facts.name] = facts
        if count := own or ask.gpus:
            counts[facts.name] = count
    if not found:
        raise UsageError("no GPU is named", hint="say --gpu h100, or several: --gpu h100,h200,l40s")
    return tuple(found.values()), counts


def parse_engines(text: str) -> tuple[str, ...]:
    """Read `vllm,trtllm,llama.cpp,ollama`.

    Raises:
        UsageError: an engine of which nothing is known.

    """
    known: dict[str, Any] = data("engine_choice.yaml")["engines"]
    asked = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    strange = [name for name in asked if name not in known]
    if strange or not asked:
        raise UsageError(f"--engines {text}: {', '.join(strange) or 'no engine'} is not known",
                         hint=f"of {','.join(known)}")
    return asked


def _api_price(text: str) -> ApiPrice:
    first, _, second = text.partition("/")
    try:
        found = (float(first), float(second or first))
    except ValueError:
        found = (0.0, 0.0)
    if not all(0 < price < 1e6 for price in found):
        raise UsageError(f"--api-price {text!r} is not a price",
                         hint="write --api-price 0.20/0.60: USD for a million tokens of prompts and of answers")
    return ApiPrice(model="", prompt=found[0], answer=found[1])


def _load(ask: PlanAsk, workload: Workload) -> tuple[float | None, int | None, tuple[str, ...]]:
    if ask.rate is not None:
        return parse_rate(ask.rate), None, ()
    if isinstance(workload.arrivals, OpenLoop):
        return workload.arrivals.rate_per_s, None, ()
    if isinstance(workload.arrivals, ClosedLoop):
        clients = workload.arrivals.concurrency
        return None, clients, (f"no --rate: {clients} clients that each wait for their answer, as the workload says",)
    raise UsageError(f"workload {workload.name} states no plain rate", hint="add --rate, e.g. --rate 20/s")


def parse_rate(text: str) -> float:
    """Read a rate such as `20/s`, `600/min` or `50000/day` and return requests a second.

    Raises:
        UsageError: not a rate above zero.

    """
    found = _RATE.match(text.strip().lower().replace(",", ""))
    value = float(found[1]) / _SECONDS[found[2] or "s"] if found else 0.0
    if value <= 0:
        raise UsageError(f"--rate {text!r} is not a rate", hint="write 20/s, 600/min or 50000/day (requests)")
    if value > _MOST_A_SECOND:
        raise UsageError(f"--rate {text!r} is more than {_MOST_A_SECOND:,} requests a second",
                         hint="plan a part of it, and multiply")
    return value
