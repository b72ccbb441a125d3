"""The longest context that still fits, by the same arithmetic as the plan. PREDICTED."""

from __future__ import annotations

from tuner.capacity import kv
from tuner.capacity.activation import batch
from tuner.capacity.memory import MemoryPlan, memory_plan
from tuner.capacity.refusal import Refused
from tuner.capacity.weights import stage_layers
from tuner.domain.engine import Footprint
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.facts.gpus import usable_bytes

_CEILING = 1 << 26


def longest_context(model: ModelSpec, footprint: Footprint, hardware: Hardware) -> int | None:
    """Tokens of the longest request that the cache holds, at most what the model was made for.

    Zero when not even one block fits; None when there is no prediction. The cache itself is taken as it is for the
    context at hand: in releases that prefill whole prompts a shorter one leaves more.
    """
    plan = memory_plan(model, footprint, hardware)
    if isinstance(plan, Refused) or not model.layers:
        return None
    return tokens_in(model, footprint, hardware, plan)


def tokens_in(model: ModelSpec, footprint: Footprint, hardware: Hardware, plan: MemoryPlan) -> int:
    """Tokens of the longest request that a plan's blocks hold."""
    parts = stage_layers(model.layers or 0, footprint.pipeline_parallel)
    cuts = [kv.pool(kv.layer_kinds(model, footprint, part), footprint) for part in parts]
    pools = [cut for cut in cuts if cut is not None and cut.block_bytes == plan.block_bytes]
    if not pools:
        return 0
    step = batch(model, footprint, min(hardware.gpus, key=usable_bytes))
    low, high = 0, model.max_context or _CEILING
    while low < high:
        middle = (low + high + 1) // 2
        if all(cut.blocks_for(middle, step.tokens) <= plan.blocks for cut in pools):
            low = middle
        else:
            high = middle - 1
    return low
