"""Measure a whole grid of real vLLM configurations on a CPU: the world that `benchmarks/search` replays.

Every configuration is started once, a few of them a second time, in random order, and loaded at three levels with the
same seeded list of requests, its contents salted. One line of JSON a start goes to the output; a start that is already
there is not repeated, so the script can be stopped and run again.

    .venv/bin/python benchmarks/search/measure_grid.py benchmarks/search/worlds/vllm_cpu_grid.jsonl [--cpus 1]

Takes about an hour on one core. `--cpus` pins the server and the client, so that other work can have the
other cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from tuner.app.ask import Ask
from tuner.app.requests import requests_of
from tuner.app.resolve import Resolved, resolve
from tuner.app.scrape import scrape
from tuner.domain.engine import EngineConfig, Setting
from tuner.domain.load_record import RequestRecord
from tuner.domain.slo import parse_slo
from tuner.domain.workload import ClosedLoop, Uniform, Workload
from tuner.engines import ENGINES
from tuner.load.run import run_load
from tuner.measure.requests import measure
from tuner.runtime.host import HostWatch
from tuner.runtime.process import ProcessLauncher
from tuner.runtime.ready import NotReady, wait_ready

MODEL = ".cache/demo-model/tiny-llama"
FIXED = ("enforce-eager=true", "max-model-len=2048", "env:VLLM_CPU_KVCACHE_SPACE=1")
GRID: dict[str, tuple[Any, ...]] = {
    "max-num-seqs": (None, 4, 8, 16, 32),
    "max-num-batched-tokens": (None, 128),
    "enable-prefix-caching": (None, False),
    "dtype": (None, "float32"),
}
TENSOR_PARALLEL = {"tensor-parallel-size": 2}
"""Refused by the engine on one NUMA node, whatever else is set: seen a few times, not for every point."""
LEVELS = ((2, 16, 2), (8, 56, 8), (32, 112, 16))
"""Clients, measured requests, warm-up requests."""
CAP_S = 12.0
LEAST = 12
"""Requests that a level measures even when that takes longer."""
REPEATED = 3
SLO = parse_slo("p95 ttft<=400ms, p95 itl<=60ms")
WORKLOAD = Workload(
    name="grid", input_tokens=Uniform(low=128, high=384), output_tokens=Uniform(low=12, high=36),
    arrivals=ClosedLoop(concurrency=1), requests=1, shared_prefix=0.6, prefix_groups=2,
)


def main() -> None:
    """Measure what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("file", type=Path)
    parser.add_argument("--cpus", help="cores to use, e.g. 1 or 0,1; default: all")
    asked = parser.parse_args()
    if asked.cpus:
        os.sched_setaffinity(0, {int(cpu) for cpu in asked.cpus.split(",")})
    pins = FIXED if not asked.cpus or "," in asked.cpus else (*FIXED, f"env:VLLM_CPU_OMP_THREADS_BIND={asked.cpus}")
    ask = Ask(model=MODEL, engine_command=".venv-vllm/bin/vllm", set=pins, workload="64x32@c2", seed=1)
    resolved = resolve(ask, {})
    asked.file.parent.mkdir(parents=True, exist_ok=True)
    known = set()
    if asked.file.exists():
        known = {(row["key"], row["boot"]) for row in map(json.loads, asked.file.read_text().splitlines())}
    for number, (settings, boot) in enumerate(starts(), 1):
        config = config_of(resolved, settings)
        if (config.key, boot) in known:
            continue
        row = {"key": config.key, "settings": settings, "boot": boot, "cpus": asked.cpus, **one_start(resolved, config)}
        with asked.file.open("a") as out:
            out.write(json.dumps(row) + "\n")
        shown = [f"c{level['clients']} {level['output_tokens_per_s'][0]:.0f}/s" for level in row["levels"]]
        print(number, settings, boot, round(row["seconds"]), "s", shown or row["failed"], flush=True)


