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
    v_head_dim: int | None = None
    """Size of a value head where it differs from `head_dim`."""
    kv_lora_rank: int | None = None
    """Latent attention (MLA): size of the compressed vector that is cached, with `qk_rope_head_dim` beside it."""
    q_lora_rank: int | None = None
    qk_rope_head_dim: int | None = None
    index_head_dim: int | None = None
    """Sparse attention with an indexer: size of its key, of which `index_layers` layers keep a cache."""
    index_layers: int | None = None
    sliding_window: int | None = None
    layer_kinds: str = ""
    """A letter a layer, where layers differ: f full attention, s sliding window, c chunks of `sliding_window` tokens,
    m a state of fixed size (Mamba, linear attention), x one that caches nothing."""
    sliding_kv_heads: int | None = None
    """Of window layers, where they differ from the full ones; likewise the next two."""
    sliding_head_dim: int | None = None
    sliding_v_head_dim: int | None = None
    state_elements: int | None = None
    """Recurrent state of one `m` layer for one sequence, in elements of `state_dtype`."""
    state_dtype: str | None = None
    conv_elements: int | None = None
    """Convolution state of one `m` layer for one sequence, in elements of `dtype`."""
    experts_per_token: int | None = None
    moe_intermediate_size: int | None = None
    shared_intermediate_size: int | None = None
    """Width of the shared experts together."""
    embedding_parameters: int | None = None
    """Of `parameters`: input embedding and output head, which most quantized checkpoints keep in 16 bits."""
    expert_parameters: int | None = None
    """Of `parameters`: routed experts."""
    replicated_parameters: int | None = None
    """Of `parameters`: what each tensor-parallel rank holds whole."""
    rope_elements: int | None = None
    """Table of rotary positions that every rank holds, in elements of `dtype`: large for contexts of millions."""
    tied_embeddings: bool | None = None
    multimodal: bool = False
    quantization_bits: float | None = None
    quantization_group: int | None = None
    """Weights that share a scale along the input (AWQ, GPTQ, compressed-tensors, NVFP4)."""
    quantization_block: tuple[int, int] | None = None
    """Weights that share a scale, output x input (FP8 blocks)."""
    quantized_part: Literal["linear", "mlp", "experts"] | None = None
    quantization_format: str | None = None
    """The method's own finer name, e.g. `float-quantized`, `pack-quantized`, `NVFP4`."""
    kv_quantization: str | None = None
    """KV cache type that the checkpoint asks for, e.g. `fp8`."""
    fingerprint: str | None = None
    """Hash of config.json and of the names and sizes of the weight files, for a local directory."""

    @property
    def is_moe(self) -> bool:
        """Whether the model routes tokens to experts."""
        return bool(self.experts and self.experts > 1)

    @property
    def is_latent(self) -> bool:
        """Whether attention caches one compressed vector a token (MLA)."""
        return self.kv_lora_rank is not None

    @property
    def is_hybrid(self) -> bool:
        """Whether some layers keep a state of fixed size."""
        return "m" in self.layer_kinds

    @property
    def is_local(self) -> bool:
        """Whether the weights lie in a directory of this machine."""
        return self.source == "directory"
