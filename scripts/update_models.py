"""Rebuild tuner/facts/data/models.json: the architecture of well-known models, for planning without a download.

Reads config.json copies inside the wheel of aiconfigurator-core (Apache-2.0) as facts, without importing it, and the
shapes in scripts/model_configs.yaml.

    pip download --no-deps aiconfigurator-core==0.12.0
    python scripts/update_models.py aiconfigurator_core-0.12.0-*.whl
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import yaml

from tuner.domain.model import ModelSpec
from tuner.inspect.model_dir import model_facts

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "tuner" / "facts" / "data" / "models.json"
FOLDER = "aiconfigurator_core/model_configs"
SHAPE = (
    "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "max_position_embeddings",
)
ABOUT = (
    "Short names, exact match only, and the architecture of each repository: fields of ModelSpec. Written by "
    "scripts/update_models.py from {wheel} and scripts/model_configs.yaml, which says where each number is from. "
    "Do not edit."
)
READ = "2026-12-01"


def main(wheel: Path) -> None:
    """Write the table."""
    listed = yaml.safe_load((ROOT / "scripts" / "model_configs.yaml").read_text(encoding="utf-8"))
    with zipfile.ZipFile(wheel) as archive:
        rows = {alias: row(entry, listed["families"], archive) for alias, entry in listed["models"].items()}
    TARGET.write_text(table(wheel.name, rows), encoding="utf-8")


def table(wheel: str, rows: dict[str, dict[str, Any]]) -> str:
    """Return the file's text, a line a model: JSON, which is read thirty times as fast as YAML."""
    lines = ",\n".join(f"  {json.dumps(alias)}: {json.dumps(fields)}" for alias, fields in rows.items())
    head = f'"about": {json.dumps(ABOUT.format(wheel=wheel))}, "read": "{READ}", "schema_version": 1'
    return f'{{{head}, "models": {{\n{lines}\n}}}}\n'


def row(entry: dict[str, Any], families: dict[str, Any], archive: zipfile.ZipFile) -> dict[str, Any]:
    """Return one model's fields, without those that say nothing."""
    config, beside = published(entry, archive) if "wheel" in entry else (shaped(entry, families), None)
    if entry.get("unquantized") or "quantization" in entry:
        config.pop("quantization_config", None)
        beside = None
    if "quantization" in entry:
        config["quantization_config"] = entry["quantization"]
    facts = model_facts(config, beside)
    if entry.get("uncounted"):
        facts = {key: value for key, value in facts.items() if not key.endswith("parameters")}
    if "parameters" in entry:
        facts["parameters"] = entry["parameters"]
    if entry.get("multimodal"):
        facts["multimodal"] = True
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in facts.items()}
    ModelSpec(requested="", name="", location="", source="alias", **facts)
    kept = {key: value for key, value in plain.items() if value is not None and value is not False and value != ""}
    names = {"hub": entry["hub"], **({"also": entry["also"]} if "also" in entry else {})}
    return {**names, "gated": bool(entry.get("gated")), **kept}


def published(entry: dict[str, Any], archive: zipfile.ZipFile) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return config.json and hf_quant_config.json of the wheel."""
    names = archive.namelist()
    beside = f"{FOLDER}/{entry['wheel']}_hf_quant_config.json"
    config = json.loads(archive.read(f"{FOLDER}/{entry['wheel']}_config.json"))
    return config, json.loads(archive.read(beside)) if beside in names else None


def shaped(entry: dict[str, Any], families: dict[str, Any]) -> dict[str, Any]:
    """Return the config.json that a shape stands for."""
    sizes = {key: size for key, size in zip(SHAPE, entry["shape"], strict=True) if size}
    dtype = {"torch_dtype": entry.get("dtype", "bfloat16")}
    return {**families[entry["family"]], **dtype, **sizes, **entry.get("more", {})}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
