"""Device memory before a launch: weights and KV cache, by arithmetic. PREDICTED, and used where the margin is clear.

KV bytes of a token = 2 x layers x KV heads x head size x bytes, KV heads split over tensor-parallel ranks and at least
one a rank (vllm/v1/kv_cache_interface.py). Checked against published start-up logs: 327,680 bytes a token for
Llama-3-70B in 16 bits (vllm issue 11230: 0.39 GiB held 1,280 tokens).
"""

from __future__ import annotations

from tuner.domain.engine import Footprint
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.domain.record import Record

_DEFAULT_FRACTION = 0.92
_GIB = 1 << 30


class MemoryPlan(Record):
    """Bytes on one device. PREDICTED."""

    budget: int
    weights: int
    kv_per_token: int | None
    kv_for_one: int | None
    """KV cache of one request of the full context."""

    @property
    def fits(self) -> bool:
        """False only when weights alone, or weights and one request, are clearly above the budget."""
        return self.weights + (self.kv_for_one or 0) <= self.budget

    @property
    def text(self) -> str:
        """All terms, in GiB."""
        kv = f" + KV cache of one full-length request {self.kv_for_one / _GIB:.1f} GiB" if self.kv_for_one else ""
        return f"PREDICTED per device: weights {self.weights / _GIB:.1f} GiB{kv}, budget {self.budget / _GIB:.1f} GiB"


def kv_bytes_per_token(model: ModelSpec, footprint: Footprint) -> int | None:
    """Bytes of KV cache that one token takes on one device, or None when the architecture is not known."""
    if not (model.layers and model.kv_heads and model.head_dim):
        return None
    heads = max(1, model.kv_heads // footprint.tensor_parallel)
    layers = -(-model.layers // footprint.pipeline_parallel)
    return int(2 * layers * heads * model.head_dim * (footprint.kv_bits or 16) / 8)


def memory_plan(model: ModelSpec, footprint: Footprint, hardware: Hardware) -> MemoryPlan | None:
    """Predict the memory of one device, or None when sizes are not known or there is no GPU."""
    if hardware.kind != "cuda" or not hardware.gpus:
        return None
    stored = model.weight_bytes
    if stored is None and model.parameters is not None:
        stored = int(model.parameters * 2)
    if stored is None:
        return None
    if footprint.weight_bits is not None and model.parameters is not None and model.quantization is None:
        stored = int(model.parameters * footprint.weight_bits / 8)
    per_token = kv_bytes_per_token(model, footprint)
    smallest = min(gpu.memory_bytes for gpu in hardware.gpus)
    return MemoryPlan(
        budget=int(smallest * (footprint.memory_fraction or _DEFAULT_FRACTION)),
        weights=stored // (footprint.tensor_parallel * footprint.pipeline_parallel),
        kv_per_token=per_token,
        kv_for_one=per_token * footprint.max_context if per_token and footprint.max_context else None,
    )
