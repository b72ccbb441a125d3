"""Which engine for this load: reasons from facts, and numbers only of engines that the model knows."""

from __future__ import annotations

from typing import Any, Literal

from tuner.app.plan_candidates import Candidate, Traffic
from tuner.app.plan_evaluate import Evaluated
from tuner.capacity.latency import coefficients, steady_tpot, step_time
from tuner.capacity.refusal import Refused
from tuner.domain.model import ModelSpec
from tuner.domain.record import Record
from tuner.facts.read import data

Rank = Literal["first choice", "possible", "not for this"]
_ORDER: dict[Rank, int] = {"first choice": 0, "possible": 1, "not for this": 2}
_ALONE = 2.0


class EngineVerdict(Record):
    """One engine, how it suits the load, and why. `predicted` says whether `plan` has numbers of it."""

    engine: str
    title: str
    rank: Rank
    predicted: bool
    reasons: tuple[str, ...]


def choose(asked: tuple[str, ...], model: ModelSpec, best: Evaluated, traffic: Traffic) -> tuple[EngineVerdict, ...]:
    """Return the engines, best suited first, for the load that the plan's best option serves."""
    table = data("engine_choice.yaml")
    streams = best.predicted.running * best.replicas
    found = [_verdict(name, table, model, best, (streams, traffic)) for name in asked]
    return tuple(sorted(found, key=lambda one: _ORDER[one.rank]))


def _verdict(
    name: str, table: dict[str, Any], model: ModelSpec, best: Evaluated, load: tuple[float, Traffic]
) -> EngineVerdict:
    facts, (streams, traffic) = table["engines"][name], load
    against = _against(facts, model, best)
    if against:
        return EngineVerdict(engine=name, title=facts["title"], rank="not for this", predicted=facts["predicted"],
                             reasons=tuple(against))
    reasons = [_of_streams(facts, streams, table), facts["strengths"], facts["effort"]]
    if name == "trtllm":
        reasons.append(_beside_vllm(best.candidate, model, traffic))
    if not facts["predicted"]:
        reasons.append("its throughput and latency are not predicted here: measure it with `llmtune bench --url`")
    rank: Rank = "first choice" if _is_first(name, streams, table) else "possible"
    return EngineVerdict(engine=name, title=facts["title"], rank=rank, predicted=facts["predicted"],
                         reasons=tuple(reason for reason in reasons if reason))


def _is_first(name: str, streams: float, table: dict[str, Any]) -> bool:
    """Whether the engine is the one to try first at so many streams: of equals, the one with the least upkeep."""
    if streams < _ALONE:
        return name in ("ollama", "llama.cpp")
    return name == "vllm" or (name == "llama.cpp" and streams < table["few_streams"] / 10)


def _against(facts: dict[str, Any], model: ModelSpec, best: Evaluated) -> list[str]:
    """Return what rules the engine out."""
    candidate, found = best.candidate, []
    vendor = "nvidia" if candidate.gpu.capability is not None else "amd"
    if vendor not in facts["vendors"]:
        found.append(f"it does not run on {candidate.gpu.name}")
    if candidate.devices > 1 and not facts["parallel"]:
        found.append(f"the best option computes each layer on {candidate.devices} GPUs at once; this engine spreads "
                     "layers over GPUs by default, which adds memory and not speed")
    if facts["weights"] == "GGUF" and model.quantization is not None:
        found.append(f"it loads GGUF files, and this checkpoint is {model.quantization}: take another one")
    return found


def _of_streams(facts: dict[str, Any], streams: float, table: dict[str, Any]) -> str:
    few, count = table["few_streams"], f"{streams:.0f} requests run at once (PREDICTED)"
    if streams < _ALONE:
        gain = "has nothing to batch" if facts["many_streams"] else "is made for this"
        return f"fewer than {_ALONE:g} requests run at once (PREDICTED): it {gain}"
    if streams < few:
        return (f"{count}, fewer than about {few} ({table['few_streams_source']}): "
                + ("it serves them with room to grow" if facts["many_streams"] else "it can serve them from its slots"))
    return f"{count}: " + ("it batches them in each step" if facts["many_streams"]
                           else f"more than about {few} are not what its slots are made for")


def _beside_vllm(candidate: Candidate, model: ModelSpec, traffic: Traffic) -> str:
    """Say what the published records say of its step times, on the same GPUs and weights."""
    times = []
    for engine in ("vllm", "trtllm"):
        step = step_time(model, candidate.footprint, candidate.gpu, found=coefficients(engine))
        if isinstance(step, Refused):
            return ""
        times.append(steady_tpot(step, candidate.in_flight, traffic.prompt, traffic.output,
                                 candidate.engine.token_budget, share=traffic.new_share))
    stored = data("step_time.yaml")["held_out"]["trtllm"]["model"]
    return (f"step times fitted to published records put its TPOT at {times[1] / times[0]:.2f} times vLLM's on the "
            f"best option (PREDICTED; mean error {stored['mape']:g} % on models left out: less than that says nothing)")
