"""Which configurations of an engine can serve a model on a GPU, as far as memory, rules and a closed form tell."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tuner.app.plan_ask import Question
from tuner.app.traffic import at_rate, jobs_of
from tuner.capacity import kv
from tuner.capacity.jobs import Engine, Job
from tuner.capacity.latency import StepTime, lone_ttft, steady_tpot, step_time
from tuner.capacity.memory import MemoryPlan, memory_plan
from tuner.capacity.refusal import Refused
from tuner.domain.engine import EngineConfig, Footprint, Setting
from tuner.domain.hardware import Gpu, Hardware
from tuner.domain.slo import Limit
from tuner.domain.workload import Workload
from tuner.engines import ENGINES
from tuner.facts.gpus import GpuFacts
from tuner.search.screen import screen

_WIDTHS = (1, 2, 4, 8)
_STAGES = (1, 2, 4)
_ONE_HOST = 8
_FP8 = 8.9
_MOST_SEQUENCES = 1024
_BUDGETS = (8192, 2048)


@dataclass(frozen=True)
class Traffic:
    """The workload as the closed form and the simulator need it: requests at one a second, and their means."""

    jobs: tuple[Job, ...]
    prompt: float
    output: float
    new_share: float
    """Part of a prompt that no cache can hold, at best."""

    @classmethod
    def of(cls, workload: Workload, seed: int, requests: int) -> Traffic:
        """Draw requests of the workload."""
        jobs = tuple(jobs_of(at_rate(workload.model_copy(update={"requests": requests}), 1.0), seed=seed))
        prompts = float(np.mean([job.prompt for job in jobs]))
        shared = float(np.mean([sum(tokens for _, tokens in job.shared) for job in jobs]))
        output = float(np.mean([job.output for job in jobs]))
        return cls(jobs, prompts, output, max(0.05, 1 - shared / prompts))

    def clients(self, in_flight: int) -> list[Job]:
        """Return all requests, sent by so many clients that wait for their answers."""
        ramp = min(5.0, 0.01 * in_flight) / in_flight
        return [replace(job, at_s=index * ramp if index < in_flight else None) for index, job in enumerate(self.jobs)]


@dataclass(frozen=True)
class Candidate:
    """One configuration of one server, what it does with the memory, and what the closed form says of its rate."""

    gpu: GpuFacts
    config: EngineConfig
    footprint: Footprint
    hardware: Hardware
    memory: MemoryPlan
    step: StepTime
    engine: Engine
    in_flight: float
    rate: float
    """Requests a second of one server, by mean values alone: only for ranking before the simulation."""

    @property
    def devices(self) -> int:
        """GPUs of one server."""
        return self.footprint.devices

    @property
    def label(self) -> str:
        """Parallelism and types in a few words."""
        parts = [f"TP{self.footprint.tensor_parallel}"]
        if self.footprint.pipeline_parallel > 1:
            parts.append(f"PP{self.footprint.pipeline_parallel}")
        parts.append(str(self.config.get("quantization") or "weights as stored"))
        parts.append(f"KV {self.config.get('kv-cache-dtype') or 'auto'}")
        return " ".join(parts)


@dataclass(frozen=True)
class RuledOut:
    """A configuration that cannot work, and why."""

    gpu: str
    label: str
    reason: str
    memory: bool = False


def candidates(
    question: Question, gpu: GpuFacts, traffic: Traffic
) -> tuple[list[Candidate], list[RuledOut]]:
    """Return what fits, best closed-form rate for each GPU first, and what does not."""
    found: list[Candidate] = []
    out: list[RuledOut] = []
    for stages in _STAGES:
        for width in _WIDTHS:
            if width * stages > question.counts.get(gpu.name, 4 * _ONE_HOST) or (stages > 1 and width != _ONE_HOST):
                continue
            for kind in _kinds(question, gpu):
                for budget in _budgets(question):
                    one = _candidate(question, gpu, traffic, (width, stages, *kind, budget))
                    if isinstance(one, Candidate):
                        found.append(one)
                    else:
                        out.append(one)
        if found:
            break
    found.sort(key=lambda one: -one.rate / one.devices)
    unique = {(one.gpu, one.label): one for one in out}
    return found, list(unique.values())


def _budgets(question: Question) -> tuple[int, ...]:
    """Small steps only help limits on the time between tokens."""
    tight = any(limit.metric in ("itl", "tpot") for limit in question.slo.limits)
    return _BUDGETS if tight else _BUDGETS[:1]


def _kinds(question: Question, gpu: GpuFacts) -> list[tuple[bool, bool]]:
    """Return whether weights are quantized while loading, and whether the KV cache is FP8."""
    small = gpu.capability is not None and gpu.capability >= _FP8 and not question.ask.lossless
    online = small and question.model.quantization is None
    return [(weights, cache) for weights in ((False, True) if online else (False,))
            for cache in ((False, True) if small else (False,))]


def _candidate(
    question: Question, gpu: GpuFacts, traffic: Traffic, choice: tuple[int, int, bool, bool, int]
) -> Candidate | RuledOut:
    """Build one candidate; where the model's whole context does not fit, with the one that the workload needs."""
    devices = choice[0] * choice[1]
    hardware = Hardware(kind="cuda", gpus=tuple(
        Gpu(name=gpu.match[0], memory_bytes=gpu.memory_bytes, capability=gpu.capability, index=index)
        for index in range(devices)))
    first = _attempt(question, gpu, traffic, hardware, (choice, 256, None))
    context = None
    if isinstance(first, RuledOut) and first.memory:
        context = _short_context(question)
        first = _attempt(question, gpu, traffic, hardware, (choice, 64, context))
    if isinstance(first, RuledOut):
        return first
    wanted = min(_MOST_SEQUENCES, max(16, 1 << math.ceil(math.log2(1.3 * first.in_flight + 1))))
    if wanted == first.engine.max_sequences:
        return first
    again = _attempt(question, gpu, traffic, hardware, (choice, wanted, context))
    return first if isinstance(again, RuledOut) else again


