"""The prediction beside what the engine said of itself after a start: kept, so that the error is known and shown."""

from __future__ import annotations

from tuner.capacity.memory import MemoryPlan
from tuner.domain.engine import StartupFacts
from tuner.domain.record import Record

_GIB = 1 << 30


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