def starts() -> list[tuple[dict[str, Any], int]]:
    """Return what is started, in random order: the grid, some of it again, and a few that the engine refuses."""
    rng = random.Random(5)
    points = [
        {flag: value for flag, value in zip(GRID, values, strict=True) if value is not None}
        for values in itertools.product(*GRID.values())
    ]
    rng.shuffle(points)
    refused = [{**point, **TENSOR_PARALLEL} for point in points[:2]]
    return [(one, 0) for one in (*points[:3], *refused, *points[3:])] + [(one, 1) for one in points[:REPEATED]]


def config_of(resolved: Resolved, settings: dict[str, Any]) -> EngineConfig:
    """Return the configuration with what is fixed for the whole grid."""
    own = tuple(Setting(flag=flag, value=value) for flag, value in settings.items())
    return EngineConfig(engine="vllm", version=resolved.spec.engine.version, settings=(*resolved.spec.pins, *own))


def one_start(resolved: Resolved, config: EngineConfig) -> dict[str, Any]:
    """Start this configuration, load it at every level, and return what was seen."""
    spec, engine = resolved.spec, ENGINES["vllm"]
    launch = engine.launch(spec.model, config, spec.engine)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ProcessLauncher().start(launch, Path(folder)) as server:
        ready = wait_ready(server, launch, timeout_s=300, fatal=engine.fatal, phase=engine.phase)
        if isinstance(ready, NotReady):
            found = engine.classify(server.log_text(), ready.exit_code)
            return {"seconds": time.monotonic() - began, "failed": f"{found.failure}: {found.reason}", "levels": []}
        start_s = time.monotonic() - began
        facts = engine.startup_facts(server.log_text(), scrape(server.url))
        levels = [one_level(resolved, server.url, launch.served_name, level, config.key) for level in LEVELS]
        cpu = server.cpu_seconds()
    return {"seconds": time.monotonic() - began, "start_s": start_s, "cpu_s": cpu,
            "startup": facts.model_dump(mode="json", exclude_defaults=True), "levels": levels}


def one_level(resolved: Resolved, url: str, name: str, level: tuple[int, int, int], salt: str) -> dict[str, Any]:
    """Load the server with so many clients, and return the numbers with their intervals."""
    clients, requests, warmup = level
    workload = WORKLOAD.model_copy(update={"arrivals": ClosedLoop(concurrency=clients), "requests": requests,
                                           "warmup_requests": warmup})
    made = requests_of(workload, vocab_size=resolved.spec.model.vocab_size, seed=1, salt=f"{salt}-{time.time_ns()}")
    watch, began = HostWatch(), time.monotonic()
    done: list[str] = []

    def over() -> str | None:
        seconds = time.monotonic() - began
        enough = seconds > CAP_S and len(done) >= LEAST
        return "the time is over" if enough or seconds > 3 * CAP_S else None

    def count(record: RequestRecord) -> None:
        if record.ok and not record.warmup:
            done.append(record.id)

    run = run_load(url, name, made, workload, seed=1, stop=over, on_record=count)
    found = measure(run, SLO)
    row: dict[str, Any] = {
        "clients": clients, "seconds": time.monotonic() - began, "completed": found.completed, "failed": found.failed,
        "window_s": found.window_s, "client_cpu": found.client_cpu_share, "client_lag_ms": found.client_lag_ms,
        "steal": watch.environment(0.0).cpu_steal_share,
        "warnings": [warning.kind for warning in found.warnings],
    }
    rates = ("output_tokens_per_s", "requests_per_s", "goodput_per_s", "slo_attainment")
    estimates = {rate: getattr(found, rate) for rate in rates}
    for metric in ("ttft", "itl", "tpot", "e2e"):
        summary = getattr(found, f"{metric}_ms")
        estimates |= {f"{stat}_{metric}_ms": getattr(summary, stat, None) for stat in ("mean", "p50", "p95", "p99")}
    return row | {key: [round(value, 4) for value in (one.value, one.low, one.high)] if one else None
                  for key, one in estimates.items()}


if __name__ == "__main__":
    main()
