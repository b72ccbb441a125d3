"""Worlds that were really measured: vLLM on a CPU, a whole grid; and published runs on GPUs.

The grid (`worlds/vllm_cpu_grid.jsonl`, made by `measure_grid.py`) has three objectives. Start and load seconds are the
measured ones. Noise is the spread between repeated starts of one configuration, half of it from the boot and half from
the load; without repeats it is the interval of the load. The truth of a configuration is the mean of its starts.

Published runs with every flag of their command line (GPUStack's performance lab) never cover more than nine distinct
configurations of one model, GPU and workload, which is no world to search. Replayed instead are the two largest
collections in which parallelism, weight format and concurrency vary and everything else is fixed (aiconfigurator's
silicon samples); concurrency stands for the server's cap on sequences. What was not published is ruled out, and
seconds of starts and loads, which were not published, are set alike for everyone.
"""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search.world import Point, Truth, World, space_of
from tuner.search.spaces import Choice

FOLDER = Path(__file__).parent / "worlds"
GRID = FOLDER / "vllm_cpu_grid.jsonl"
PUBLISHED = FOLDER / "published.csv"
LEVEL = 32
_ALMOST_NOTHING = 0.5
SLO_MS = {"p95_ttft_ms": 400.0, "p95_itl_ms": 60.0}
"""The limits of the last two objectives. Wider ones (1000 and 150 ms were tried) are kept by the defaults at nearly all
of the clients that were measured, so that every search has reached its goal with the first start."""


def worlds(grid: Path = GRID) -> list[World]:
    """Return the worlds whose data is there."""
    found = [_published(model) for model in ("meta-llama/Llama-3.1-70B", "MiniMaxAI/MiniMax-M2.5")]
    return found + (_grid_worlds(grid) if grid.exists() else [])


def _grid_worlds(path: Path) -> list[World]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    starts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        starts[_key(row["settings"])].append(row)
    refused = [row["seconds"] for row in rows if row.get("failed")]
    objectives: tuple[tuple[str, str, Callable[[dict[str, Any]], tuple[float, float]]], ...] = (
        ("cpu-throughput", f"output tokens/s with {LEVEL} clients", lambda row: _estimate(row, "output_tokens_per_s")),
        ("cpu-goodput", "requests/s with 8 clients that keep TTFT <= 400 ms and ITL <= 60 ms at p95", _goodput),
        ("cpu-knee", f"most clients that keep the same limits, interpolated between 2, 8 and {LEVEL}", _knee),
    )
    return [_grid_world(name, about, score, starts, refused) for name, about, score in objectives]


def _grid_world(
    name: str, about: str, score: Callable[[dict[str, Any]], tuple[float, float]],
    starts: dict[str, list[dict[str, Any]]], refused: list[float],
) -> World:
    spread = _spread(score, starts)
    space = space_of(*_values(starts).items())
    published = {key: rows for key, rows in starts.items() if "tensor-parallel-size" not in key}

    @cache
    def truth_of(key: str) -> Truth:
        rows = [row for row in published[key] if row["levels"]]
        if not rows:
            return Truth(start_s=float(np.mean([row["seconds"] for row in published[key]])),
                         reason=published[key][0].get("failed", ""))
        values = [score(row) for row in rows]
        value = float(np.mean([value for value, _ in values]))
        return Truth(
            start_s=float(np.mean([row["start_s"] for row in rows])), load_s=_load_s(rows, name),
            score=max(value, 1e-3),
            noise=spread or float(np.mean([error for _, error in values])), boot_noise=spread or 0.01,
        )

    def truth(point: Point) -> Truth:
        if point["tensor-parallel-size"] is not None:
            return Truth(start_s=float(np.mean(refused)) if refused else 29.0, reason="not enough NUMA nodes")
        return truth_of(_key({flag: value for flag, value in point.items() if value is not None}))

    def ruled_out(point: Point) -> bool:
        alone = {flag: value for flag, value in point.items() if value is not None and flag != "tensor-parallel-size"}
        return _key(alone) not in published

    return World(name, about, space, "maximize", truth, ruled_out, ("max-num-seqs", "max-num-batched-tokens"))


def _values(starts: dict[str, list[dict[str, Any]]]) -> dict[str, tuple[Choice, ...]]:
    """Return the values of each flag that were measured; unset comes first."""
    found: dict[str, list[Any]] = defaultdict(list)
    for rows in starts.values():
        for flag, value in rows[0]["settings"].items():
            if value not in found[flag]:
                found[flag].append(value)
    return {flag: (None, *sorted(values)) for flag, values in sorted(found.items())}


