"""What the same list of requests in both arms is worth when two configurations are compared.

    python benchmarks/load_variance.py [--pairs 200] [--json FILE]

Two simulated servers, one 10 % faster, are compared many times by their output throughput: with one list of lengths in
both arms, and with a list of its own in each. Step times scatter independently in every run, as in two real runs.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.simulated_server import Engine, draw, simulate
from tuner.measure.requests import measure

CLIENTS, REQUESTS = 64, 640
INPUTS, OUTPUTS = 512, 200
FASTER = 0.9


def log_ratio(one: Engine, other: Engine, rng: np.random.Generator, *, common: bool) -> float:
    """Compare once; return the logarithm of the ratio of throughputs."""
    lists = [draw(REQUESTS, rng, inputs_median=INPUTS, outputs_median=OUTPUTS) for _ in range(1 if common else 2)]
    found = [
        measure(simulate(engine, lengths, CLIENTS, rng)).output_tokens_per_s.value
        for engine, lengths in zip((one, other), (lists[0], lists[-1]), strict=True)
    ]
    return math.log(found[0] / found[1])


def main() -> None:
    """Compare the spread of the two ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--wander", type=float, default=0.05, help="spread of the step times")
    parser.add_argument("--memory", type=float, default=0.0, help="correlation of neighbouring step times")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    slow = Engine(wander=options.wander, memory=options.memory)
    fast = replace(slow, base=slow.base * FASTER)
    spread = {}
    for name, common in (("same list", True), ("own lists", False)):
        ratios = [log_ratio(fast, slow, rng, common=common) for _ in range(options.pairs)]
        spread[name] = float(np.var(ratios, ddof=1))
        print(f"{name}: mean ratio {math.exp(float(np.mean(ratios))):.4f}, "
              f"standard deviation of the log ratio {math.sqrt(spread[name]):.4%}")
    gain = spread["own lists"] / spread["same list"]
    print(f"variance with lists of their own / with the same list: {gain:.1f}")
    if options.json:
        options.json.write_text(json.dumps({"pairs": options.pairs, "variance": spread, "gain": gain}, indent=1) + "\n")


if __name__ == "__main__":
    main()
