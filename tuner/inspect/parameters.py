"""Counts the parameters of an architecture from config.json, where no weights are at hand.

Matrices only, with the norms and biases of the usual block left out: below 0.1 % of a model. The published counts that
tests hold it against are met within 0.3 %.
"""

from __future__ import annotations

from typing import Any

from tuner.inspect.model_config import Keys, layers_of

_SHARED = ("moe_shared_expert_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size")
_UNGATED = {"gelu", "gelu_new", "gelu_fast", "relu", "relu2", "quick_gelu"}


def parameters(keys: Keys, shape: dict[str, Any]) -> dict[str, Any]:
    """Return counts for ModelSpec (total, embeddings, routed experts, replicated), empty where a size is missing.

    `shape` holds what `model_config.attention` found.
    """
    hidden, layers, vocab = keys.count("hidden_size", "n_embd"), layers_of(keys), keys.count("vocab_size")
    if not (hidden and layers and vocab and shape.get("attention_heads") and shape.get("kv_heads")):
        return {}
    kinds = shape["layer_kinds"] or "f" * layers
    if "?" in kinds or len(kinds) != layers or keys.list("block_configs"):
        return {}
    tied = keys.get("tie_word_embeddings") is True
    embedding = hidden * vocab * (1 if tied else 2)
    replicated, mixers = 0, 0
    for kind in kinds:
        own, copied = _mixer(keys, shape, hidden, kind)
        mixers += own
        replicated += copied
    dense, experts, routers = _feed_forward(keys, hidden, layers)
    vision = _vision(keys)
    return {
        "parameters": embedding + mixers + dense + experts + routers + vision,
        "embedding_parameters": embedding,
        "expert_parameters": experts or None,
        "replicated_parameters": (replicated + routers) or None,
        "tied_embeddings": tied,
    }


def _mixer(keys: Keys, shape: dict[str, Any], hidden: int, kind: str) -> tuple[int, int]:
    """Return (all, what every tensor-parallel rank holds whole) of one layer's attention or state mixer."""
    if kind == "m":
        return _linear_mixer(keys, hidden), 0
    if kind == "x" and not keys.count("num_kv_shared_layers"):
        return 0, 0
    if shape.get("kv_lora_rank"):
        return _latent(keys, shape, hidden)
    windowed = kind in "sc"
    heads = (keys.count("swa_num_attention_heads") if windowed else None) or shape["attention_heads"]
    kv_heads = (shape.get("sliding_kv_heads") if windowed else None) or shape["kv_heads"]
    size = (shape.get("sliding_head_dim") if windowed else None) or shape["head_dim"]
    values = (shape.get("sliding_v_head_dim") if windowed else None) or shape.get("v_head_dim") or size
    gate = heads * size if keys.get("attn_output_gate") is True or keys.kind == "qwen3_next" else 0
    shared = keys.get("attention_k_eq_v") is True and kind == "f"
    return hidden * (heads * size + gate + kv_heads * (size + (0 if shared else values)) + heads * values), 0


def _latent(keys: Keys, shape: dict[str, Any], hidden: int) -> tuple[int, int]:
    heads, rank = shape["attention_heads"], shape["kv_lora_rank"]
    rope, nope = shape.get("qk_rope_head_dim") or 0, keys.count("qk_nope_head_dim") or 0
    values, query_rank = shape.get("v_head_dim") or nope, shape.get("q_lora_rank")
    copied = hidden * (rank + rope) + (hidden * query_rank if query_rank else 0)
    split = (query_rank or hidden) * heads * (nope + rope) + rank * heads * (nope + values) + heads * values * hidden
    index = keys.count("index_n_heads")
    if index and query_rank:
        size = keys.count("index_head_dim") or 0
        copied += query_rank * index * size + hidden * (size + index)
    return split + copied, copied


