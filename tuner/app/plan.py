"""`plan`: which deployment serves a load within its limits at the least cost, by prediction alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner import __version__
from tuner.app.engine_choice import EngineVerdict, choose
from tuner.app.plan_ask import PlanAsk, Question, resolve_plan
from tuner.app.plan_candidates import Candidate, RuledOut, Traffic, candidates
from tuner.app.plan_evaluate import Band, Evaluated, Predicted, band_of, evaluate
from tuner.capacity.sizing import Cost, blended_price, break_even_tokens, cost, pareto, with_spare
from tuner.domain.plan import Plan
from tuner.domain.record import Record
from tuner.errors import UsageError
from tuner.facts.prices import ApiPrice, api_price_of, price_of

_SIMULATED_EACH = 4
_REQUESTS = 600
_FEW = 2
UNMODELLED = ("speculative decoding", "LoRA adapters", "images", "structured output", "KV offload",
              "expert and data parallel attention")


class Option(Record):
    """One deployment. Every performance number is PREDICTED."""

    gpu: str
    label: str
    settings: dict[str, str]
    tensor_parallel: int
    pipeline_parallel: int
    replicas: int
    replicas_n_plus_1: int
    gpus: int
    gpus_n_plus_1: int
    capacity_per_replica: float | None
    capacity_range: tuple[float, float] | None
    """80 % range of the rate of one replica, from the error on records that the fit did not see."""
    memory: dict[str, float]
    """GiB on the fullest device, and what one more token takes in KiB."""
    memory_verdict: str
    predicted: Predicted
    total_output_tokens_per_s: float
    enough: bool
    price: str | None
    cost: Cost | None
    cost_n_plus_1: Cost | None
    reserved: str | None = None
    """The price with a commitment, where one is known, with its date and source."""
    cost_reserved: Cost | None = None
    band: Band
    break_even: str | None = None
    """Against the hosted API whose price was given, or else the cheapest known one of this model."""
    pareto: bool = False


class Answer(Record):
    """What `plan` says. PREDICTED: nothing was started, nothing measured."""

    label: str = "PREDICTED"
    tool_version: str
    model: str
    engine: str
    workload: str
    load: str
    slo: str
    headroom: float
    options: tuple[Option, ...]
    """Best first: those that are enough, by cost (by GPUs where no price is known), then the others."""
    ruled_out: tuple[dict[str, str], ...]
    errors: tuple[str, ...]
    unmodelled: tuple[str, ...]
    notes: tuple[str, ...]
    api_price: str | None = None
    """Of the hosted API that `break_even` compares with, with date and source."""
    engines: tuple[EngineVerdict, ...] = ()
    """Which engine suits the load, where that was asked; best suited first."""
    command: str


@dataclass(frozen=True)
class Planned:
    """The answer, and the configuration behind each of its options."""

    question: Question
    answer: Answer
    found: tuple[Evaluated, ...]


def make_plan(ask: PlanAsk, study: Plan | None = None) -> Planned:
    """Answer the question, with step times calibrated by the plan of a measured study where one is given.

    Raises:
        LlmtuneError: something is not known, or nothing fits; says what would make it possible.

    """
    question = resolve_plan(ask, study)
    traffic = Traffic.of(question.workload, ask.seed, max(_REQUESTS, 4 * (question.in_flight or 0)))
    found: list[Evaluated] = []
    out: list[RuledOut] = []
    for gpu in question.gpus:
        fitting, ruled_out = candidates(question, gpu, traffic)
        out += ruled_out
        for one in _chosen(fitting):
            like = found[-1] if found and found[-1].candidate.gpu == gpu else None
            result = evaluate(question, one, traffic, like)
            if result.capacity == 0.0 and gpu.name not in question.counts:
                out.append(RuledOut(gpu.name, one.label, f"no rate keeps {question.slo.text or 'up'} on one server"))
            else:
                found.append(result)
    if not found:
        raise UsageError(_nothing(question, out), hint="name larger GPUs or more, a smaller model or a looser SLO")
    options = [_option(question, one, traffic) for one in found]
    order = _order(options)
    front = _front(options)
    api = _api(question, traffic)
    return Planned(
        question=question,
        found=tuple(found[place] for place in order),
        answer=Answer(
            tool_version=__version__, model=question.model.name, engine=f"vllm {question.version}",
            workload=question.workload.name, load=_load_text(question), slo=question.slo.text,
            headroom=question.headroom,
            options=tuple(options[place].model_copy(update={"pareto": place in front}) for place in order),
            ruled_out=tuple({"gpu": one.gpu, "config": one.label, "reason": one.reason} for one in out),
            errors=_errors(options), unmodelled=UNMODELLED, notes=_notes(question, options),
            api_price=api.text if api else None,
            engines=choose(question.engines, question.model, found[order[0]], traffic) if question.engines else (),
            command=question.command,
        ),
    )


def _chosen(fitting: Sequence[Candidate]) -> list[Candidate]:
    """Return the most promising of each width, and the best few of all: the others differ in little and cost time."""
    kept: list[Candidate] = []
    seen: set[tuple[int, object, object]] = set()
    for one in fitting:
        kind = (one.devices, one.config.get("quantization"), one.config.get("kv-cache-dtype"))
        if kind not in seen and (len(kept) < _SIMULATED_EACH or all(one.devices != other.devices for other in kept)):
            seen.add(kind)
            kept.append(one)
    return kept


def _nothing(question: Question, out: Sequence[RuledOut]) -> str:
    last = {one.gpu: one for one in [*(one for one in out if not one.memory), *(one for one in out if one.memory)]}
    reasons = "; ".join(f"{one.gpu}: {one.reason}" for one in last.values())
    return f"no configuration of {question.model.name} fits ({reasons})"


def _option(question: Question, one: Evaluated, traffic: Traffic) -> Option:
    candidate = one.candidate
    band = band_of(candidate.gpu.name, calibration=question.calibration)
    price = price_of(candidate.gpu.name, question.stated, question.rows, question.price_kind)
    reserved = price_of(candidate.gpu.name, {}, question.rows, "reserved")
    total = one.predicted.output_tokens_per_s * one.replicas
    memory = {term.name: round(term.bytes / 2**30, 2) for term in candidate.memory.terms if term.bytes}
    memory |= {"KV cache": round(candidate.memory.available / 2**30, 2),
               "budget": round(candidate.memory.budget / 2**30, 2),
               "KiB of KV cache a token": round((candidate.memory.kv_per_token or 0) / 1024, 1)}
    spare = with_spare(one.replicas)
    own = _cost(one, price.usd * one.gpus, one.replicas) if price else None
    return Option(
        gpu=candidate.gpu.name, label=candidate.label,
        settings={setting.flag: str(setting.value) for setting in candidate.config.settings},
        tensor_parallel=candidate.footprint.tensor_parallel, pipeline_parallel=candidate.footprint.pipeline_parallel,
        replicas=one.replicas, replicas_n_plus_1=spare, gpus=one.gpus, gpus_n_plus_1=spare * candidate.devices,
        capacity_per_replica=one.capacity,
        capacity_range=(one.capacity / band.high, one.capacity / band.low) if one.capacity else None,
        memory=memory, memory_verdict=candidate.memory.verdict, predicted=one.predicted,
        total_output_tokens_per_s=total, enough=one.enough, band=band, price=price.text if price else None,
        cost=own, break_even=_break_even(question, own, traffic),
        cost_n_plus_1=_cost(one, price.usd * spare * candidate.devices, spare) if price else None,
        reserved=reserved.text if reserved else None,
        cost_reserved=_cost(one, reserved.usd * one.gpus, one.replicas) if reserved else None,
    )


def _cost(one: Evaluated, per_hour: float, replicas: int) -> Cost:
    served = one.replicas
    used = one.predicted.requests_per_s * served / (one.capacity * replicas) if one.capacity else served / replicas
    return cost(per_hour, output_per_s=one.predicted.output_tokens_per_s * served,
                tokens_per_s=one.predicted.tokens_per_s * served, used=min(1.0, used))


def _api(question: Question, traffic: Traffic) -> ApiPrice | None:
    share = traffic.prompt / (traffic.prompt + traffic.output)
    return question.api or api_price_of(question.model.location, question.api_rows, share)


def _break_even(question: Question, own: Cost | None, traffic: Traffic) -> str | None:
    """Say from which volume on the GPUs are cheaper than the API, and on which side of it the load is."""
    api_price = _api(question, traffic)
    if api_price is None or own is None or own.per_million_tokens is None:
        return None
    price = blended_price(api_price.prompt, api_price.answer, traffic.prompt, traffic.output)
    volume = break_even_tokens(own.per_month, price)
    served = own.per_month / own.per_million_tokens * 1e6
    verdict = "cheaper than" if served > volume else "dearer than"
    api = f"the API (${price * served / 1e6:,.0f} a month at ${price:.3g} a million)"
    load = f"this load is {served / 1e6:,.0f} million, for which own GPUs are {verdict} {api}"
    return f"{volume / 1e6:,.0f} million tokens a month; {load}"


def _order(options: Sequence[Option]) -> list[int]:
    """Return the places, best first: what is enough, by cost, then GPUs, then what changes the model's numbers least.

    Where the same GPUs serve a closed loop, options whose throughput differs by less than the model's error are equal,
    and the one that is cheapest to keep a spare of comes first.
    """
    worth = [_worth(option) for option in options]
    best = min((one for one, option in zip(worth, options, strict=True) if option.enough), default=0.0)

    def key(place: int) -> tuple[bool, float, int, int, float]:
        option = options[place]
        lossy = sum(option.settings.get(flag) == "fp8" for flag in ("quantization", "kv-cache-dtype"))
        if option.capacity_per_replica is None and worth[place] <= best * (1 + option.band.mape / 100):
            return (not option.enough, best, lossy, option.gpus_n_plus_1, worth[place])
        return (not option.enough, worth[place], option.gpus, lossy, -option.total_output_tokens_per_s)

    return sorted(range(len(options)), key=key)


def _worth(option: Option) -> float:
    """Return what is to be small: $ an hour (or GPUs); for a closed loop the same for each token."""
    money = option.cost.per_hour if option.cost else float(option.gpus)
    rate = option.total_output_tokens_per_s
    return money / rate if option.capacity_per_replica is None and rate else money


def _front(options: Sequence[Option]) -> set[int]:
    """Return the places that no other beats both in cost (or GPUs) and in p95 end-to-end latency."""
    able = [place for place, option in enumerate(options) if option.enough]
    points = []
    for place in able:
        option = options[place]
        money = option.cost.per_hour if option.cost else float(option.gpus)
        points.append((money, option.predicted.e2e_ms.get("p95", 0.0)))
    return {able[place] for place in pareto(points)}


def _load_text(question: Question) -> str:
    if question.rate is not None:
        return f"{question.rate:g} requests/s (Poisson)"
    return f"{question.in_flight} clients in a closed loop"


def _errors(options: Sequence[Option]) -> tuple[str, ...]:
    bands = {option.band.of: option.band for option in options}
    texts = [
        f"TPOT of {name}: mean error {band.mape:g} % of {band.records} records; 8 of 10 were {band.low:g} to "
        f"{band.high:g} times what was predicted" for name, band in bands.items()
    ]
    return (*texts, "TTFT and its p99 under load are less certain: docs/plan.md has the error against published rates")


def _notes(question: Question, options: Sequence[Option]) -> tuple[str, ...]:
    notes = list(question.notes)
    if any("fp8" in option.settings.values() for option in options):
        notes.append("fp8 weights or KV cache change the answers of the model: check quality before you deploy them")
    if all(option.predicted.running < _FEW for option in options):
        notes.append(f"fewer than {_FEW} requests run at once: for so few, llama.cpp or Ollama may be simpler and as "
                     "fast; vLLM gains from requests that run together (their speed is not predicted here)")
    if any(option.cost is None for option in options):
        missing = sorted({option.gpu for option in options if option.cost is None})
        kind = "reserved price" if question.ask.reserved else "price"
        notes.append(f"no {kind} of {', '.join(missing)} is known: give it with --price NAME=USD")
    if not any(option.enough for option in options):
        notes.append("no option is enough: loosen the SLO, lower the rate, or name other GPUs")
    return tuple(notes)
