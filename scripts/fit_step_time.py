"""Fit the coefficients of the step-time model to published measurements, and say how wrong it is on what it never saw.

    .venv/bin/python scripts/fit_step_time.py POINTS.csv [--write]

POINTS.csv has the columns of the public performance records: engine, model, gpu, tp, ep, dp, weight_quant, isl, osl,
concurrency, ttft_mean_ms, tpot_mean_ms. Only closed-loop records of fixed lengths are used. The fit is
Levenberg-Marquardt on logarithms of coefficients and of times, with weak priors, and is repeated with one model, one
GPU or a random fifth left out. --write stores coefficients and errors in tuner/facts/data/step_time.yaml.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from tuner.capacity.latency import Coefficients, Rates, Shape, StepTime, lone_ttft, rates_of, shape_of, steady_tpot
from tuner.capacity.refusal import Refused
from tuner.domain.engine import Footprint
from tuner.domain.model import ModelSpec
from tuner.facts.catalog import model_by_hub_id
from tuner.facts.gpus import GpuFacts, gpu_table

OUT = Path(__file__).parents[1] / "tuner" / "facts" / "data" / "step_time.yaml"
GPUS = {
    "h100_sxm": "H100-SXM5-80GB", "h200_sxm": "H200-SXM-141GB", "b200_sxm": "B200-180GB", "b300_sxm": "B300-288GB",
    "gb200": "GB200",
}
MODELS = {"nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Llama-3.1-8B", "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B"}
PRIOR: dict[str, tuple[float, float]] = {
    # start, and by how much (as a factor) the data must insist to move it
    "bandwidth": (0.80, 1.15), "expert_bandwidth": (0.70, 1.3), "packed_bandwidth": (0.85, 1.2),
    "cache_bandwidth": (0.70, 1.3), "latent_bandwidth": (0.45, 1.5), "compute_16": (0.65, 1.2),
    "compute_8": (0.55, 1.3), "compute_4": (0.40, 1.5), "expert_compute": (0.60, 1.5), "expert_compute_4": (0.60, 1.5),
    "attention_compute": (0.40, 1.5),
    "step_us": (1500.0, 2.0), "sequence_us": (8.0, 2.0), "token_us": (0.5, 2.0), "layer_us": (15.0, 2.0),
    "expert_layer_us": (20.0, 2.0), "latent_layer_us": (10.0, 2.0),
    "reduce_us": (8.0, 2.0), "link": (0.5, 1.5), "request_ms": (10.0, 2.0),
}
OWN = ("step_us", "sequence_us", "token_us", "layer_us", "expert_layer_us", "latent_layer_us", "reduce_us",
       "request_ms")
CAP = {"bandwidth", "expert_bandwidth", "packed_bandwidth", "cache_bandwidth", "latent_bandwidth", "compute_16",
       "compute_8", "compute_4", "expert_compute", "expert_compute_4", "attention_compute", "link"}
BUDGET = 8192
QUEUED = 1.5
PEAK = 0.6
TTFT_WEIGHT = 0.25
TTFT_AT_MOST = 8


@dataclass(frozen=True)
class Point:
    """One record with the structure of its step."""

    engine: str
    model: str
    gpu: str
    shape: Shape
    rates: Rates
    in_flight: float
    prompt: float
    output: float
    tpot_ms: float
    ttft_ms: float

    def predict(self, found: Coefficients) -> tuple[float, float]:
        """Return TPOT and TTFT in ms."""
        step = StepTime(self.shape, self.rates, found)
        tpot = steady_tpot(step, self.in_flight, self.prompt, self.output, BUDGET)
        return 1e3 * tpot, 1e3 * lone_ttft(step, self.in_flight, self.prompt, self.output, BUDGET)


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
    if batch and float(batch[1]) != in_flight:
        return None
    ranks = float(row["dp"] or 1)
    if spec is None or output < 2 or tpot <= 0:
        return None
    small = row["engine"] == "trtllm" and row["weight_quant"] in ("fp8", "nvfp4")
    built = build(spec, gpu, Footprint(tensor_parallel=int(tp), kv_bits=8.0 if small else None))
    if built is None or ttft > QUEUED * tpot * output:  # a queue: how many ran is not on record
        return None
    if _impossible(built, (in_flight / ranks, prompt, output), tpot, ttft):
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


class Fit:
    """The parameters as one vector: shared ones, then those of each engine."""

    def __init__(self, engines: Sequence[str]) -> None:
        """Lay the parameters of these engines out."""
        self.engines = tuple(engines)
        self.names = [(name, "") for name in PRIOR if name not in OWN]
        self.names += [(name, engine) for engine in self.engines for name in OWN]
        self.start = np.log([PRIOR[name][0] for name, _ in self.names])
        self.pull = np.array([1 / np.log(PRIOR[name][1]) for name, _ in self.names])

    def coefficients(self, vector: NDArray[np.float64], engine: str) -> Coefficients:
        """Return the coefficients of one engine."""
        values = {}
        for (name, owner), value in zip(self.names, vector, strict=True):
            if owner in ("", engine):
                found = float(np.exp(value))
                values[name] = min(found, 1.0) if name in CAP else found
        return Coefficients(**values)

    def residuals(self, vector: NDArray[np.float64], points: Sequence[Point]) -> NDArray[np.float64]:
        """Return logarithmic errors of TPOT, of TTFT where there is no queue, and the pull of the priors."""
        found = {engine: self.coefficients(vector, engine) for engine in self.engines}
        errors = []
        for point in points:
            tpot, ttft = point.predict(found[point.engine])
            errors.append(_soft(np.log(tpot / point.tpot_ms)))
            if point.in_flight <= TTFT_AT_MOST and point.ttft_ms > 0:
                errors.append(TTFT_WEIGHT * _soft(np.log(ttft / point.ttft_ms)))
        return np.array([*errors, *(0.3 * self.pull * (vector - self.start))])

    def run(
        self, points: Sequence[Point], start: NDArray[np.float64] | None = None, rounds: int = 12
    ) -> NDArray[np.float64]:
        """Minimise by Levenberg-Marquardt."""
        vector = (self.start if start is None else start).copy()
        damping, here = 1e-2, self.residuals(vector, points)
        for _ in range(rounds):
            slopes = np.empty((here.size, vector.size))
            for index in range(vector.size):
                moved = vector.copy()
                moved[index] += 1e-3
                slopes[:, index] = (self.residuals(moved, points) - here) / 1e-3
            normal, gradient = slopes.T @ slopes, slopes.T @ here
            change, after = np.zeros(vector.size), here
            for _ in range(6):
                change = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -gradient)
                change = np.clip(change, -0.7, 0.7)
                after = self.residuals(vector + change, points)
                if after @ after < here @ here:
                    break
                damping *= 4
            gain = 1 - (after @ after) / (here @ here)
            if gain <= 0:
                break
            vector, here, damping = vector + change, after, damping / 3
            if gain < 1e-3:
                break
        return vector


def _soft(error: float, scale: float = 0.25) -> float:
    """Damp outliers, which in published tables are often another configuration than the label says."""
    return float(np.sign(error) * scale * np.sqrt(2 * (np.sqrt(1 + (error / scale) ** 2) - 1)))


def errors_of(fit: Fit, vector: NDArray[np.float64], points: Sequence[Point]) -> NDArray[np.float64]:
    """Return predicted / measured TPOT."""
    found = {engine: fit.coefficients(vector, engine) for engine in fit.engines}
    return np.array([point.predict(found[point.engine])[0] / point.tpot_ms for point in points])


def held_out(
    fit: Fit, whole: NDArray[np.float64], points: Sequence[Point], key: Callable[[Point], object]
) -> NDArray[np.float64]:
    """Return predicted / measured for each point, from a fit that saw nothing of its group."""
    ratios = np.empty(len(points))
    for group in sorted({str(key(point)) for point in points}):
        out = [index for index, point in enumerate(points) if str(key(point)) == group]
        seen = [point for point in points if str(key(point)) != group]
        vector = fit.run(seen, start=0.5 * (whole + fit.start), rounds=6)
        ratios[out] = errors_of(fit, vector, [points[index] for index in out])
    return ratios


def summary(ratios: NDArray[np.float64]) -> dict[str, float | int]:
    """Return count, MAPE, median error and bias in percent, and the factor that holds 80 % of the points."""
    off = np.abs(ratios - 1)
    return {
        "n": int(ratios.size), "mape": round(100 * float(off.mean()), 1), "median": round(100 * float(np.median(off)), 1),
        "bias": round(100 * float(np.median(ratios) - 1), 1),
        "low": round(float(np.percentile(1 / ratios, 10)), 3), "high": round(float(np.percentile(1 / ratios, 90)), 3),
    }


def main() -> int:
    """Fit, print, and store with --write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("points", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="no leave-one-out fits")
    given = parser.parse_args()
    points = read_points(given.points)
    fit = Fit(sorted({point.engine for point in points}))
    vector = fit.run(points)
    ratios = errors_of(fit, vector, points)
    say = sys.stdout.write
    say(f"{len(points)} records; in sample: {summary(ratios)}\n")
    for name in ("model", "gpu"):
        for group in sorted({(point.engine, getattr(point, name)) for point in points}):
            chosen = [(point.engine, getattr(point, name)) == group for point in points]
            say(f"  {group}: {summary(ratios[np.array(chosen)])}\n")
    for engine in fit.engines:
        say(f"{engine}: {fit.coefficients(vector, engine)}\n")
    if given.quick:
        return 0
    by = {
        "model": held_out(fit, vector, points, lambda p: p.model),
        "gpu": held_out(fit, vector, points, lambda p: p.gpu),
    }
    picked = np.random.default_rng(0).integers(0, 5, size=len(points))
    place = {id(point): int(fold) for point, fold in zip(points, picked, strict=True)}
    by["fold"] = held_out(fit, vector, points, lambda p: place[id(p)])
    kept: dict[str, dict[str, object]] = {}
    for engine in fit.engines:
        mine = np.array([point.engine == engine for point in points])
        kept[engine] = {name: summary(found[mine]) for name, found in by.items()}
        say(f"{engine} held out: {kept[engine]}\n")
    if given.write:
        _write(fit, vector, points, by, kept, given.points.name)
    return 0


