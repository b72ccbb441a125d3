"""Reads a model's directory: config.json and the sizes of its weight files. Nothing is executed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner.domain.json_text import parse_json
from tuner.domain.model import ModelSpec
from tuner.domain.record import content_hash
from tuner.errors import ModelError
from tuner.inspect.model_config import Config, Keys, attention, context, layers_of, rope_elements
from tuner.inspect.parameters import experts_of, parameters, shared_width
from tuner.inspect.quantization import quantization
from tuner.inspect.safetensors import loaded_bytes, refuse_pointers

_LARGEST_SIZE = 1e9
_LARGEST: dict[str, float] = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers"), 10_000),
    **dict.fromkeys(("model_max_length", "max_length", "max_position_embeddings"), 1e31),
    "total_size": 1e15,
}
_WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")


def read_model_dir(path: Path, *, requested: str, name: str | None = None) -> ModelSpec:
    """Return the model of a local directory.

    Raises:
        ModelError: no directory, no config.json, a broken one, or one that names no architecture.

    """
    config = _read_config(path)
    files = sorted(item for item in path.iterdir() if item.is_file() and item.suffix in _WEIGHTS)
    if not files:
        raise ModelError(
            f"{path} has a config.json but no weights ({', '.join(_WEIGHTS)})", hint="is the download complete?"
        )
    refuse_pointers(files)
    facts = model_facts(config, _beside(path))
    weights = [(file.name, file.stat().st_size) for file in files]
    loaded = _loaded(files)
    known = loaded_bytes(loaded, facts["layers"]) if loaded[0].suffix == ".safetensors" else None
    return ModelSpec.model_validate(
        {
            **facts,
            "requested": requested,
            "source": "directory",
            "name": name or path.resolve().name,
            "location": str(path.resolve()),
            "weight_bytes": known if known is not None else sum(file.stat().st_size for file in loaded),
            "fingerprint": content_hash([config, [list(pair) for pair in weights]]),
        }
    )


def cached_config(hub_id: str) -> dict[str, Any] | None:
    """Return config.json of a hub model from the local hub cache, if it lies there."""
    folder = cached_folder(hub_id)
    return _read_config(folder) if folder is not None else None


def cached_folder(hub_id: str) -> Path | None:
    """Return the directory in the local hub cache that holds config.json of a hub model, if there is one."""
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub")) / ("models--" + hub_id.replace("/", "--"))
    found = sorted((cache / "snapshots").glob("*/config.json"))
    return found[0].parent if found else None


def with_config(spec: ModelSpec, config: dict[str, Any], beside: Config | None = None) -> ModelSpec:
    """Fill in the architecture of a hub model from its config.json, and from hf_quant_config.json as `beside`."""
    facts = model_facts(config, beside)
    if spec.parameters is not None and spec.quantization == facts.get("quantization"):
        facts["parameters"] = spec.parameters
    return ModelSpec.model_validate({**spec.model_dump(include=_IDENTITY), **facts})


_IDENTITY = {"requested", "name", "location", "source", "revision", "gated", "weight_bytes", "fingerprint"}


def model_facts(config: Config, beside: Config | None = None) -> dict[str, Any]:
    """Return the fields of ModelSpec that config.json (and hf_quant_config.json, as `beside`) decide."""
    keys = Keys(config)
    shape = attention(keys)
    dtype = keys.text("dtype", "torch_dtype")
    return {
        "architecture": config["architectures"][0],
        "layers": layers_of(keys),
        "hidden_size": keys.count("hidden_size", "n_embd"),
        "intermediate_size": keys.count("intermediate_size", "n_inner", "ffn_hidden_size"),
        "vocab_size": keys.count("vocab_size", "padded_vocab_size"),
        "max_context": context(keys),
        "dtype": dtype.removeprefix("torch.") if dtype else None,
        "experts": experts_of(keys),
        "experts_per_token": keys.count("num_experts_per_tok", "num_experts_per_token", "top_k_experts"),
        "moe_intermediate_size": keys.count("moe_intermediate_size"),
        "shared_intermediate_size": shared_width(keys),
        "rope_elements": rope_elements(keys, shape),
        "multimodal": isinstance(config.get("vision_config"), dict),
        **shape,
        **parameters(keys, shape),
        **quantization(config, beside),
    }


def _numbers(node: object) -> Iterator[tuple[str, float]]:
    """Yield every number of a parsed file under its key."""
    inside = node.items() if isinstance(node, dict) else (("", item) for item in node) if isinstance(node, list) else ()
    for key, item in inside:
        if isinstance(item, (int, float)):
            yield str(key), item
        else:
            yield from _numbers(item)


def _beside(path: Path) -> Config | None:
    try:
        found = parse_json((path / "hf_quant_config.json").read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _loaded(files: list[Path]) -> list[Path]:
    """Return the files that an engine loads: safetensors before others, and not the same weights twice."""
    chosen = [file for file in files if file.suffix == ".safetensors"] or files
    return [file for file in chosen if not file.name.startswith("consolidated")] or chosen


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise ModelError(f"{path} is not a directory")
    file = path / "config.json"
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ModelError(f"{path} has no config.json", hint="give the directory that holds the model's files") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{file} cannot be read: {error}") from None
    return parse_config(text, str(file))


def parse_config(text: str, file: str) -> dict[str, Any]:
    """Read the text of a config.json; `file` names it in messages.

    Raises:
        ModelError: it is no JSON, or names no architecture.

    """
    try:
        config = parse_json(text, constant=str)
    except ValueError as error:
        place, reason = (f":{error.lineno}", error.msg) if isinstance(error, json.JSONDecodeError) else ("", str(error))
        raise ModelError(f"{file}{place}: not valid JSON: {reason}") from None
    for name, value in _numbers(config):
        if abs(value) > _LARGEST.get(name, _LARGEST_SIZE):
            shown = str(value) if len(str(value)) < 30 else f"a number of {len(str(value))} digits"
            raise ModelError(f"{file}: {name} is {shown}, and no model has that", hint="correct or fetch the file anew")
    names = config.get("architectures") if isinstance(config, dict) else None
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise ModelError(
            f"{file} names no architecture", hint="it needs the key architectures, as saved by transformers"
        )
    return dict(config)
