"""How long one step of the engine takes: a roofline with few named coefficients. Every number is PREDICTED.

step = fixed + sequences + layers + linear layers (weights read or arithmetic, whichever is longer) + attention (the KV
cache read, or the arithmetic of a prompt) + collectives of tensor parallelism. The coefficients are data
(facts/data/step_time.yaml), fitted by scripts/fit_step_time.py to published measurements, with their held-out error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass

from tuner.capacity import kv
from tuner.capacity.refusal import Refused
from tuner.capacity.weights import quantized_parameters, stored_bits
from tuner.domain.engine import Footprint
from tuner.domain.model import ModelSpec
from tuner.domain.record import Record
from tuner.facts.gpus import GpuFacts
from tuner.facts.read import data

_PLAIN_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0}
_FOUR_BITS = 5.0
_WHOLE = 12.0
_FAR_APART = 0.05
"""Below this share the shorter of two overlapping times adds less than two millionths."""
_IN_PART = {
    "fixed": ("_fixed",), "sequence": ("_sequence",), "read": ("_dense_read", "_head_read", "_expert_read"),
    "compute": ("_dense_flop", "_head_flop", "_expert_flop", "_attention", "_token"), "cache": ("_cache",),
    "link": ("_reduce",), "outside": ("request_s",),
}
PARTS = tuple(_IN_PART)
"""Parts of a step (and of a request outside of all steps) that live trials can correct one by one."""


class Coefficients(Record):
    """What the fit decides. Efficiencies are shares of the data sheet's rate; times are in microseconds."""

    bandwidth: float
    """Of the memory bandwidth, reading weights of linear layers."""
    expert_bandwidth: float
    """The same for weights of routed experts."""
    packed_bandwidth: float
    """On top of it for weights that are unpacked before the arithmetic (AWQ, GPTQ, FP4 on GPUs without it)."""
    cache_bandwidth: float
    """Reading the KV cache."""
    latent_bandwidth: float
    """Reading the compressed cache of latent attention (MLA)."""
    compute_16: float
    compute_8: float
    compute_4: float
    """Of the dense arithmetic rate of that many bits."""
    expert_compute: float
    """On top of it for grouped products of routed experts."""
    expert_compute_4: float
    """The same for experts of 4 bits on GPUs that compute in 4 bits."""
    attention_compute: float
    """Of the 16-bit rate, in the attention of a prompt."""
    step_us: float
    """For each step: scheduling, sampling, launch."""
    sequence_us: float
    """For each sequence of a step."""
    token_us: float
    """For each token of a prompt in a step, beside the arithmetic."""
    layer_us: float
    """For each layer."""
    expert_layer_us: float
    """More for a layer with routed experts."""
    latent_layer_us: float
    """More for a layer with latent attention."""
    reduce_us: float
    """For each all-reduce over two GPUs; grows with the logarithm of their number."""
    link: float
    """Of the link's rate, in an all-reduce."""
    request_ms: float
    """Between a request and its first step, and from the step to the client."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What one device does in a step, in bytes and operations: structure only, no coefficient."""

    layers: int
    expert_layers: int
    dense_bytes: float
    head_bytes: float
    expert_bytes: float
    expert_share: float
    """Routed experts that one token touches, of all."""
    dense_flops: float
    """Of one token."""
    head_flops: float
    expert_flops: float
    attention_flops: float
    """Of one token of a prompt for each token before it."""
    cache_bytes: float
    """KV cache read for each token of context, layers without a window."""
    windows: tuple[tuple[int, float], ...]
    """Window in tokens and bytes a token, of layers that look back no further."""
    state_bytes: float
    """Read and written for each sequence, layers with a state."""
    latent: bool
    dense_bits: int
    expert_bits: int
    packed: bool
    reduce_bytes: float
    """Moved over the link for each token in all all-reduces of a step."""
    reduces: int
    parallel: int
    stages: int


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device can do at best: bytes/s, operations/s by bits, link bytes/s."""

    memory: float
    compute: tuple[float, float, float]
    """For 16, 8 and 4 bits."""
    link: float
    peer: bool
    """Whether the link joins GPUs directly, and not through the host."""


class StepTime:
    """Seconds of a step. Built once for a model on a device, called for every step of a simulation."""

    def __init__(self, shape: Shape, rates: Rates, found: Coefficients) -> None:
        """Multiply out everything that does not change from step to step."""
        memory, us = rates.memory, 1e-6
        unpack = found.packed_bandwidth if shape.packed else 1.0
        self.shape, self.coefficients = shape, found
        self._fixed = found.step_us * us + shape.layers * found.layer_us * us
        self._fixed += shape.expert_layers * found.expert_layer_us * us
        self._fixed += shape.layers * found.latent_layer_us * us if shape.latent else 0.0
        slow = 1.0 if rates.peer else 2.0
        alpha = found.reduce_us * us * slow * max(1.0, math.log2(shape.parallel)) if shape.parallel > 1 else 0.0
        self._fixed += shape.reduces * alpha
        self._sequence = found.sequence_us * us + shape.state_bytes / (memory * found.cache_bandwidth)
        self._token = found.token_us * us
        self._dense_read = shape.dense_bytes / (memory * found.bandwidth * unpack)
        self._head_read = shape.head_bytes / (memory * found.bandwidth)
        self._expert_read = shape.expert_bytes / (memory * found.expert_bandwidth * unpack)
        efficiency = {16: found.compute_16, 8: found.compute_8, 4: found.compute_4}
        rate = dict(zip((16, 8, 4), rates.compute, strict=True))
        self._dense_flop = shape.dense_flops / (rate[shape.dense_bits] * efficiency[shape.dense_bits])
        self._head_flop = shape.head_flops / (rate[16] * found.compute_16)
        grouped = found.expert_compute_4 if shape.expert_bits == 4 else found.expert_compute
        expert_rate = rate[shape.expert_bits] * efficiency[shape.expert_bits] * grouped
        self._expert_flop = shape.expert_flops / expert_rate
        cached = found.latent_bandwidth if shape.latent else found.cache_bandwidth
        self._cache = shape.cache_bytes / (memory * cached)
        self.windows = tuple((size, each / (memory * cached)) for size, each in shape.windows)
        self._attention = shape.attention_flops / (rates.compute[0] * found.attention_compute)
        self._reduce = shape.reduce_bytes / (rates.link * found.link) if shape.parallel > 1 else 0.0
        self.request_s = found.request_ms / 1e3
        """Seconds of a request outside of all steps."""
        self.arrival_s = self.turn_s = 0.0  # a GPU server's front end has cores of its own
        self._untouched = math.log1p(-shape.expert_share) if 0 < shape.expert_share < 1 else None

    def scaled(self, parts: Mapping[str, float]) -> StepTime:
        """Return one whose parts (names of `PARTS`) take so many times as long."""
        changed = copy(self)
        for part, names in _IN_PART.items():
            for name in names:
                setattr(changed, name, getattr(self, name) * parts[part])
        changed.windows = tuple((size, each * parts["cache"]) for size, each in self.windows)
        return changed

    def seconds(
        self, sequences: float, context: float, prompt: float = 0.0, looked_back: float = 0.0, queries: float = 1.0
    ) -> float:
        """Return the time of one step.

        `sequences` decode, with `context` tokens of cache between them and `queries` tokens each (more than one with
        speculation); `prompt` tokens of prompts are computed beside, which look back at `looked_back` tokens in sum
        over these tokens. With pipeline stages the batch is spread over them and a token passes through all.
        """
        stages = self.shape.stages
        if stages > 1:
            sequences, context, prompt, looked_back = (
                part / stages for part in (sequences, context, prompt, looked_back)
            )
        tokens = sequences * queries + prompt
        if tokens <= 0:
            return 0.0
        total = self._fixed + self._sequence * sequences + self._token * prompt + self._reduce * tokens
        total += _longer(self._dense_read, self._dense_flop * tokens)
        total += _longer(self._head_read, self._head_flop * (sequences * queries + (1 if prompt else 0)))
        if self._expert_read:
            touched = 1.0 if self._untouched is None else 1.0 - math.exp(self._untouched * tokens)
            total += _longer(self._expert_read * touched, self._expert_flop * tokens)
        total += self._cache * context + self._attention * looked_back
        for size, each in self.windows:
            total += each * min(context, sequences * size)
        return total


def _longer(one: float, other: float) -> float:
    """Return the longer of two times that overlap, a little more where they are alike."""
    least, most = (one, other) if one < other else (other, one)
    if least < _FAR_APART * most:
        return most
    if most <= 0:
        return 0.0
    square = (least / most) * (least / most)
    return most * math.sqrt(math.sqrt(1.0 + square * square))


def rates_of(gpu: GpuFacts) -> Rates | Refused:
    """Return the rates of a GPU, or say which number is missing."""
    base = gpu.bf16_tflops or gpu.fp16_tflops
    if gpu.bandwidth_gbs is None or base is None:
        return Refused(reason=f"memory bandwidth or arithmetic rate of {gpu.name} is not known")
    eight = gpu.fp8_tflops or base
    four = gpu.fp4_tflops or eight
    link = gpu.link_gbs or gpu.pcie_gbs or 32.0
    return Rates(
        memory=gpu.bandwidth_gbs * 1e9,
        compute=(base * 1e12, eight * 1e12, four * 1e12),
        link=link * 1e9,
        peer=gpu.link_gbs is not None,
    )


def shape_of(model: ModelSpec, footprint: Footprint, gpu: GpuFacts) -> Shape | Refused:
    """Return what one device does in a step, or say which number of the architecture is missing."""
    if not (model.layers and model.hidden_size and model.parameters and model.attention_heads and model.head_dim):
        return Refused(reason=f"the architecture of {model.name} is not known well enough to predict its speed")
    kinds = kv.layer_kinds(model, footprint)
    if not kinds:
        return Refused(reason=f"the sizes of the KV cache of {model.name} are not known")
    ranks = footprint.tensor_parallel
    experts = float(model.expert_parameters or 0)
    embedding = float(model.embedding_parameters or 0)
    head = embedding if model.tied_embeddings else embedding / 2
    copied = float(model.replicated_parameters or 0)
    dense = max(0.0, model.parameters - experts - embedding - copied)
    dense_size, expert_size, bits = _sizes(model, footprint, dense + copied, experts)
    four, eight = bool(gpu.fp4_tflops), bool(gpu.fp8_tflops)
    packed = bits < _FOUR_BITS and not (four and _is_float4(model, footprint))
    kind = 16 if packed or bits >= _WHOLE else 4 if bits < _FOUR_BITS and four else 8 if eight else 16
    share = min(1.0, (model.experts_per_token or 1) / model.experts) if model.is_moe and model.experts else 1.0
    value = model.v_head_dim or model.head_dim
    looking = sum(kind.layers for kind in kinds if kind.letter in "fsc")
    return Shape(
        layers=model.layers,
        expert_layers=model.layers if experts else 0,
        dense_bytes=(dense / ranks + copied) * dense_size,
        head_bytes=head * _PLAIN_BYTES.get(model.dtype or "", 2.0) / ranks,
        expert_bytes=experts * expert_size / ranks,
        expert_share=share,
        dense_flops=2 * (dense / ranks + copied),
        head_flops=2 * head / ranks,
        expert_flops=2 * experts * share / ranks,
        attention_flops=2 * model.attention_heads * (model.head_dim + value) * looking / ranks,
        cache_bytes=sum(one.layers * one.bytes_per_token for one in kinds if one.letter == "f"),
        windows=tuple(
            (one.window or model.sliding_window or 0, one.layers * one.bytes_per_token)
            for one in kinds if one.letter in "sc"
        ),
        state_bytes=2.0 * sum(one.layers * one.state_bytes for one in kinds),
        latent=model.is_latent,
        dense_bits=16 if dense_size >= _WHOLE / 8 else kind,
        expert_bits=kind,
        packed=packed,
        reduce_bytes=2 * model.layers * model.hidden_size * 2.0 * 2 * (ranks - 1) / ranks,
        reduces=2 * model.layers if ranks > 1 else 0,
        parallel=ranks,
        stages=footprint.pipeline_parallel,
    )


def _sizes(model: ModelSpec, footprint: Footprint, dense: float, experts: float) -> tuple[float, float, float]:
    """Return bytes of a dense and of an expert weight, and the bits of the quantized ones."""
    plain = _PLAIN_BYTES.get(model.dtype or "", 2.0)
    bits = stored_bits(model)
    if bits is None:
        bits = footprint.weight_bits or 8 * plain
        return bits / 8, bits / 8, bits
    changed = quantized_parameters(model)
    in_experts = min(changed, experts)
    in_dense = min(changed - in_experts, dense)
    mixed = (in_dense * bits / 8 + (dense - in_dense) * plain) / dense if dense else plain
    return mixed, bits / 8 if in_experts else plain, bits


def _is_float4(model: ModelSpec, footprint: Footprint) -> bool:
    name = f"{model.quantization or ''} {model.quantization_format or ''}".lower()
    return "fp4" in name or (model.quantization is None and footprint.weight_bits is not None)


def coefficients(engine: str = "vllm") -> Coefficients:
    """Return the fitted coefficients of an engine."""
    return Coefficients(**data("step_time.yaml")["coefficients"][engine])


def step_time(
    model: ModelSpec, footprint: Footprint, gpu: GpuFacts, *, found: Coefficients | None = None
) -> StepTime | Refused:
    """Return the step-time model of a configuration on a GPU, or say which number is missing."""
    rates = rates_of(gpu)
    if isinstance(rates, Refused):
        return rates
    shape = shape_of(model, footprint, gpu)
    if isinstance(shape, Refused):
        return shape
    return StepTime(shape, rates, found or coefficients())


def steady_tpot(
    step: StepTime, in_flight: float, prompt: float, output: float, budget: int, *, share: float = 1.0
) -> float:
    """Return mean seconds a token with `in_flight` equal requests always running, by mean values instead of events.

    In each step `in_flight / output` requests end and as many prompts are computed. `share` is the part of a prompt
    that is not in the prefix cache.
    """
    context = in_flight * (prompt + output / 2)
    new = prompt * share
    per_step = in_flight * new / output
    chunk = max(1.0, min(new, budget - in_flight))
    often = min(1.0, per_step / chunk)
    chunk = max(chunk, per_step)
    looked_back = chunk * new / 2
    plain = step.seconds(in_flight, context)
    return (1 - often) * plain + often * step.seconds(in_flight, context, chunk, looked_back)


def lone_ttft(step: StepTime, in_flight: float, prompt: float, output: float, budget: int) -> float:
    """Return seconds to the first token of a request that joins `in_flight` others, without a queue."""
    others = max(0.0, in_flight - 1)
    context = others * (prompt + output / 2)
    left, done, total = prompt, 0.0, step.request_s
    total += 0.5 * step.seconds(others, context) if others else 0.0
    while left > 0:
        chunk = min(left, max(1.0, budget - others))
        total += step.seconds(others, context, chunk, chunk * (done + chunk / 2))
        done, left = done + chunk, left - chunk
    return total