def _write(
    fit: Fit, vector: NDArray[np.float64], points: Sequence[Point], by: dict[str, NDArray[np.float64]],
    kept: dict[str, dict[str, object]], origin: str,
) -> None:
    cells: dict[str, dict[str, object]] = {}
    for engine in fit.engines:
        for gpu in sorted({point.gpu for point in points}):
            mine = np.array([point.engine == engine and point.gpu == gpu for point in points])
            if mine.any():
                cells.setdefault(engine, {})[GPUS[gpu]] = summary(by["model"][mine])
    models = sorted({point.model for point in points})
    document = {
        "schema_version": 1,
        "fitted": {"points": origin, "records": len(points), "models": models, "script": "scripts/fit_step_time.py"},
        "coefficients": {
            engine: {k: float(f"{v:.4g}") for k, v in fit.coefficients(vector, engine).model_dump().items()}
            for engine in fit.engines
        },
        "held_out": kept,
        "held_out_by_gpu": cells,
    }
    head = ("# Step-time coefficients and their error on records that the fit did not see (TPOT in percent; low..high is\n"
            "# the range of measured / predicted that holds 80 %). Written by scripts/fit_step_time.py; do not edit.\n")
    OUT.write_text(head + yaml.safe_dump(document, sort_keys=False, width=120, default_flow_style=None))


if __name__ == "__main__":
    sys.exit(main())