def _attempt(
    question: Question, gpu: GpuFacts, traffic: Traffic, hardware: Hardware,
    what: tuple[tuple[int, int, bool, bool, int], int, int | None],
) -> Candidate | RuledOut:
    choice, sequences, context = what
    budget, model = choice[4], question.model
    config = _config(question, choice, sequences, context)
    label = " ".join(f"{one.flag}={one.value}" for one in config.settings if one.flag not in _QUIET) or "one GPU"
    problem = screen(config, model, hardware)
    if problem is not None:
        return RuledOut(gpu.name, label, problem.reason, memory=problem.rule == "memory")
    footprint = ENGINES[config.engine].footprint(model, config)
    memory = memory_plan(model, footprint, hardware)
    step = step_time(model, footprint, gpu, found=question.coefficients(gpu.name))
    if isinstance(memory, Refused):
        return RuledOut(gpu.name, label, memory.reason)
    if isinstance(step, Refused):
        return RuledOut(gpu.name, label, step.reason)
    engine = _engine(question, footprint, memory, traffic, (sequences, budget))
    running = _in_flight(question, step, engine, traffic)
    if isinstance(running, str):
        return RuledOut(gpu.name, label, running)
    tpot = steady_tpot(step, running, traffic.prompt, traffic.output, budget, share=traffic.new_share)
    rate = running / (tpot * traffic.output + lone_ttft(step, 1, traffic.prompt, 1, budget))
    return Candidate(gpu, config, footprint, hardware, memory, step, engine, running, rate)


_QUIET = ("max-num-seqs", "max-num-batched-tokens", "max-model-len")


def _short_context(question: Question) -> int:
    """Return the context that the workload needs, rounded up: what a GPU without room for the model's own may get."""
    longest = -(-question.workload.longest // 1024) * 1024
    return min(longest, question.model.max_context or longest)


def _config(
    question: Question, choice: tuple[int, int, bool, bool, int], sequences: int, context: int | None
) -> EngineConfig:
    width, stages, weights, cache, budget = choice
    given: dict[str, tuple[str | int, str]] = {
        "max-num-seqs": (sequences, "what the load and the memory call for, by prediction"),
        "max-num-batched-tokens": (budget, "small steps keep the time between tokens low, large ones speed up prompts"),
    }
    if width > 1:
        given["tensor-parallel-size"] = (width, "splits each layer over GPUs")
    if stages > 1:
        given["pipeline-parallel-size"] = (stages, "one host does not hold the weights")
    if weights:
        given["quantization"] = ("fp8", "half the weights; check the quality")
    if cache:
        given["kv-cache-dtype"] = ("fp8", "half the cache of a token; check the quality")
    if context is not None:
        given["max-model-len"] = (context, "the model's own context does not fit; this is what the workload needs")
    settings = tuple(Setting(flag=flag, value=value, source="rule", why=why) for flag, (value, why) in given.items())
    return EngineConfig(engine="vllm", version=question.version, settings=settings)


def _engine(
    question: Question, footprint: Footprint, memory: MemoryPlan, traffic: Traffic, sizes: tuple[int, int]
) -> Engine:
    """Return the scheduler's settings; layers with windows or states count as what a mean request takes of them."""
    cut = kv.pool(kv.layer_kinds(question.model, footprint), footprint)
    length = int(traffic.prompt + traffic.output)
    block = 16
    blocks = memory.blocks
    if cut is not None:
        block = cut.block_tokens
        blocks = int(memory.blocks / cut.blocks_for(length, sizes[1]) * -(-length // block))
    return Engine(max_sequences=sizes[0], token_budget=sizes[1], blocks=blocks, block_tokens=block)


def _in_flight(question: Question, step: StepTime, engine: Engine, traffic: Traffic) -> float | str:
    """Return how many requests may run at once by memory and by the limits, or why not even one may."""
    room = engine.blocks * engine.block_tokens / (traffic.prompt + traffic.output)
    most = min(float(_MOST_SEQUENCES), room)
    if most < 1:
        return "the KV cache does not hold one mean request"
    for limit in question.slo.limits:
        alone = _alone(limit, step, traffic, engine.token_budget)
        if alone is not None and alone > limit.maximum:
            return f"{limit.text}: even alone a request takes {alone:.3g} ms (PREDICTED)"
    ceiling = min((limit.maximum for limit in question.slo.limits if limit.metric in ("itl", "tpot")), default=None)
    if ceiling is None:
        return most
    low, high = 1.0, most
    for _ in range(12):
        middle = (low + high) / 2
        tpot = steady_tpot(step, middle, traffic.prompt, traffic.output, engine.token_budget, share=traffic.new_share)
        low, high = (middle, high) if tpot * 1e3 <= ceiling else (low, middle)
    return low


def _alone(limit: Limit, step: StepTime, traffic: Traffic, budget: int) -> float | None:
    """Return what one request alone takes, in ms, or None for limits that say nothing of it."""
    first = 1e3 * lone_ttft(step, 1, traffic.prompt * traffic.new_share, 1, budget)
    each = 1e3 * step.seconds(1, traffic.prompt + traffic.output / 2)
    return {"ttft": first, "itl": each, "tpot": each, "e2e": first + each * traffic.output}.get(limit.metric)
