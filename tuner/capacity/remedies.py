"""What would make a configuration fit, with the numbers worked out: least harm first. All of it is PREDICTED."""

from __future__ import annotations

import math

from tuner.capacity.free_fraction import fraction_for, utilization_for
from tuner.capacity.longest import longest_context
from tuner.capacity.memory import MemoryPlan, memory_plan
from tuner.capacity.weights import quantizing_bytes
from tuner.domain.engine import Footprint
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec

_GIB = 1 << 30
_HIGHEST_SHARE, _STEP = 0.95, 0.01
_SHORTEST = 512
_FP8 = 8.9
_MOST_RANKS = 8
_WORDS = {
    "vllm": {
        "context": "--max-model-len {}", "share": "--gpu-memory-utilization {:.2f}", "cache": "--kv-cache-dtype fp8",
        "weights": "--quantization fp8", "ranks": "--tensor-parallel-size {}", "stages": "--pipeline-parallel-size {}",
    },
    "trtllm": {
        "context": "max_seq_len: {}", "share": "kv_cache_config.free_gpu_memory_fraction: {:.2f}",
        "cache": "kv_cache_config.dtype: fp8", "weights": "an FP8 checkpoint", "ranks": "tensor_parallel_size: {}",
        "stages": "pipeline_parallel_size: {}",
    },
}  # fmt: skip


def remedies(
    model: ModelSpec, footprint: Footprint, hardware: Hardware, plan: MemoryPlan, *, engine: str = "vllm"
) -> tuple[str, ...]:
    """Return the changes that are predicted to make it start, in the engine's own words; each alone is enough.

    The last entry names what is left when none of them is, or beside them: a quantized checkpoint, and what it takes
    to make one.
    """
    words = _WORDS[engine]
    found = []
    tokens = (longest_context(model, footprint, hardware) or 0) // 64 * 64
    if _SHORTEST <= tokens < (footprint.max_context or 0):
        found.append(words["context"].format(tokens) + " or less")
    share = _share(footprint, plan)
    if share is not None:
        found.append(words["share"].format(share))
    small = footprint.model_copy(update={"kv_bits": 8.0, "kv_dtype": "fp8"})
    if (footprint.kv_bits or 16) > 8 and _starts(model, small, hardware):
        found.append(words["cache"] + " (check the quality)")
    quantized = footprint.model_copy(update={"weight_bits": 8.0})
    can = model.quantization is None and (footprint.weight_bits or 16) > 8 and (hardware.capability or 0.0) >= _FP8
    if can and _starts(model, quantized, hardware):
        found.append(words["weights"] + " (check the quality)")
    wider = _wider(model, footprint, hardware)
    if wider is not None:
        kind, number = wider
        others = footprint.pipeline_parallel if kind == "ranks" else footprint.tensor_parallel
        found.append(words[kind].format(number) + f" on {number * others} such GPUs")
    return (*found, *_checkpoint(model))


def _share(footprint: Footprint, plan: MemoryPlan) -> float | None:
    """Return the share that leaves room for one request of full length, in hundredths, where a share decides."""
    if footprint.kv_bytes is not None:
        return None
    used, wanted = sum(term.bytes for term in plan.terms), plan.kv_for_one or 0
    convert = utilization_for if footprint.free_memory_fraction is None else fraction_for
    share = convert(plan.device - plan.outside, used, wanted)
    rounded = math.ceil(share * 100) / 100 if share is not None else 1.0
    present = footprint.free_memory_fraction or footprint.memory_fraction or plan.budget / plan.device
    return rounded if present + _STEP / 2 < rounded <= _HIGHEST_SHARE else None


def _starts(model: ModelSpec, footprint: Footprint, hardware: Hardware) -> bool:
    plan = memory_plan(model, footprint, hardware)
    return isinstance(plan, MemoryPlan) and plan.margin >= 0


def _wider(model: ModelSpec, footprint: Footprint, hardware: Hardware) -> tuple[str, int] | None:
    """Return the fewest ranks with which it starts on more of the same GPU, else the fewest stages of a pipeline."""
    ranks = footprint.tensor_parallel * 2
    while ranks <= _MOST_RANKS and (model.attention_heads or 0) % ranks == 0:
        if _starts_on_more(model, footprint.model_copy(update={"tensor_parallel": ranks}), hardware):
            return "ranks", ranks
        ranks *= 2
    for stages in (2 * footprint.pipeline_parallel, 4 * footprint.pipeline_parallel):
        if _starts_on_more(model, footprint.model_copy(update={"pipeline_parallel": stages}), hardware):
            return "stages", stages
    return None


def _starts_on_more(model: ModelSpec, footprint: Footprint, hardware: Hardware) -> bool:
    count = footprint.tensor_parallel * footprint.pipeline_parallel
    return _starts(model, footprint, hardware.model_copy(update={"gpus": hardware.gpus[:1] * count}))


def _checkpoint(model: ModelSpec) -> tuple[str, ...]:
    if model.quantization is not None:
        return ("a smaller model",)
    size = quantizing_bytes(model, 8)
    making = f" (making an 8-bit one takes about {size / _GIB:.0f} GiB, original and result together)" if size else ""
    return (f"a quantized checkpoint{making}",)
