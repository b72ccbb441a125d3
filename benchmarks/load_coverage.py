"""How often the 95 % intervals hold the truth: 93 to 97 % of the runs is the aim.

    python benchmarks/load_coverage.py [--runs 1000] [--json FILE]
    python benchmarks/load_coverage.py --runs 4000 --truth-runs 12 --json benchmarks/results/load_coverage.json

Each run simulates a server whose speed wanders, so that latencies are autocorrelated, and is measured with the code
that measures real runs. The truth is the mean of simulations hundreds of times as long. Beside ours stands the
interval that takes every sample for independent.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np

from benchmarks.simulated_server import Engine, draw, simulate
from tuner.domain.trial import Estimate, LatencySummary, Measurement
from tuner.measure.estimate import Z95
from tuner.measure.requests import measure
from tuner.measure.samples import collect
from tuner.measure.window import find_window

CLIENTS, REQUESTS = 16, 640
LATENCIES = ("ttft", "itl", "tpot", "e2e")


def figures(found: Measurement) -> dict[str, Estimate]:
    """Pick what is judged."""
    picked = {"output_tokens_per_s": found.output_tokens_per_s, "requests_per_s": found.requests_per_s}
    for name in LATENCIES:
        summary: LatencySummary = getattr(found, f"{name}_ms")
        picked |= {f"{name} mean": summary.mean, f"{name} p50": summary.p50, f"{name} p95": summary.p95}
    return picked


def naive(values: np.ndarray[tuple[int], np.dtype[np.float64]], truth: float) -> bool:
    """Whether the textbook interval for a mean of independent samples covers."""
    half = Z95 * float(values.std(ddof=1)) / math.sqrt(values.size)
    return abs(float(values.mean()) - truth) <= half


def main() -> None:
    """Simulate, measure, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--truth-requests", type=int, default=100_000)
    parser.add_argument("--truth-runs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    engine = Engine()
    long = [
        figures(measure(simulate(engine, draw(options.truth_requests, rng), CLIENTS, rng)))
        for _ in range(options.truth_runs)
    ]
    truth = {name: float(np.mean([one[name].value for one in long])) for name in long[0]}
    hits = dict.fromkeys(truth, 0)
    plain = dict.fromkeys(LATENCIES, 0)
    for _ in range(options.runs):
        run = simulate(engine, draw(REQUESTS, rng), CLIENTS, rng)
        for name, one in figures(measure(run)).items():
            hits[name] += one.low <= truth[name] <= one.high
        window = find_window(run)
        inside = [record for record in run.records if window.holds(record.start_ns)]
        for name in LATENCIES:
            plain[name] += naive(collect(inside, name).values, truth[f"{name} mean"])
    print(f"{options.runs} runs of {REQUESTS} requests, {CLIENTS} clients; share of 95 % intervals that hold the truth")
    for name, count in hits.items():
        beside = ""
        if name.endswith("mean"):
            beside = f"  (independent samples: {plain[name.split()[0]] / options.runs:.1%})"
        print(f"{name:>22}  {count / options.runs:6.1%}{beside}")
    if options.json:
        shares = {name: count / options.runs for name, count in hits.items()}
        options.json.write_text(json.dumps({"runs": options.runs, "coverage": shares}, indent=1) + "\n")


if __name__ == "__main__":
    main()
