"""What config.json says of an architecture: which layers cache what, and how the weights are quantized.

Pure: takes the parsed file, returns fields of ModelSpec. Key names are those of transformers and of the models' own
configuration classes; what an absent key means is written in facts/data/config_defaults.yaml.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tuner.facts.read import data

Config = Mapping[str, Any]


class Keys:
    """Reads keys of config.json, where a multimodal model nests its language model under `text_config`."""

    def __init__(self, config: Config) -> None:
        """Take the parsed file as it is; odd values count as absent."""
        nested = (config[key] for key in ("text_config", "llm_config") if isinstance(config.get(key), dict))
        text: Config = next(nested, {})
        defaults = data("config_defaults.yaml")["model_types"]
        kind = str(text.get("model_type") or config.get("model_type"))
        self.parts: tuple[Config, ...] = (config, text, defaults.get(kind, {}))
        self.kind = kind

    def get(self, *names: str) -> Any:  # noqa: ANN401  (config.json is dynamic)
        """Return the first of these keys that is set."""
        return next((part[name] for name in names for part in self.parts if part.get(name) is not None), None)

    def count(self, *names: str) -> int | None:
        """Return a number above zero; lists (one number a layer) and texts are not known."""
        value = self.get(*names)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    def text(self, *names: str) -> str | None:
        """Return a text."""
        value = self.get(*names)
        return value if isinstance(value, str) else None

    def list(self, *names: str) -> list[Any]:
        """Return a list, empty when there is none."""
        value = self.get(*names)
        return value if isinstance(value, list) else []

    def table(self, *names: str) -> dict[str, Any]:
        """Return a mapping, empty when there is none."""
        value = self.get(*names)
        return value if isinstance(value, dict) else {}


def attention(keys: Keys) -> dict[str, Any]:
    """Return heads, sizes and kinds of layers."""
    heads = keys.count("num_attention_heads", "n_head")
    hidden = keys.count("hidden_size", "n_embd")
    kv_heads = keys.count("num_key_value_heads", "multi_query_group_num")
    if kv_heads is None and keys.get("num_key_value_heads") is None:
        kv_heads = _block_kv_heads(keys, heads) if keys.list("block_configs") else heads
    head_dim = keys.count("head_dim", "attention_head_dim", "kv_channels")
    head_dim = head_dim or (hidden // heads if hidden and heads else None)
    found: dict[str, Any] = {
        "attention_heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "v_head_dim": keys.count("v_head_dim"),
        "kv_lora_rank": keys.count("kv_lora_rank"),
        "q_lora_rank": keys.count("q_lora_rank"),
        "qk_rope_head_dim": keys.count("qk_rope_head_dim"),
        "index_head_dim": keys.count("index_head_dim"),
        "sliding_window": keys.count("sliding_window", "attention_chunk_size"),
        "layer_kinds": layer_kinds(keys),
    }
    if found["kv_lora_rank"]:
        found["head_dim"] = found["kv_lora_rank"] + (found["qk_rope_head_dim"] or 0)
    if found["index_head_dim"]:
        kinds = keys.list("indexer_types")
        found["index_layers"] = kinds.count("full") if kinds else layers_of(keys)
    if keys.count("global_head_dim"):
        found |= {"sliding_kv_heads": kv_heads, "sliding_head_dim": head_dim}
        found |= {"head_dim": keys.count("global_head_dim")}
        found |= {"kv_heads": keys.count("num_global_key_value_heads") or kv_heads}
    if keys.count("swa_num_key_value_heads"):
        found |= {
            "sliding_kv_heads": keys.count("swa_num_key_value_heads"),
            "sliding_head_dim": keys.count("swa_head_dim") or head_dim,
            "sliding_v_head_dim": keys.count("swa_v_head_dim"),
        }
    return {**found, **state(keys)}


_LETTERS = {
    "full_attention": "f",
    "attention": "f",
    "sliding_attention": "s",
    "deepseek_sparse_attention": "f",
    "chunked_attention": "c",
    "linear_attention": "m",
    "mamba": "m",
    "moe": "x",
    "mlp": "x",
}
_NEMOTRON = {"M": "m", "*": "f", "E": "x", "-": "x"}


def layers_of(keys: Keys) -> int | None:
    """Return the number of layers, from their list where no number is given."""
    stated = keys.count("num_hidden_layers", "n_layer", "num_layers")
    return stated or len(keys.text("hybrid_override_pattern") or keys.list("layer_types", "layers_block_type")) or None


def layer_kinds(keys: Keys) -> str:
    """Return the letters of ModelSpec.layer_kinds; empty when all layers are full attention, `?` for one not known."""
    layers = layers_of(keys) or 0
    kinds = _listed(keys, layers) or _patterned(keys, layers)
    shared = keys.count("num_kv_shared_layers") or 0
    if shared:
        kinds = (kinds or "f" * layers)[: layers - shared] + "x" * shared
    return "" if set(kinds) == {"f"} else kinds


def _listed(keys: Keys, layers: int) -> str:
    pattern = keys.text("hybrid_override_pattern")
    if pattern:
        return "".join(_NEMOTRON.get(letter, "?") for letter in pattern)
    named = keys.list("layer_types", "layers_block_type")
    if named:
        return "".join(_LETTERS.get(str(kind), "?") for kind in named)
    flags = keys.list("hybrid_layer_pattern")
    if flags:
        return "".join("s" if flag else "f" for flag in flags)
    linear = keys.table("linear_attn_config")
    if linear.get("full_attn_layers"):
        return "".join("f" if number in linear["full_attn_layers"] else "m" for number in range(1, layers + 1))
    blocks = keys.list("block_configs")
    if blocks:
        return "".join(_block_kind(block) for block in blocks)
    return ""


def _block_kv_heads(keys: Keys, heads: int | None) -> int | None:
    """Return the KV heads of a model whose layers were searched one by one, when all that attend agree."""
    blocks = [block.get("attention") for block in keys.list("block_configs") if isinstance(block, dict)]
    shared = {block.get("n_heads_in_group") for block in blocks if isinstance(block, dict)} - {None}
    size = shared.pop() if len(shared) == 1 else None
    return heads // size if heads and isinstance(size, int) and size > 0 else None


def _block_kind(block: object) -> str:
    attention_of = block.get("attention") if isinstance(block, dict) else None
    if not isinstance(attention_of, dict):
        return "?"
    return "x" if attention_of.get("no_op") or attention_of.get("replace_with_linear") else "f"


def _patterned(keys: Keys, layers: int) -> str:
    interval = keys.count("full_attention_interval")
    if interval:
        return "".join("m" if (index + 1) % interval else "f" for index in range(layers))
    period, offset = keys.count("attn_layer_period"), keys.get("attn_layer_offset")
    if period:
        return "".join("f" if index % period == (offset or 0) else "m" for index in range(layers))
    indices = keys.list("attn_layer_indices")
    if indices:
        return "".join("f" if index in indices else "m" for index in range(layers))
    if keys.count("attention_chunk_size"):
        every = keys.count("no_rope_layer_interval") or 4
        return "".join("c" if (index + 1) % every else "f" for index in range(layers))
    if any(str(key).startswith(("mamba_", "ssm_")) for part in keys.parts for key in part):
        return "?" * layers
    return _windowed(keys, layers)


def _windowed(keys: Keys, layers: int) -> str:
    window, context = keys.count("sliding_window"), keys.count("max_position_embeddings")
    if window is None or keys.get("use_sliding_window") is False or (context and window >= context):
        return ""
    every = keys.count("sliding_window_pattern")
    if every:
        return "".join("s" if (index + 1) % every else "f" for index in range(layers))
    return "s" * layers


def state(keys: Keys) -> dict[str, Any]:
    """Return what one `m` layer keeps for one sequence (vllm/model_executor/layers/mamba/mamba_utils.py)."""
    dtype = keys.text("mamba_ssm_cache_dtype", "mamba_ssm_dtype")
    value_heads, key_heads = keys.count("linear_num_value_heads"), keys.count("linear_num_key_heads")
    if value_heads and key_heads:
        key_dim, value_dim = keys.count("linear_key_head_dim") or 0, keys.count("linear_value_head_dim") or 0
        width = 2 * key_heads * key_dim + value_heads * value_dim
        kernel = keys.count("linear_conv_kernel_dim") or 1
        return _state(value_heads * value_dim * key_dim, width * (kernel - 1), dtype)
    heads, size = keys.count("mamba_num_heads", "mamba_n_heads"), keys.count("ssm_state_size", "mamba_d_state")
    head_dim = keys.count("mamba_head_dim", "mamba_d_head")
    if heads and size and head_dim:
        groups = keys.count("n_groups", "mamba_n_groups") or 1
        kernel = keys.count("conv_kernel", "mamba_d_conv") or 1
        return _state(heads * head_dim * size, (heads * head_dim + 2 * groups * size) * (kernel - 1), dtype)
    linear = keys.table("linear_attn_config")
    if isinstance(linear.get("num_heads"), int) and isinstance(linear.get("head_dim"), int):
        heads, head_dim = linear["num_heads"], linear["head_dim"]
        kernel = linear.get("short_conv_kernel_size") or 1
        return _state(heads * head_dim * head_dim, 3 * heads * head_dim * (int(kernel) - 1), dtype or "float32")
    hidden = keys.count("hidden_size")
    if size and hidden and keys.count("mamba_expand"):
        inner = hidden * (keys.count("mamba_expand") or 1)
        return _state(inner * size, inner * ((keys.count("mamba_d_conv") or 1) - 1), dtype)
    return {}


def _state(elements: int, conv: int, dtype: str | None) -> dict[str, Any]:
    return {"state_elements": elements, "conv_elements": conv, "state_dtype": dtype}


def rope_elements(keys: Keys, shape: Mapping[str, Any]) -> int | None:
    """Return the size of the rotary tables (vllm/model_executor/layers/rotary_embedding).

    Linear, dynamic and YaRN scaling stretch the table; models with a second base for window layers hold a second one.
    """
    rows = keys.count("max_position_embeddings")
    size = shape.get("qk_rope_head_dim") or shape.get("head_dim")
    if rows is None or not size:
        return None
    part = keys.get("partial_rotary_factor")
    width = int(size * part) if isinstance(part, (int, float)) and 0 < part <= 1 else size
    scaling = keys.table("rope_scaling", "rope_parameters")
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor")
    second = rows * width if keys.kind.startswith("gemma3") else 0
    if isinstance(factor, (int, float)) and 1 <= factor < 1e6:
        if kind in ("linear", "dynamic"):
            rows = int(rows * factor)
        original = scaling.get("original_max_position_embeddings")
        if kind == "yarn" and isinstance(original, int):
            rows = int(original * factor)
    return rows * width + second


def context(keys: Keys) -> int | None:
    """Return the longest context (vllm/config/model.py, _get_and_verify_max_len).

    Linear and dynamic scaling stretch it. Whether YaRN does, or has done so already in the file, differs between
    releases: not known then.
    """
    length = keys.count("max_position_embeddings", "n_positions", "seq_length")
    scaling = keys.get("rope_scaling", "rope_parameters")
    if length is None or not isinstance(scaling, dict):
        return length
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor")
    if not isinstance(factor, (int, float)) or not math.isfinite(factor) or not 1 <= factor < 1e6:
        return length
    if keys.kind.startswith("gemma3"):
        return length
    if kind in ("linear", "dynamic"):
        return int(length * factor)
    original = scaling.get("original_max_position_embeddings", length)
    stretched = isinstance(original, (int, float)) and original * factor > length
    return None if kind == "yarn" and stretched else length
