"""What a server of a configuration does in a step, as far as a study's own trials can say: GPUs and CPU hosts.

Each model names its parameters with a start and with how far off that may be, and turns their values into a step time
and the scheduler's settings. Settings that neither the scheduler nor the roofline knows get a factor of their own,
which only trials can tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tuner.app.simulated import scheduler_of
from tuner.capacity.activation import batch
from tuner.capacity.host_step import PRIOR, HostStep, HostTerms
from tuner.capacity.jobs import Engine
from tuner.capacity.latency import PARTS, StepTime, step_time
from tuner.capacity.memory import memory_plan
from tuner.capacity.refusal import Refused
from tuner.domain.engine import EngineConfig
from tuner.domain.study import StudySpec
from tuner.domain.trial import Measured, Trial
from tuner.engines import ENGINES
from tuner.facts.gpus import GpuFacts, facts_of
from tuner.facts.read import data

Values = Mapping[str, float]
"""Logarithms of the parameters, by name."""
_SCHEDULED = frozenset({
    "max-num-seqs", "max-num-batched-tokens", "enable-prefix-caching", "enable-chunked-prefill", "block-size",
    "max-model-len", "gpu-memory-utilization", "env:VLLM_CPU_KVCACHE_SPACE", "kv-cache-memory-bytes",
})
_COMPUTED = frozenset({"kv-cache-dtype", "quantization", "tensor-parallel-size", "pipeline-parallel-size"})
_PARTS_SPREAD = 1.5
_JITTER = {"cpu": (0.2, 2.0), "cuda": (0.05, 2.0)}
_UNKNOWN_BLOCKS = 1_000_000


class Server(NamedTuple):
    """What is simulated."""

    step: StepTime | HostStep
    engine: Engine
    jitter: float


class HostModel:
    """A CPU host, of which nothing is published: all terms come from trials."""

    fewest = 2
    """Trials before anything can be said."""
    factors: Mapping[str, float] = {"step": 1.3, "work": 2.0}
    """Per setting that is not modelled: what it may multiply, and by how much."""
    modelled = _SCHEDULED

    def __init__(self, spec: StudySpec) -> None:
        """Take the study's question."""
        self.spec = spec
        self.prior = {name: (math.log(start), spread) for name, (start, spread) in PRIOR.items()}
        self.prior["jitter"] = (math.log(_JITTER["cpu"][0]), _JITTER["cpu"][1])

    def server(self, config: EngineConfig, values: Values, tokens: int | None) -> Server | None:
        """Return what is simulated; `tokens` is the KV cache that a trial reported."""
        footprint, facts = ENGINES[config.engine].footprint(self.spec.model, config), data("vllm/cpu.yaml")
        ranks = footprint.tensor_parallel * footprint.pipeline_parallel
        budget = footprint.batched_tokens or facts["tokens_per_rank"] * ranks
        if footprint.chunked_prefill is False:
            budget = max(budget, footprint.max_context or self.spec.model.max_context or 0)
        block = footprint.block_size or facts["block_tokens"]
        engine = Engine(
            max_sequences=min(footprint.max_sequences or facts["sequences_per_rank"] * ranks, budget),
            token_budget=budget, blocks=max(1, tokens // block) if tokens else _UNKNOWN_BLOCKS, block_tokens=block,
            chunked=footprint.chunked_prefill is not False,
            prefix_caching=config.get("enable-prefix-caching") is not False,
        )
        found = {name: math.exp(values[name]) for name in PRIOR}
        terms = HostTerms(**found, step_factor=math.exp(values["step"]), work_factor=math.exp(values["work"]))
        return Server(HostStep(terms), engine, math.exp(values["jitter"]))


class GpuModel:
    """GPUs with a data sheet: the published coefficients, and a factor on each part of a step that trials correct."""

    fewest = 0
    factors: Mapping[str, float] = {"work": 1.2}
    modelled = _SCHEDULED | _COMPUTED

    def __init__(self, spec: StudySpec, gpu: GpuFacts) -> None:
        """Take the study's question and the GPU's data sheet."""
        self.spec, self.gpu = spec, gpu
        self.prior = dict.fromkeys(PARTS, (0.0, _PARTS_SPREAD))
        self.prior["jitter"] = (math.log(_JITTER["cuda"][0]), _JITTER["cuda"][1])
        self._built: dict[str, tuple[StepTime, Engine] | None] = {}

    def server(self, config: EngineConfig, values: Values, tokens: int | None) -> Server | None:
        """Return what is simulated, or None where a size of the model is missing or nothing fits."""
        if config.key not in self._built:
            self._built[config.key] = self._build(config)
        built = self._built[config.key]
        if built is None:
            return None
        step, engine = built
        del tokens  # the memory model's own answer holds for every configuration
        parts = {name: math.exp(values[name] + (values["work"] if name != "outside" else 0.0)) for name in PARTS}
        return Server(step.scaled(parts), engine, math.exp(values["jitter"]))

    def _build(self, config: EngineConfig) -> tuple[StepTime, Engine] | None:
        spec = self.spec
        footprint = ENGINES[config.engine].footprint(spec.model, config)
        memory, step = memory_plan(spec.model, footprint, spec.hardware), step_time(spec.model, footprint, self.gpu)
        if isinstance(memory, Refused) or isinstance(step, Refused) or memory.blocks < 1:
            return None
        limits = batch(spec.model, footprint, spec.hardware.gpus[0])
        return step, scheduler_of(spec, config, footprint, memory, (limits.sequences, limits.tokens))


def model_of(spec: StudySpec) -> HostModel | GpuModel | None:
    """Return the model of the study's hardware and engine, None where there is none."""
    if spec.engine.engine != "vllm":
        return None
    if spec.hardware.kind == "cpu":
        return HostModel(spec)
    gpu = facts_of(spec.hardware.gpus[0].name) if spec.hardware.gpus else None
    return GpuModel(spec, gpu) if gpu is not None else None


def unmodelled(model: HostModel | GpuModel, config: EngineConfig) -> tuple[str, ...]:
    """Return the settings that need a factor of their own, as `flag=value`; pinned ones are the same everywhere."""
    spec = model.spec
    pinned = {(pin.flag, pin.value) for pin in spec.pins}
    return tuple(
        f"{one.flag}={one.value}" for one in config.settings
        if one.flag not in model.modelled and (one.flag, one.value) not in pinned
        and not (one.flag == "dtype" and one.value in ("auto", spec.model.dtype))
    )


def cache_tokens(trials: Sequence[Trial]) -> int | None:
    """Return the smallest KV cache that a trial of the study reported."""
    found = [trial.outcome.startup.kv_cache_tokens for trial in trials if isinstance(trial.outcome, Measured)]
    return min((one for one in found if one), default=None)
