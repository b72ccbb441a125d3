"""Agreement with `vllm bench serve` on a real server at low load.

    python benchmarks/load_agreement.py --url URL --model NAME --tokenizer DIR --vllm .venv-vllm/bin/vllm

The committed figures are of `--clients 1 --requests 200 --repeats 8`, the server on a core of its own.

Both load the same server in turn, several times, with the same closed loop and lengths; who goes first alternates.
Printed is each figure of both with its spread, and ours over theirs, from the pairs, with a 95 % interval. Beside it
stands how much two repeats of one tool differ: agreement is a ratio no further from 1 than that.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tuner.domain.workload import ClosedLoop, Fixed, Workload
from tuner.load.prompts import build_requests
from tuner.load.run import run_load
from tuner.measure.compare import ratio_over_rounds
from tuner.measure.requests import measure

INPUT_TOKENS, OUTPUT_TOKENS = 64, 32
FIGURES = ("ttft_p50", "tpot_p50", "itl_p50")


def ours(url: str, model: str, clients: int, requests: int) -> dict[str, float]:
    """Load with llmtune."""
    workload = Workload(name="agreement", input_tokens=Fixed(tokens=INPUT_TOKENS),
                        output_tokens=Fixed(tokens=OUTPUT_TOKENS), arrivals=ClosedLoop(concurrency=clients),
                        requests=requests, warmup_requests=clients)
    built = build_requests(workload, vocab_size=1000, seed=0, salt=str(time.time_ns()))
    found = measure(run_load(url, model, built, workload))
    latencies = {"ttft": found.ttft_ms, "tpot": found.tpot_ms, "itl": found.itl_ms}
    return {f"{name}_p50": one.p50.value for name, one in latencies.items() if one is not None}


def vllm_bench(options: argparse.Namespace, seed: int) -> dict[str, float]:
    """Load with `vllm bench serve`."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [options.vllm, "bench", "serve", "--backend", "openai", "--base-url", options.url, "--endpoint",
             "/v1/completions", "--model", options.model, "--tokenizer", options.tokenizer, "--dataset-name", "random",
             "--random-input-len", str(INPUT_TOKENS), "--random-output-len", str(OUTPUT_TOKENS), "--ignore-eos",
             "--num-prompts", str(options.requests), "--max-concurrency", str(options.clients), "--seed", str(seed),
             "--num-warmups", str(options.clients), "--percentile-metrics", "ttft,tpot,itl", "--metric-percentiles",
             "50", "--save-result", "--result-dir", folder, "--result-filename", "r.json"],
            check=True, capture_output=True, timeout=600,
        )
        found = json.loads((Path(folder) / "r.json").read_text())
    return {figure: float(found[f"median_{figure.removesuffix('_p50')}_ms"]) for figure in FIGURES}


def main() -> None:
    """Load in turn and print each figure of both with its spread."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("url", "model", "tokenizer", "vllm"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seen: dict[str, list[dict[str, float]]] = {"llmtune": [], "vllm bench serve": []}
    tools: dict[str, Callable[[int], dict[str, float]]] = {
        "llmtune": lambda _: ours(options.url, options.model, options.clients, options.requests),
        "vllm bench serve": lambda repeat: vllm_bench(options, 1000 + repeat),
    }
    for repeat in range(options.repeats):
        for tool in sorted(tools, reverse=repeat % 2 == 1):
            seen[tool].append(tools[tool](repeat))
    for figure in FIGURES:
        runs = {tool: [one[figure] for one in found] for tool, found in seen.items()}
        for tool, values in runs.items():
            print(f"{figure:>9} {tool:>17}: {np.mean(values):7.2f} ms, "
                  f"runs from {min(values):.2f} to {max(values):.2f}")
        ratio = ratio_over_rounds(*runs.values())
        noise = max(np.std(np.log(values), ddof=1) for values in runs.values()) * 2**0.5
        print(f"{figure:>9}             ratio: {ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f}, n={ratio.n}); "
              f"two repeats of one tool differ by a factor of {np.exp(noise):.3f} (one standard deviation)")
    if options.json:
        options.json.write_text(json.dumps(seen, indent=1) + "\n")


if __name__ == "__main__":
    main()