def _spread(
    score: Callable[[dict[str, Any]], tuple[float, float]], starts: dict[str, list[dict[str, Any]]]
) -> float | None:
    """Return the noise of a load and of a boot, taken alike, from configurations that were started twice."""
    squares = []
    for rows in starts.values():
        logs = [math.log(value) for row in rows if row["levels"] and (value := score(row)[0]) > _ALMOST_NOTHING]
        if len(logs) > 1:
            squares.append(float(np.var(logs, ddof=1)))
    return min(0.15, math.sqrt(float(np.mean(squares)) / 2)) if len(squares) > 1 else None


def _load_s(rows: list[dict[str, Any]], name: str) -> float:
    """Return the seconds of the level that is used; of all three when the knee is sought."""
    wanted = {"cpu-goodput": {8}, "cpu-throughput": {LEVEL}}.get(name, {2, 8, LEVEL})
    chosen = [sum(level["seconds"] for level in row["levels"] if level["clients"] in wanted) for row in rows]
    return float(np.mean(chosen))


def _level(row: dict[str, Any], clients: int) -> dict[str, Any]:
    return next(level for level in row["levels"] if level["clients"] == clients)


def _estimate(row: dict[str, Any], metric: str) -> tuple[float, float]:
    """Return the value and its relative standard error."""
    value, low, high = _level(row, LEVEL)[metric]
    return value, (high - low) / 3.92 / max(value, 1e-9)


def _goodput(row: dict[str, Any]) -> tuple[float, float]:
    value, low, high = _level(row, 8)["goodput_per_s"]
    return value, min(0.3, (high - low) / 3.92 / max(value, 0.05))


def _knee(row: dict[str, Any]) -> tuple[float, float]:
    """Return the most clients that keep the limits: between two levels the excess is a line over log2 of clients."""
    worst = [max(level[metric][0] / limit - 1 if level[metric] else 9.0 for metric, limit in SLO_MS.items())
             for level in row["levels"]]
    clients = [math.log2(level["clients"]) for level in row["levels"]]
    if worst[0] > 0:
        return max(0.25, 2 / (1 + worst[0])), 0.05
    for place in range(1, len(worst)):
        if worst[place] > 0:
            share = -worst[place - 1] / (worst[place] - worst[place - 1])
            return 2 ** (clients[place - 1] + share * (clients[place] - clients[place - 1])), 0.05
    return 2 ** clients[-1], 0.02


def _key(settings: Point) -> str:
    return json.dumps(dict(sorted(settings.items())))


def _published(model: str) -> World:
    scores: dict[str, list[float]] = defaultdict(list)
    gaps: dict[str, list[float]] = defaultdict(list)
    values: dict[str, list[Choice]] = {"layout": [], "weights": [], "max-num-seqs": []}
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["model"] != model:
                continue
            point: dict[str, Choice] = {
                "layout": f"{row['n_gpus']} GPUs tp{row['tp']} ep{row['ep']} dp{row['dp']}",
                "weights": row["weight_quant"], "max-num-seqs": int(row["concurrency"]),
            }
            scores[_key(point)].append(float(row["output_tok_s_per_gpu"]))
            gaps[_key(point)].append(float(row["tpot_mean_ms"]))
            for flag, value in point.items():
                if value not in values[flag]:
                    values[flag].append(value)
    values["max-num-seqs"].sort(key=lambda value: int(str(value)))
    limit = 20.0 if "Llama" in model else 30.0

    def truth(point: Point) -> Truth:
        key = _key(point)
        gap = float(np.mean(gaps[key])) if gaps[key] else 9e3
        return Truth(start_s=240, load_s=120, score=float(np.mean(scores[key])) if scores[key] else 1e-3, noise=0.02,
                     boot_noise=0.01, violations={f"mean tpot<={limit:g}ms": gap / limit - 1})

    def ruled_out(point: Point) -> bool:
        return not scores.get(_key(point))

    space = space_of(*((flag, tuple(found)) for flag, found in values.items()))
    short = model.rpartition("/")[2].lower().partition(".")[0]
    about = f"{model}, output tokens/s per GPU with mean TPOT <= {limit:g} ms: {len(scores)} published points"
    return World(f"published-{short}", about, space, "maximize", truth, ruled_out, ("max-num-seqs",))
