"""Reads a model's directory: config.json and the sizes of its weight files. Nothing is executed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tuner.domain.model import ModelSpec
from tuner.domain.record import content_hash
from tuner.errors import ModelError

_WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")


def read_model_dir(path: Path, *, requested: str, name: str | None = None) -> ModelSpec:
    """Return the model of a local directory.

    Raises:
        ModelError: no directory, no config.json, a broken one, or one that names no architecture.

    """
    config = _read_config(path)
    weights = sorted(
        (item.name, item.stat().st_size) for item in path.iterdir() if item.is_file() and item.suffix in _WEIGHTS
    )
    if not weights:
        raise ModelError(
            f"{path} has a config.json but no weights ({', '.join(_WEIGHTS)})", hint="is the download complete?"
        )
    return _spec(
        config,
        requested=requested,
        name=name or path.resolve().name,
        location=str(path.resolve()),
        weight_bytes=sum(size for _, size in weights),
        fingerprint=content_hash([config, [list(pair) for pair in weights]]),
    )


def cached_config(hub_id: str) -> dict[str, Any] | None:
    """Return config.json of a hub model from the local hub cache, if it lies there."""
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub")) / ("models--" + hub_id.replace("/", "--"))
    for snapshot in sorted((cache / "snapshots").glob("*/config.json")):
        return _read_config(snapshot.parent)
    return None


def with_config(spec: ModelSpec, config: dict[str, Any]) -> ModelSpec:
    """Fill in the architecture of a hub model from its config.json."""
    return _spec(config, **{**spec.model_dump(exclude=_ARCHITECTURE), "source": spec.source})


_ARCHITECTURE = {
    "architecture",
    "layers",
    "hidden_size",
    "intermediate_size",
    "attention_heads",
    "kv_heads",
    "head_dim",
    "vocab_size",
    "max_context",
    "dtype",
    "quantization",
    "experts",
}


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise ModelError(f"{path} is not a directory")
    file = path / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"), parse_constant=str)
    except FileNotFoundError:
        raise ModelError(f"{path} has no config.json", hint="give the directory that holds the model's files") from None
    except json.JSONDecodeError as error:
        raise ModelError(f"{file}:{error.lineno}: not valid JSON: {error.msg}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{file} cannot be read: {error}") from None
    names = config.get("architectures") if isinstance(config, dict) else None
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise ModelError(
            f"{file} names no architecture", hint="it needs the key architectures, as saved by transformers"
        )
    return dict(config)


def _spec(config: dict[str, Any], *, source: str = "directory", **known: Any) -> ModelSpec:  # noqa: ANN401
    nested = config.get("text_config")
    parts = (config, nested if isinstance(nested, dict) else {})
    heads = _count(parts, "num_attention_heads", "n_head")
    hidden = _count(parts, "hidden_size", "n_embd")
    kv_heads = _count(parts, "num_key_value_heads") if _first(parts, "num_key_value_heads") is not None else heads
    quantization = _first(parts, "quantization_config")
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    dtype = _first(parts, "dtype", "torch_dtype")
    return ModelSpec.model_validate(
        {
            **known,
            "source": source,
            "architecture": config["architectures"][0],
            "layers": _count(parts, "num_hidden_layers", "n_layer"),
            "hidden_size": hidden,
            "intermediate_size": _count(parts, "intermediate_size", "n_inner"),
            "attention_heads": heads,
            "kv_heads": kv_heads if _keeps_every_token(parts) else None,
            "head_dim": _count(parts, "head_dim") or (hidden // heads if hidden and heads else None),
            "vocab_size": _count(parts, "vocab_size"),
            "max_context": _context(parts),
            "dtype": dtype.removeprefix("torch.") if isinstance(dtype, str) else None,
            "quantization": method if isinstance(method, str) else None,
            "experts": _count(parts, "num_local_experts", "num_experts", "n_routed_experts"),
        }
    )


_OWN_CACHES = (
    "kv_lora_rank",
    "attention_chunk_size",
    "full_attention_interval",
    "attn_layer_period",
    "num_kv_shared_layers",
)
_STATE_SPACE = ("mamba_", "ssm_", "linear_num_", "hybrid_override_pattern")
Parts = tuple[dict[str, Any], dict[str, Any]]


def _first(parts: Parts, *names: str) -> Any:  # noqa: ANN401  (config.json is dynamic)
    return next((part[name] for name in names for part in parts if part.get(name) is not None), None)


def _count(parts: Parts, *names: str) -> int | None:
    """Return a number above zero; lists (one number a layer) and texts are not known."""
    value = _first(parts, *names)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _keeps_every_token(parts: Parts) -> bool:
    """Whether every layer caches keys and values of every token, so that KV memory is a simple product."""
    if any(_first(parts, name) is not None for name in _OWN_CACHES):
        return False
    if any(str(key).startswith(_STATE_SPACE) for part in parts for key in part):
        return False
    kinds = _first(parts, "layer_types")
    if isinstance(kinds, list) and kinds:
        return all(kind == "full_attention" for kind in kinds)
    return _first(parts, "sliding_window") is None or _first(parts, "use_sliding_window") is False


def _context(parts: Parts) -> int | None:
    """Return the longest context (vllm/config/model.py, _get_and_verify_max_len).

    Linear and dynamic scaling stretch it. Whether YaRN does, or has done so already in the file, differs between
    releases: not known then.
    """
    context = _count(parts, "max_position_embeddings", "n_positions")
    scaling = _first(parts, "rope_scaling", "rope_parameters")
    if context is None or not isinstance(scaling, dict):
        return context
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor")
    if not isinstance(factor, (int, float)) or not 1 <= factor < 1e6:
        return context
    if kind in ("linear", "dynamic"):
        return int(context * factor)
    original = scaling.get("original_max_position_embeddings", context)
    stretched = isinstance(original, (int, float)) and original * factor > context
    return None if kind == "yarn" and stretched else context
