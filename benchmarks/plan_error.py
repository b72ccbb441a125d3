"""How wrong predictions are on published measurements: step times held out, and the simulator against arrival rates.

    .venv/bin/python benchmarks/plan_error.py POINTS.csv [--closed N]

Prints, for records of closed loops with fixed lengths: the error of TPOT, of mean TTFT and of throughput by engine and
GPU, from the simulator (N records, a fixed sample; the coefficients have seen these records, their held-out error is in
facts/data/step_time.yaml and is printed beside). Then, for records with an arrival rate: predicted against measured at
that rate, and the rate at which the simulator reaches the measured p99 against the rate that was served.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tuner.app.traffic import at_rate, jobs_of
from tuner.capacity.fit import Point
from tuner.capacity.jobs import Engine, Simulated
from tuner.capacity.latency import StepTime, coefficients, step_time
from tuner.capacity.published import read_points, spec_of
from tuner.capacity.refusal import Refused
from tuner.capacity.simulate import simulate
from tuner.domain.engine import Footprint
from tuner.domain.model import ModelSpec
from tuner.domain.workload import ClosedLoop, Fixed, Lengths, Lognormal, Workload
from tuner.facts.catalog import model_by_alias
from tuner.facts.gpus import gpu_table
from tuner.facts.read import data

MLPERF_GPUS = {"H200-SXM-141GB": "H200-SXM-141GB", "H100-SXM-80GB": "H100-SXM5-80GB", "B200-SXM-180GB": "B200-180GB",
               "MI325X 256GB": "MI325X", "MI300X 192GB": "MI300X"}


@dataclass(frozen=True)
class Served:
    """A record with an arrival rate: what one replica of it gets, and what was measured."""

    name: str
    step: StepTime
    engine: Engine
    rate: float
    workload: Workload
    ttft_mean: float
    ttft_p99: float
    tpot_mean: float
    tpot_p99: float

    def at(self, rate: float) -> Simulated:
        """Simulate one replica at a rate."""
        return simulate(jobs_of(at_rate(self.workload, rate)), self.engine, self.step)


def closed(point: Point) -> tuple[float, float, float]:
    """Return predicted / measured TPOT, mean TTFT and throughput of one closed-loop record.

    As the tools behind these records send it: all clients at once, ten requests each, means over everything.
    """
    step = StepTime(point.shape, point.rates, coefficients(point.engine))
    clients = max(1, round(point.in_flight))
    count = 10 * clients
    workload = Workload(name="record", input_tokens=Fixed(tokens=int(point.prompt)), requests=count,
                        output_tokens=Fixed(tokens=int(point.output)),
                        arrivals=ClosedLoop(concurrency=clients, ramp_s=0.0))
    engine = Engine(max_sequences=1024, token_budget=8192, blocks=10_000_000)
    done = simulate(jobs_of(workload), engine, step)
    tpot, ttft = float(done.tpot.mean()) * 1e3, float(done.ttft.mean()) * 1e3
    measured = point.output / (point.ttft_ms + point.tpot_ms * (point.output - 1))
    return tpot / point.tpot_ms, ttft / point.ttft_ms, point.output / (ttft + tpot * (point.output - 1)) / measured


def served(path: Path) -> Iterator[Served]:
    """Return the records with an arrival rate whose lengths, model and GPU are known."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["request_rate"] and row["ttft_p99_ms"] and row["tpot_p99_ms"]:
                found = _mlperf(row) if row["id"].startswith("mlperf") else _per_request(row)
                if found is not None:
                    yield found


def _mlperf(row: dict[str, str]) -> Served | None:
    """Return MLPerf llama2-70b: OpenOrca prompts, 294 tokens in the mean, replicas of the smallest size that fits."""
    gpu = next((name for part, name in MLPERF_GPUS.items() if part in row["gpu"]), None)
    if gpu is None or not row["model"].startswith("llama2-70b") or row["weight_quant"] not in ("fp8", "fp4"):
        return None
    ranks = 2 if gpu.startswith("H100") else 1
    base = model_by_alias("llama-2-70b")
    spec = spec_of(base.location, row["weight_quant"]) if base else None
    if spec is None:
        return None
    workload = Workload(
        name="openorca", input_tokens=Lognormal(median=200, sigma=0.9, high=1024), requests=1500,
        output_tokens=Lognormal(median=240, sigma=0.75, high=1024), arrivals=ClosedLoop(concurrency=1))
    footprint = Footprint(tensor_parallel=ranks, kv_bits=8.0)
    return _served(row, (spec, footprint, gpu), float(row["n_gpus"]) / ranks, workload, Engine(1024, 8192, 60_000))