def _linear_mixer(keys: Keys, hidden: int) -> int:
    value_heads, key_heads = keys.count("linear_num_value_heads"), keys.count("linear_num_key_heads")
    if value_heads and key_heads:
        key_dim = key_heads * (keys.count("linear_key_head_dim") or 0)
        value_dim = value_heads * (keys.count("linear_value_head_dim") or 0)
        kernel = keys.count("linear_conv_kernel_dim") or 1
        return hidden * (2 * key_dim + 3 * value_dim + 2 * value_heads) + kernel * (2 * key_dim + value_dim)
    heads, size = keys.count("mamba_num_heads", "mamba_n_heads"), keys.count("ssm_state_size", "mamba_d_state")
    if heads and size:
        inner = heads * (keys.count("mamba_head_dim", "mamba_d_head") or 0)
        groups = (keys.count("n_groups", "mamba_n_groups") or 1) * size
        kernel = keys.count("conv_kernel", "mamba_d_conv") or 1
        return hidden * (3 * inner + 2 * groups + heads) + kernel * (inner + 2 * groups)
    linear = keys.table("linear_attn_config")
    width = int(linear.get("num_heads") or 0) * int(linear.get("head_dim") or 0)
    return 5 * hidden * width


def _feed_forward(keys: Keys, hidden: int, layers: int) -> tuple[int, int, int]:
    """Return parameters of (dense and shared layers, routed experts, routers)."""
    matrices = 2 if (keys.text("hidden_act", "mlp_hidden_act", "hidden_activation") or "silu") in _UNGATED else 3
    if keys.kind in ("gemma", "gemma2", "gemma3_text", "gemma4_text"):
        matrices = 3
    width = keys.count("intermediate_size", "n_inner", "ffn_hidden_size") or 4 * hidden
    count = experts_of(keys)
    sparse = _sparse_layers(keys, layers) if count else 0
    dense = _dense_layers(keys, layers, sparse)
    wide = keys.count("intermediate_size_mlp", "dense_intermediate_size") or width
    expert_width = keys.count("moe_intermediate_size") or width
    total = dense * matrices * hidden * (wide if count else width)
    shared = shared_width(keys) or 0
    total += sparse * matrices * hidden * shared
    latent = keys.count("moe_latent_size", "routed_expert_hidden_size")
    total += sparse * 2 * hidden * latent if latent else 0
    routed = sparse * (count or 0) * matrices * (latent or hidden) * expert_width
    return total, routed, sparse * hidden * (count or 0)


def _pattern(keys: Keys) -> str | None:
    """Return the pattern of models whose layers hold either a mixer or a feed-forward block."""
    named = [str(kind) for kind in keys.list("layers_block_type")]
    if "moe" in named or "mlp" in named:
        return "".join({"moe": "E", "mlp": "-"}.get(kind, "M") for kind in named)
    return keys.text("hybrid_override_pattern")


def _dense_layers(keys: Keys, layers: int, sparse: int) -> int:
    pattern = _pattern(keys)
    if pattern:
        return pattern.count("-")
    return layers if keys.get("enable_moe_block") is True else layers - sparse


def experts_of(keys: Keys) -> int | None:
    """Return the number of routed experts."""
    return keys.count("num_local_experts", "num_experts", "n_routed_experts")


def shared_width(keys: Keys) -> int | None:
    """Return the width of the shared experts of one layer together."""
    stated = keys.count(*_SHARED)
    if stated:
        return stated
    shared = keys.count("n_shared_experts", "num_shared_experts")
    width = keys.count("moe_intermediate_size")
    if keys.kind == "llama4_text":
        return keys.count("intermediate_size")
    return shared * width if shared and width else None


def _sparse_layers(keys: Keys, layers: int) -> int:
    pattern = _pattern(keys)
    if pattern:
        return pattern.count("E")
    frequency = keys.get("moe_layer_freq")
    if isinstance(frequency, list):
        return sum(1 for flag in frequency if flag)
    kinds = keys.list("mlp_layer_types")
    if kinds:
        return kinds.count("sparse")
    step = keys.count("interleave_moe_layer_step", "decoder_sparse_step") or 1
    first = keys.count("first_k_dense_replace") or 0
    return (layers - first) // step


def _vision(keys: Keys) -> int:
    """Return the vision encoder's parameters, roughly: it is small beside the language model."""
    table = keys.table("vision_config")
    hidden, depth = table.get("hidden_size"), table.get("depth", table.get("num_hidden_layers"))
    width = table.get("intermediate_size")
    if not (isinstance(hidden, int) and isinstance(depth, int) and isinstance(width, int)):
        return 0
    return depth * (4 * hidden * hidden + 2 * hidden * width)
