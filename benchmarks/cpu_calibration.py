"""How well four live trials of the real vLLM on a CPU predict the other configurations.

    .venv/bin/python benchmarks/cpu_calibration.py benchmarks/search/worlds/vllm_cpu_grid.jsonl [--choices N]

The file holds measured starts of a grid of settings, each at three load levels (benchmarks/search/measure_grid.py).
The four are chosen without looking at what was measured: once by a rule (the defaults, then each time the configuration
that differs in most settings from those chosen), and several times drawn at random, the only condition being that both
types and both settings of prefix caching are among them. The predictor of `optimize` learns these four trials and
predicts every other configuration, which it has not seen. Printed are the errors of each choice and of all of them, and
how far a second start of the same configuration is from the first, which no prediction can be below.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.app.predicted import Loaded
from tuner.app.predictor import Predictor
from tuner.domain.engine import EngineConfig, Setting, StartupFacts
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.domain.space import SearchSpace
from tuner.domain.study import Budget, EngineInstall, StudySpec
from tuner.domain.trial import Estimate, LatencySummary, LoadPoint, Measured, Measurement, Trial
from tuner.domain.workload import ClosedLoop, Uniform, Workload

METRICS = {"throughput": "output_tokens_per_s", "p95 TTFT": "p95_ttft", "p95 ITL": "p95_itl"}
MEASURED = {"throughput": "output_tokens_per_s", "p95 TTFT": "p95_ttft_ms", "p95 ITL": "p95_itl_ms"}
BOUNDS = {"throughput": 10.0, "p95 TTFT": 20.0, "p95 ITL": 20.0}
FLAGS = ("max-num-seqs", "max-num-batched-tokens", "enable-prefix-caching", "dtype")
OWN = 8
LEARNT = 4


def spec() -> StudySpec:
    """Return the question of the grid."""
    workload = Workload(name="grid", input_tokens=Uniform(low=128, high=384), output_tokens=Uniform(low=12, high=36),
                        arrivals=ClosedLoop(concurrency=OWN), requests=72, warmup_requests=OWN, shared_prefix=0.6,
                        prefix_groups=2)
    return StudySpec(
        name="grid", hardware=Hardware(kind="cpu", cores=1), space=SearchSpace(engine="vllm", settings=()),
        model=ModelSpec(requested="tiny", name="tiny", location="/tiny", source="directory", dtype="bfloat16",
                        max_context=2048),
        engine=EngineInstall(engine="vllm", version="0.32.0", program=("vllm",)), workload=workload,
        budget=Budget(trials=LEARNT), seed=1,
    )


def trial(number: int, row: dict[str, Any]) -> Trial:
    """Return a row of the file as a trial with three load levels."""
    own = next(level for level in row["levels"] if level["clients"] == OWN)
    rate = _estimate(own["output_tokens_per_s"])
    latencies = {f"{name}_ms": LatencySummary(
        **{stat: _estimate(own[f"{stat}_{name}_ms"]) for stat in ("mean", "p50", "p95", "p99")},
        p90=_estimate(own[f"p95_{name}_ms"])) for name in ("ttft", "itl", "tpot", "e2e")}
    found = Measurement(
        requests=own["completed"], completed=own["completed"], failed=0, duration_s=own["seconds"],
        window_s=own["window_s"], input_tokens=0, output_tokens=0, output_tokens_per_s=rate, total_tokens_per_s=rate,
        requests_per_s=_estimate(own["requests_per_s"]), client_lag_ms=0.0, client_cpu_share=0.0, **latencies)
    return Trial(number=number, purpose="search", config=config(row), outcome=Measured(
        measurement=found, start_s=row["start_s"], levels=tuple(map(_point, row["levels"])),
        startup=StartupFacts(kv_cache_tokens=row["startup"].get("kv_cache_tokens"))))


def config(row: dict[str, Any]) -> EngineConfig:
    """Return the configuration of a row."""
    settings = tuple(Setting(flag=flag, value=value) for flag, value in row["settings"].items())
    return EngineConfig(engine="vllm", version="0.32.0", settings=settings)


def _estimate(found: list[float]) -> Estimate:
    return Estimate(value=found[0], low=found[1], high=found[2], n=10)


def _point(level: dict[str, Any]) -> LoadPoint:
    planned = {2: 24, 8: 72, 32: 160}
    return LoadPoint(
        clients=level["clients"], in_flight=float(level["clients"]), requests=planned[level["clients"]],
        output_tokens_per_s=_estimate(level["output_tokens_per_s"]), meets_slo=True,
        requests_per_s=_estimate(level["requests_per_s"]), p95_ttft_ms=_estimate(level["p95_ttft_ms"]),
        p95_itl_ms=_estimate(level["p95_itl_ms"]))


def by_rule(rows: list[dict[str, Any]]) -> list[int]:
    """Choose the defaults, and then what differs most from what is chosen; of equals the first in the file."""
    chosen = [next(index for index, row in enumerate(rows) if not row["settings"])]
    while len(chosen) < LEARNT:
        chosen.append(max(range(len(rows)), key=lambda index: (_apart(rows, index, chosen), -index)))
    return chosen


def _apart(rows: list[dict[str, Any]], index: int, chosen: list[int]) -> int:
    settings: list[dict[str, Any]] = [row["settings"] for row in rows]
    return min(sum(bool(settings[index].get(flag) != settings[other].get(flag)) for flag in FLAGS) for other in chosen)


def draw(rows: list[dict[str, Any]], rng: np.random.Generator) -> list[int]:
    """Draw the four that are learnt from: without looking at what was measured."""
    while True:
        chosen = [int(index) for index in rng.choice(len(rows), LEARNT, replace=False)]
        types = {rows[index]["settings"].get("dtype") for index in chosen}
        caching = {rows[index]["settings"].get("enable-prefix-caching") for index in chosen}
        if len(types) == 2 and len(caching) == 2:
            return chosen


def errors(predictor: Predictor, row: dict[str, Any]) -> dict[str, list[float]]:
    """Return predicted / measured of one configuration, a value a load level."""
    found: dict[str, list[float]] = {name: [] for name in METRICS}
    for level in row["levels"]:
        point = _point(level)
        load = None if point.clients == OWN else Loaded(point.clients, None, point.requests)
        predicted = predictor.predict(config(row), load)
        for name, metric in METRICS.items():
            if predicted is not None:
                found[name].append(predicted.values[metric].value / level[MEASURED[name]][0])
    return found


def _summary(ratios: NDArray[np.float64]) -> str:
    off = 100 * np.abs(ratios - 1)
    return (f"median {np.median(off):5.1f} %  p90 {np.percentile(off, 90):5.1f} %  bias "
            f"{100 * (np.median(ratios) - 1):+5.1f} %  n={ratios.size}")


def main() -> int:
    """Print all errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("file", type=Path)
    parser.add_argument("--choices", type=int, default=12)
    given = parser.parse_args()
    say = sys.stdout.write
    whole = [row for row in map(json.loads, given.file.read_text().splitlines()) if row["levels"]]
    rows = [row for row in whole if row["boot"] == 0]
    say(f"{len(rows)} configurations of the real vLLM 0.32.0 on one CPU core, three load levels each; learnt from "
        f"{LEARNT}, predicted the other {len(rows) - LEARNT}\n")
    _again(rows, [row for row in whole if row["boot"]], say)
    rng, pooled = np.random.default_rng(0), {name: list[float]() for name in METRICS}
    medians: dict[str, list[float]] = {name: [] for name in METRICS}
    for number in range(given.choices):
        chosen, began = draw(rows, rng) if number else by_rule(rows), time.process_time()
        predictor = Predictor.after(spec(), [trial(index, rows[index]) for index in chosen])
        learnt, own = time.process_time() - began, {name: list[float]() for name in METRICS}
        for index, row in enumerate(rows):
            if index not in chosen:
                for name, ratios in errors(predictor, row).items():
                    own[name] += ratios
        parts = []
        for name in METRICS:
            off = 100 * np.abs(np.array(own[name]) - 1)
            medians[name].append(float(np.median(off)))
            pooled[name] += own[name]
            parts.append(f"{name} {np.median(off):.1f}/{np.percentile(off, 90):.1f} %")
        name = f"draw {number:2}" if number else "by rule"
        say(f"  {name}: median/p90 {', '.join(parts)}  ({learnt:.1f} s to learn)\n")
    for name in METRICS:
        spread = np.array(medians[name])
        held = int((spread <= BOUNDS[name]).sum())
        say(f"{name:<11} {_summary(np.array(pooled[name]))}  medians of the choices {spread.min():.1f} to "
            f"{spread.max():.1f} %, within {BOUNDS[name]:g} % in {held} of {spread.size}\n")
    return 0


def _again(rows: list[dict[str, Any]], second: list[dict[str, Any]], say: Any) -> None:  # noqa: ANN401
    """Print how far second starts are from the first ones."""
    first = {row["key"]: row for row in rows}
    for name, key in MEASURED.items():
        pairs = [(one[key][0], two[key][0]) for row in second if row["key"] in first
                 for one, two in zip(first[row["key"]]["levels"], row["levels"], strict=True)]
        if pairs:
            say(f"second start / first, {name}: {_summary(np.array([two / one for one, two in pairs]))}\n")


if __name__ == "__main__":
    sys.exit(main())
