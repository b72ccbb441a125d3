"""Reads tests/data/memory_points.csv: start-up memory that people published, a row a start, with its source."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path

from tuner.capacity.memory import MemoryPlan, memory_plan
from tuner.capacity.refusal import Refused
from tuner.domain.engine import Footprint
from tuner.domain.hardware import Gpu, Hardware
from tuner.domain.model import ModelSpec
from tuner.errors import LlmtuneError
from tuner.facts.catalog import model_by_hub_id
from tuner.facts.flags import parse_version

POINTS = Path(__file__).parents[1] / "tests" / "data" / "memory_points.csv"
GIB = 1 << 30
SUSPECT = {
    "planner11-2": "its parts sum to the stated KV only at utilization 0.95, the file says 0.9",
    "planner11-8": "peak of a later release: the same model logged 2.03 GiB on 0.19.0, 0.11.0 takes 4.8",
    "fs-14319663172": "--max-num-seqs not stated; the peak is that of one forward pass, so it was low",
}
"""Complete rows that contradict themselves or leave out what decides; the model is not held to them."""
_STAND_INS = {
    "Qwen2-VL/Qwen2.5-VL 7B class (56 KiB/token)": "Qwen/Qwen2.5-VL-7B-Instruct",
    "Qwen2.5-7B-Instruct 4-bit": "Qwen/Qwen2.5-7B-Instruct-AWQ",
    "Llama-3.1-8B": "meta-llama/Llama-3.1-8B",
    "Llama 8B": "meta-llama/Meta-Llama-3-8B",
    "Phi-4 GPTQ 4-bit (200 KiB/token)": "microsoft/phi-4",
    "Qwen3-0.6B class (112 KiB/token)": "Qwen/Qwen3-0.6B",
    "Qwen3-8B-FP8": "Qwen/Qwen3-8B-FP8",
}
_TYPE_BITS = {"float32": 32.0, "bfloat16": 16.0, "float16": 16.0}
Row = Mapping[str, str]


def rows() -> list[dict[str, str]]:
    """Return all rows."""
    with POINTS.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def number(row: Row, key: str) -> float | None:
    """Return the first number of a cell such as `default (1024)` or `~39.5`; None when there is none."""
    found = re.search(r"-?\d+(?:\.\d+)?", row[key])
    return float(found[0]) if found else None


def count(row: Row, key: str) -> int | None:
    """Return a count."""
    value = number(row, key)
    return int(value) if value is not None else None


def version(row: Row) -> str | None:
    """Return the release: `0.6.x` counts as 0.6.0, `V0` alone as 0.7.0; None when no release is named."""
    found = re.search(r"(\d+\.\d+)(\.\d+)?", row["engine_version"])
    if not found:
        return None
    stated = found[1] + (found[2] or ".0")
    return "0.7.3" if "V0" in row["engine_version"] and parse_version(stated) >= parse_version("0.8.0") else stated


def model_of(row: Row) -> ModelSpec | None:
    """Return the row's model, or None when the table does not know it."""
    name = _STAND_INS.get(row["model"], row["model"])
    try:
        model = model_by_hub_id(name)
    except LlmtuneError:
        return None
    if not model.layers:
        return None
    if "gptq" in row["weight_quant"] and model.quantization is None:
        return model.model_copy(update={"quantization": "gptq", "quantization_bits": 4.0, "quantization_group": 128})
    return model


def plan_of(row: Row, *, measured_weights: bool = False) -> MemoryPlan | Refused | None:
    """Return the prediction for a row; None when its model or its device is not known.

    With `measured_weights` the weights that the engine logged are taken, as for files at hand.
    """
    model, total = model_of(row), number(row, "gpu_total_gib")
    weights = number(row, "weights_gib")
    if model is None or total is None:
        return None
    ranks = count(row, "tp") or 1
    stages = count(row, "pp") or 1
    bits = _TYPE_BITS.get(row["dtype"])
    if measured_weights and weights is not None and stages == 1:
        model = model.model_copy(
            update={
                "weight_bytes": int(weights * ranks * GIB),
                "replicated_parameters": None,
                "rope_elements": None,
                "quantization": model.quantization or "as logged",
            }
        )
    kv_dtype = row["kv_dtype"] if row["kv_dtype"] not in ("", "auto") else None
    footprint = Footprint(
        tensor_parallel=ranks,
        pipeline_parallel=stages,
        weight_bits=bits,
        kv_bits=bits,
        kv_dtype=kv_dtype,
        max_sequences=count(row, "max_num_seqs"),
        batched_tokens=count(row, "max_num_batched_tokens"),
        max_context=count(row, "max_model_len"),
        memory_fraction=number(row, "gpu_memory_utilization"),
        version=version(row),
    )
    gpus = tuple(Gpu(name=row["gpu"], memory_bytes=int(total * GIB), index=index) for index in range(ranks * stages))
    return memory_plan(model, footprint, Hardware(kind="cuda", gpus=gpus))
