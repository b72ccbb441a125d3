"""How many requests a minute the simulator answers on one core, for several kinds of traffic.

.venv/bin/python benchmarks/simulator_speed.py [requests]
"""

from __future__ import annotations

import sys
import time

from tuner.app.traffic import at_rate, jobs_of
from tuner.capacity.jobs import Engine
from tuner.capacity.latency import step_time
from tuner.capacity.refusal import Refused
from tuner.capacity.simulate import simulate
from tuner.domain.engine import Footprint
from tuner.facts.catalog import model_by_alias, workload_preset
from tuner.facts.gpus import gpu_table


def main() -> int:
    """Time one run a workload, and print the rate."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    model = model_by_alias("llama-3-70b")
    if model is None:
        return 1
    step = step_time(model, Footprint(tensor_parallel=4, weight_bits=8.0), gpu_table()["H100-SXM5-80GB"])
    if isinstance(step, Refused):
        sys.stdout.write(step.reason + "\n")
        return 1
    engine = Engine(max_sequences=256, token_budget=8192, blocks=40_000)
    for name, rate in (("chat", 12.0), ("rag", 2.0), ("agent", 2.0), ("batch", None)):
        workload = workload_preset(name).model_copy(update={"requests": count})
        jobs = jobs_of(at_rate(workload, rate) if rate else workload, seed=0)
        begun = time.process_time()
        done = simulate(jobs, engine, step)
        took = time.process_time() - begun
        sys.stdout.write(f"{name:<6} {len(jobs):,} requests, {done.steps:,} steps in {took:.2f} s of one core: "
                         f"{60 * len(jobs) / took:,.0f} requests a minute\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
