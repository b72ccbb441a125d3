"""How long `plan` takes for a question, and how long aiconfigurator takes for the same one, in one run.

    .venv/bin/python benchmarks/plan_speed.py [AIC_PYTHON] [--runs N]

The question: Llama 3.1 70B, 8 H100, 512 tokens in and 256 out, TTFT 500 ms, TPOT 40 ms. Both commands are started as a
user starts them. Printed are wall time and CPU time (user and system), the best of the runs and all of them: on a busy
machine the CPU time tells more. AIC_PYTHON is the interpreter of an environment with aiconfigurator 0.12; without it
only `plan` is timed.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

PLANS = {
    "closed loop on 8 GPUs": ("--gpus", "8", "--workload", "512x256@c128", "--slo", "p95 ttft<=500ms, p95 tpot<=40ms"),
    "GPUs for 20/s, chat": ("--rate", "20/s", "--workload", "chat", "--slo", "p99 ttft<=500ms, p95 itl<=40ms"),
}
THEIRS = ("cli", "default", "--model-path", "meta-llama/Meta-Llama-3.1-70B", "--system", "h100_sxm",
          "--total-gpus", "8", "--isl", "512", "--osl", "256", "--ttft", "500", "--tpot", "40", "--backend", "vllm")


def timed(command: list[str]) -> tuple[float, float]:
    """Run a command, and return its wall and CPU seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {done.stdout[-800:]}")
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> int:
    """Print the times and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("python", nargs="?", help="interpreter of an environment with aiconfigurator 0.12")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    own = [sys.executable, "-m", "tuner", "plan", "--model", "llama-3.1-70b", "--gpu", "h100"]
    commands = {f"llmtune plan, {name}": [*own, *more] for name, more in PLANS.items()}
    if given.python:
        commands["aiconfigurator cli default"] = [str(Path(given.python).with_name("aiconfigurator")), *THEIRS]
    best: dict[str, tuple[float, float]] = {}
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(given.runs):  # in turn, so that both meet the same machine
        for name, command in commands.items():
            runs[name].append(timed(command))
    for name, found in runs.items():
        best[name] = min(wall for wall, _ in found), min(cpu for _, cpu in found)
        every = ", ".join(f"{wall:.1f}/{cpu:.1f}" for wall, cpu in found)
        sys.stdout.write(f"{name:<38} wall {best[name][0]:5.2f} s  CPU {best[name][1]:5.2f} s  (each: {every})\n")
    if given.python:
        wall, cpu = best["aiconfigurator cli default"]
        for name in list(commands)[: len(PLANS)]:
            sys.stdout.write(f"aiconfigurator / {name}: wall {wall / best[name][0]:.1f} times, "
                             f"CPU {cpu / best[name][1]:.1f} times\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
