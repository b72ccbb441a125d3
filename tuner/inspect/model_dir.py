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
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path} has no config.json", hint="give the directory that holds the model's files") from None
    except json.JSONDecodeError as error:
        raise ModelError(f"{file}:{error.lineno}: not valid JSON: {error.msg}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{file} cannot be read: {error}") from None
    if not isinstance(config, dict) or not config.get("architectures"):
        raise ModelError(
            f"{file} names no architecture", hint="it needs the key architectures, as saved by transformers"
        )
    return config


def _spec(config: dict[str, Any], *, source: str = "directory", **known: Any) -> ModelSpec:  # noqa: ANN401
    nested = config.get("text_config")
    text: dict[str, Any] = nested if isinstance(nested, dict) else {}

    def first(*names: str) -> Any:  # noqa: ANN401  (config.json is dynamic)
        return next((part[name] for name in names for part in (config, text) if part.get(name) is not None), None)

    heads = first("num_attention_heads", "n_head")
    hidden = first("hidden_size", "n_embd")
    quantization = first("quantization_config")
    dtype = first("dtype", "torch_dtype")
    return ModelSpec.model_validate(
        {
            **known,
            "source": source,
            "architecture": config["architectures"][0],
            "layers": first("num_hidden_layers", "n_layer"),
            "hidden_size": hidden,
            "intermediate_size": first("intermediate_size", "n_inner"),
            "attention_heads": heads,
            "kv_heads": first("num_key_value_heads") or heads,
            "head_dim": first("head_dim") or (hidden // heads if hidden and heads else None),
            "vocab_size": first("vocab_size"),
            "max_context": first("max_position_embeddings", "n_positions"),
            "dtype": str(dtype).removeprefix("torch.") if dtype else None,
            "quantization": quantization.get("quant_method") if isinstance(quantization, dict) else None,
            "experts": first("num_local_experts", "num_experts", "n_routed_experts"),
        }
    )
