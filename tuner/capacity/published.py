"""Published performance records, read as points of a fit: closed loops of fixed lengths on known models and GPUs."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from tuner.capacity.fit import Point
from tuner.capacity.latency import Rates, Shape, rates_of, shape_of
from tuner.capacity.refusal import Refused
from tuner.domain.engine import Footprint
from tuner.domain.model import ModelSpec
from tuner.facts.catalog import model_by_hub_id
from tuner.facts.gpus import GpuFacts, gpu_table

GPUS = {
    "h100_sxm": "H100-SXM5-80GB", "h200_sxm": "H200-SXM-141GB", "b200_sxm": "B200-180GB", "b300_sxm": "B300-288GB",
    "gb200": "GB200",
}
MODELS = {"nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Llama-3.1-8B", "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B"}
QUEUED = 1.5
PEAK = 0.6


def spec_of(name: str, quant: str) -> ModelSpec | None:
    """Return the model with the quantization that a record states, when that is not already its own."""
    spec = model_by_hub_id(MODELS.get(name, name))
    if spec.architecture is None:
        return None
    if "gpt-oss" in name:
        return spec
    quant = quant or "bf16"
    bits = {"fp8": 8.0, "nvfp4": 4.0, "fp4": 4.0, "int4_wo": 4.0, "awq": 4.0, "w4a16": 4.0}.get(quant)
    plain: dict[str, object] = {"quantization": None, "quantization_bits": None, "quantized_part": None,
                                "quantization_block": None, "quantization_group": None, "quantization_format": None}
    if bits is None:
        return spec.model_copy(update=plain) if quant == "bf16" else None
    part = spec.quantized_part or "linear"
    kind = {"fp8": ("fp8", None, None), "int4_wo": ("gptq", 128, None), "awq": ("awq", 128, None),
            "w4a16": ("gptq", 128, None)}.get(quant, ("modelopt_fp4", 16, "NVFP4"))
    return spec.model_copy(update=plain | {
        "quantization": kind[0], "quantization_group": kind[1], "quantization_format": kind[2],
        "quantization_bits": bits, "quantized_part": part,
    })


def read_points(path: Path) -> list[Point]:
    """Return the closed-loop records of fixed lengths whose model and GPU are known."""
    points = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            point = _point(row)
            if point is not None:
                points.append(point)
    return points


def _point(row: dict[str, str]) -> Point | None:
    gpu = gpu_table().get(GPUS.get(row["gpu"], ""))
    if gpu is None or row["workload"] != "fixed-length random" or row["engine"] not in ("vllm", "trtllm"):
        return None
    numbers = [row[name] for name in ("tp", "isl", "osl", "concurrency", "tpot_mean_ms", "ttft_mean_ms")]
    if not all(number.replace(".", "", 1).isdigit() for number in numbers):
        return None
    tp, prompt, output, in_flight, tpot, ttft = map(float, numbers)
    batch = re.search(r"batch_size=(\d+)", row["notes"])
    spec = spec_of(row["model"], row["weight_quant"])
    ranks = float(row["dp"] or 1)
    if spec is None or output < 2 or tpot <= 0 or (batch and float(batch[1]) != in_flight):
        return None
    small = row["engine"] == "trtllm" and row["weight_quant"] in ("fp8", "nvfp4")
    built = build(spec, gpu, Footprint(tensor_parallel=int(tp), kv_bits=8.0 if small else None))
    load = (in_flight / ranks, prompt, output)
    queued = ttft > QUEUED * tpot * output  # how many really ran is then not on record
    if built is None or queued or _impossible(built, load, tpot, ttft):
        return None
    return Point(engine=row["engine"], model=row["model"], gpu=row["gpu"], shape=built[0], rates=built[1],
                 in_flight=in_flight / ranks, prompt=prompt, output=output, tpot_ms=tpot, ttft_ms=ttft)


def _impossible(built: tuple[Shape, Rates], load: tuple[float, float, float], tpot: float, ttft: float) -> bool:
    """Whether the prompts of a record alone need more arithmetic than `PEAK` of the data sheet's rate."""
    shape, rates = built
    in_flight, prompt, output = load
    rate = in_flight * prompt / ((ttft + tpot * output) / 1e3)
    best = dict(zip((16, 8, 4), rates.compute, strict=True))
    return rate * (shape.dense_flops / best[shape.dense_bits] + shape.expert_flops / best[shape.expert_bits]) > PEAK


def build(spec: ModelSpec, gpu: GpuFacts, footprint: Footprint) -> tuple[Shape, Rates] | None:
    """Return the structure of a step, or None where a number is missing."""
    shape, rates = shape_of(spec, footprint, gpu), rates_of(gpu)
    return None if isinstance(shape, Refused) or isinstance(rates, Refused) else (shape, rates)
