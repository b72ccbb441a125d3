"""The prediction beside what the engine said of itself after a start: kept, so that the error is known and shown."""

from __future__ import annotations

from tuner.capacity.memory import MemoryPlan
from tuner.domain.engine import Footprint, StartupFacts
from tuner.domain.record import Record

_GIB = 1 << 30
_FULL_BITS = 16
_IGNORED = 1.6
"""Bytes a token against the predicted ones: twice where the type is ignored, near one where it is not."""


class Compared(Record):
    """One quantity, predicted and as the engine logged it, in bytes or tokens."""

    name: str
    predicted: float
    logged: float

    @property
    def error(self) -> float:
        """Predicted minus logged."""
        return self.predicted - self.logged

    @property
    def text(self) -> str:
        """Say which number is which."""
        if self.name == "KV cache tokens":
            return f"{self.name}: {self.logged:,.0f} MEASURED, {self.predicted:,.0f} PREDICTED"
        return f"{self.name}: {self.logged / _GIB:.2f} GiB MEASURED, {self.predicted / _GIB:.2f} GiB PREDICTED"


def compared(plan: MemoryPlan, facts: StartupFacts) -> tuple[Compared, ...]:
    """Pair each quantity that the engine logged at its start with its prediction.

    The engine counts rotary tables with the weights. Weights of a pipeline are those of the stage that logged them.
    """
    weights = plan.weights + plan.term("rotary tables")
    graphs = plan.term("CUDA graphs") or plan.outside
    pairs = (
        ("weights", weights, facts.weight_bytes),
        ("CUDA graphs", graphs, facts.graph_bytes),
        ("KV cache", max(0, plan.available), facts.kv_cache_bytes),
        ("KV cache tokens", plan.kv_tokens, facts.kv_cache_tokens),
    )
    said = [(name, predicted, logged) for name, predicted, logged in pairs if logged is not None]
    return tuple(Compared(name=name, predicted=predicted, logged=logged) for name, predicted, logged in said)


def narrow_cache_ignored(plan: MemoryPlan, footprint: Footprint, facts: StartupFacts) -> str | None:
    """Say so when a KV cache type narrower than 16 bits was asked for and the tokens that the engine holds deny it.

    vLLM's first V1 releases take `--kv-cache-dtype fp8` and keep 16 bits (vllm issue 14221). Only of models whose
    layers all cache the same: elsewhere the engine's line counts something else than tokens of the pool.
    """
    plain_pool = plan.kv_per_token is not None and plan.block_bytes == plan.kv_per_token * plan.block_tokens
    narrow = footprint.kv_dtype is not None and footprint.kv_bits is not None and footprint.kv_bits < _FULL_BITS
    if not (narrow and plain_pool and facts.kv_cache_tokens and plan.kv_per_token):
        return None
    held = (facts.kv_cache_bytes or max(0, plan.available)) / facts.kv_cache_tokens
    if held < _IGNORED * plan.kv_per_token:
        return None
    return (
        f"--kv-cache-dtype {footprint.kv_dtype} seems to have no effect: the engine holds {facts.kv_cache_tokens:,} "
        f"tokens, {held / 1024:.0f} KiB each, and {plan.kv_per_token / 1024:.0f} KiB is what that type takes"
    )
