"""How a checkpoint is quantized: quantization_config of config.json, or hf_quant_config.json beside it."""

from __future__ import annotations

from typing import Any

from tuner.inspect.model_config import Config


def quantization(config: Config, beside: Config | None = None) -> dict[str, Any]:
    """Return the fields of ModelSpec that say how the weights are quantized, empty for a plain checkpoint.

    `beside` is hf_quant_config.json (NVIDIA Model Optimizer), which counts where config.json says nothing.
    """
    nested = config.get("text_config")
    parts = (config, nested if isinstance(nested, dict) else {})
    found = next(
        (part[key] for key in ("quantization_config", "compression_config") for part in parts if part.get(key)), None
    )
    if isinstance(found, dict):
        return {key: value for key, value in _fields(found).items() if value is not None}
    inner = (beside or {}).get("quantization")
    if isinstance(inner, dict):
        return {key: value for key, value in _fields({"quant_method": _modelopt(inner), **inner}).items() if value}
    return {}


def _modelopt(inner: Config) -> str:
    """Return the engine's name for it (vllm/model_executor/layers/quantization/modelopt.py)."""
    algorithm = str(inner.get("quant_algo")).upper()
    if "MIXED" in algorithm:
        return "modelopt_mixed"
    return "modelopt_fp4" if "FP4" in algorithm else "modelopt"


def _fields(found: Config) -> dict[str, Any]:
    method = found.get("quant_method")
    method = method if isinstance(method, str) else None
    if found.get("quant_algo") and (method is None or method == "modelopt"):
        method = _modelopt(found)
    named = found.get("quant_algo") or found.get("format")
    groups = _weight_groups(found)
    bits = {group.get("num_bits") for group in groups} or {_bits(method, found)}
    group_size = next((group.get("group_size") for group in groups), found.get("group_size", found.get("q_group_size")))
    block = found.get("weight_block_size") or next((group.get("block_structure") for group in groups), None)
    return {
        "quantization": method,
        "quantization_format": named if isinstance(named, str) else None,
        "quantization_bits": next(iter(bits)) if len(bits) == 1 else None,
        "quantization_group": group_size if isinstance(group_size, int) and group_size > 0 else None,
        "quantization_block": tuple(block) if isinstance(block, list) and _is_pair(block) else None,
        "quantized_part": _part(method, found),
        "kv_quantization": _kv(found),
    }


def _weight_groups(found: Config) -> list[dict[str, Any]]:
    groups = found.get("config_groups")
    if not isinstance(groups, dict):
        return []
    weights = [group.get("weights") for group in groups.values() if isinstance(group, dict)]
    return [weight for weight in weights if isinstance(weight, dict)]


def _bits(method: str | None, found: Config) -> float | None:
    stated = found.get("bits", found.get("w_bit"))
    if isinstance(stated, (int, float)) and not isinstance(stated, bool) and 0 < stated <= 16:
        return float(stated)
    algorithm = str(found.get("quant_algo") or method or "").lower()
    if "fp4" in algorithm:
        return 4.0
    return 8.0 if "fp8" in algorithm or algorithm == "experts_int8" else None


def _is_pair(value: list[object]) -> bool:
    return len(value) == 2 and all(isinstance(side, int) and side > 0 for side in value)


def _part(method: str | None, found: Config) -> str | None:
    """Say which linear layers are quantized, from the list of those that are not."""
    if method is None:
        return None
    lists = [found.get(key) for key in ("ignore", "modules_to_not_convert", "exclude_modules")]
    kept = [str(item) for items in lists if isinstance(items, list) for item in items]
    no_attention = any("self_attn" in item and "kv_b" not in item for item in kept)
    no_dense = any("shared_expert" in item or "|gate_up|" in item for item in kept)
    if method == "mxfp4" or (no_attention and no_dense):
        return "experts"
    return "mlp" if no_attention else "linear"


def _kv(found: Config) -> str | None:
    scheme = found.get("kv_cache_scheme")
    if isinstance(scheme, dict) and scheme.get("num_bits") == 8:
        return "fp8"
    stated = str(found.get("kv_cache_quant_algo")).lower()
    return stated if stated in ("fp8", "nvfp4") else None