def _per_request(row: dict[str, str]) -> Served | None:
    gpu = {"RTX 4090": "RTX 4090", "RTX PRO 6000": "RTX PRO 6000 Blackwell Server"}.get(row["gpu"])
    spec = spec_of(row["model"], row["weight_quant"])
    if gpu is None or spec is None:
        return None
    ranks = int(float(row["tp"]))
    settings = dict(part.split("=") for part in row["flags"].split() if part.startswith("max_num"))
    free = {"RTX 4090": 3.2e9, "RTX PRO 6000": 66e9}[row["gpu"]] if "8B" in row["model"] else 24e9 * ranks
    kv = {"meta-llama/Llama-3.1-8B": 131072, "Qwen/Qwen3-32B": 262144}.get(row["model"], 98304)
    lengths: tuple[Lengths, Lengths] = (Lognormal(median=520, sigma=1.0, high=8192),
                                        Lognormal(median=480, sigma=0.8, high=4096))
    workload = Workload(name="sharegpt", input_tokens=lengths[0], output_tokens=lengths[1], requests=300,
                        arrivals=ClosedLoop(concurrency=1))
    engine = Engine(int(settings["max_num_seqs"]), int(settings["max_num_batched_tokens"]), int(free / kv / 16))
    replicas = float(row["dp"] or 1)
    return _served(row, (spec, Footprint(tensor_parallel=ranks), gpu), replicas, workload, engine)


def _served(
    row: dict[str, str], what: tuple[ModelSpec, Footprint, str], replicas: float, workload: Workload, engine: Engine
) -> Served | None:
    spec, footprint, gpu = what
    found = coefficients("trtllm" if row["engine"] == "trtllm" else "vllm")
    step = step_time(spec, footprint, gpu_table()[gpu], found=found)
    if isinstance(step, Refused):
        return None
    numbers = [float(row[name]) for name in ("ttft_mean_ms", "ttft_p99_ms", "tpot_mean_ms", "tpot_p99_ms")]
    return Served(f"{row['engine']} {row['model']} {row['gpu'][:24]} {row['request_rate']}/s", step, engine,
                  float(row["request_rate"]) / replicas, workload, *numbers)


def fitting_rate(record: Served) -> float:
    """Return the rate at which the simulator's p99 TTFT and p99 TPOT are those measured, by bisection."""
    low, high = 0.1 * record.rate, 4 * record.rate
    for _ in range(9):
        rate = (low * high) ** 0.5
        done = record.at(rate)
        good = (np.percentile(done.ttft, 99) * 1e3 <= record.ttft_p99
                and np.percentile(done.tpot, 99) * 1e3 <= record.tpot_p99)
        low, high = (rate, high) if good else (low, rate)
    return float(np.sqrt(low * high))


def _line(name: str, ratios: NDArray[np.float64]) -> str:
    off = np.abs(ratios - 1)
    return (f"{name:<34} n={ratios.size:<4} MAPE {100 * off.mean():5.1f} %  median {100 * np.median(off):5.1f} %  "
            f"bias {100 * (np.median(ratios) - 1):+5.1f} %\n")


def _groups(points: list[Point], key: Callable[[Point], str]) -> Iterator[tuple[str, list[int]]]:
    for group in sorted({key(point) for point in points}):
        yield group, [index for index, point in enumerate(points) if key(point) == group]


def main() -> int:
    """Print all errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("points", type=Path)
    parser.add_argument("--closed", type=int, default=250)
    given = parser.parse_args()
    say = sys.stdout.write
    stored = data("step_time.yaml")
    say("TPOT of records that the fit did not see, by what was left out (fit_step_time.py):\n")
    for engine, cells in stored["held_out"].items():
        for name, cell in cells.items():
            off = f"MAPE {cell['mape']:5.1f} %  median {cell['median']:5.1f} %"
            say(f"  {engine:<7} {name:<6} n={cell['n']:<5} {off}\n")
    points = read_points(given.points)
    chosen = np.random.default_rng(0).permutation(len(points))[: given.closed]
    points = [points[int(index)] for index in chosen]
    ratios = np.array([closed(point) for point in points])
    say(f"Simulator on {len(points)} closed-loop records (predicted / measured):\n")
    for column, name in enumerate(("TPOT", "mean TTFT", "throughput")):
        say("  " + _line(f"{name}, all", ratios[:, column]))
        twice = np.mean((ratios[:, column] > 0.5) & (ratios[:, column] < 2))
        say(f"    within a factor of 2: {100 * twice:.0f} %\n")
        for group, index in _groups(points, lambda point: f"{point.engine} {point.gpu}"):
            say("    " + _line(f"{name} {group}", ratios[index, column]))
    say("Simulator on records with an arrival rate (predicted / measured):\n")
    capacity = []
    for record in served(given.points):
        done, rate = record.at(record.rate), fitting_rate(record)
        capacity.append(rate / record.rate)
        p99 = np.percentile(done.ttft, 99) * 1e3 / record.ttft_p99
        say(f"  {record.name:<62} mean TTFT {done.ttft.mean() * 1e3 / record.ttft_mean:6.2f}  p99 TTFT {p99:6.2f}"
            f"  TPOT {done.tpot.mean() * 1e3 / record.tpot_mean:5.2f}  rate at its p99 {rate / record.rate:5.2f}\n")
    say("  " + _line("rate that keeps the measured p99", np.array(capacity)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
