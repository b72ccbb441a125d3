"""ModelSpec: which weights are served, and the few numbers of their architecture that decide what can work."""

from __future__ import annotations

from typing import Literal

from tuner.domain.record import Record


class ModelSpec(Record):
    """A model as it was resolved.

    `location` is what the engine is given: a directory or a hub id. `name` is what clients call it.
    Sizes are in elements, `weight_bytes` in bytes; None means not known without the weights.
    """

    requested: str
    name: str
    location: str
    source: Literal["directory", "hub", "alias"]
    revision: str | None = None
    gated: bool = False
    architecture: str | None = None
    layers: int | None = None
    hidden_size: int | None = None
    intermediate_size: int | None = None
    attention_heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    vocab_size: int | None = None
    max_context: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    experts: int | None = None
    parameters: int | None = None
    weight_bytes: int | None = None
    fingerprint: str | None = None
    """Hash of config.json and of the names and sizes of the weight files, for a local directory."""

    @property
    def is_moe(self) -> bool:
        """Whether the model routes tokens to experts."""
        return bool(self.experts and self.experts > 1)

    @property
    def is_local(self) -> bool:
        """Whether the weights lie in a directory of this machine."""
        return self.source == "directory"
