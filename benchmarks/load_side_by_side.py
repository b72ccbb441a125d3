"""Our load generator beside others, in one run, against a server whose every send is known.

    python benchmarks/load_side_by_side.py [--streams 64,256] [--vllm .venv-vllm/bin/vllm] [--aiperf PATH/bin/aiperf]

Each tool loads the same truth server with the same closed loop from one core, the server has another. A line shows
what the tool reports beside the server's own record of the same run, and the tool's CPU time for a token; the time
that other tools take to start (seconds of imports) is measured with a run of one request and left out of it. Tools
that are not installed are skipped. vLLM's tool needs a tokenizer: the demo model's.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.load_accuracy import TOKENS, truth_server
from tuner.domain.workload import ClosedLoop, Fixed, Workload
from tuner.load.prompts import build_requests
from tuner.load.run import run_load
from tuner.measure.requests import measure

ROOT = Path(__file__).resolve().parent.parent
TOKENIZER = ROOT / ".cache" / "demo-model" / "tiny-llama"
Reported = dict[str, float]


def ours(url: str, streams: int, requests: int) -> Reported:
    """Run ours in this process."""
    workload = Workload(
        name="side",
        input_tokens=Fixed(tokens=8),
        output_tokens=Fixed(tokens=TOKENS),
        arrivals=ClosedLoop(concurrency=streams),
        requests=requests,
        warmup_requests=0,
    )
    built = build_requests(workload, vocab_size=8000, seed=0, salt=str(time.time_ns()))
    measured = measure(run_load(url, "truth", built, workload))
    if measured.ttft_ms is None or measured.itl_ms is None:
        raise SystemExit("nothing measured")
    return {
        "ttft_p50": measured.ttft_ms.p50.value,
        "ttft_p99": measured.ttft_ms.p99.value,
        "itl_p99": measured.itl_ms.p99.value,
        "tokens_per_s": measured.output_tokens_per_s.value,
    }


def vllm_bench(program: Path) -> Callable[[str, int, int], Reported]:
    """Return a runner of `vllm bench serve`."""

    def run(url: str, streams: int, requests: int) -> Reported:
        with tempfile.TemporaryDirectory() as folder:
            _call(
                [
                    str(program),
                    "bench",
                    "serve",
                    "--backend",
                    "openai",
                    "--base-url",
                    url,
                    "--endpoint",
                    "/v1/completions",
                    "--model",
                    "truth",
                    "--tokenizer",
                    str(TOKENIZER),
                    "--dataset-name",
                    "random",
                    "--random-input-len",
                    "8",
                    "--random-output-len",
                    str(TOKENS),
                    "--num-prompts",
                    str(requests),
                    "--max-concurrency",
                    str(streams),
                    "--ignore-eos",
                    "--percentile-metrics",
                    "ttft,itl",
                    "--metric-percentiles",
                    "50,99",
                    "--save-result",
                    "--result-dir",
                    folder,
                    "--result-filename",
                    "r.json",
                    "--disable-tqdm",
                ]
            )
            found = json.loads((Path(folder) / "r.json").read_text(encoding="utf-8"))
        return {
            "ttft_p50": found["p50_ttft_ms"],
            "ttft_p99": found["p99_ttft_ms"],
            "itl_p99": found["p99_itl_ms"],
            "tokens_per_s": found["output_throughput"],
        }

    return run


def aiperf(program: Path) -> Callable[[str, int, int], Reported]:
    """Return a runner of aiperf."""

    def run(url: str, streams: int, requests: int) -> Reported:
        with tempfile.TemporaryDirectory() as folder:
            _call(
                [
                    str(program),
                    "profile",
                    "--model",
                    "truth",
                    "--url",
                    url,
                    "--endpoint-type",
                    "completions",
                    "--streaming",
                    "--concurrency",
                    str(streams),
                    "--request-count",
                    str(requests),
                    "--synthetic-input-tokens-mean",
                    "8",
                    "--output-tokens-mean",
                    str(TOKENS),
                    "--output-tokens-stddev",
                    "0",
                    "--tokenizer",
                    str(TOKENIZER),
                    "--extra-inputs",
                    "ignore_eos:true",
                    "--artifact-dir",
                    folder,
                    "--ui",
                    "none",
                ]
            )
            path = next(Path(folder).rglob("profile_export_aiperf.json"))
            found = json.loads(path.read_text(encoding="utf-8"))
        return {
            "ttft_p50": found["time_to_first_token"]["p50"],
            "ttft_p99": found["time_to_first_token"]["p99"],
            "itl_p99": found.get("inter_chunk_latency", found["inter_token_latency"])["p99"],
            "tokens_per_s": found["output_token_throughput"]["avg"],
        }

    return run


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")


def cpu_seconds() -> float:
    """CPU time of this process and of all its ended children."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def truth(url: str) -> tuple[Reported, int]:
    """Return the server's own record (percentiles over all requests, rate of the middle 80 %) and its tokens."""
    records: list[dict[str, Any]] = httpx.get(f"{url}/truth", timeout=60).json()["records"]
    ttft = [(record["sent_ns"][0] - record["received_ns"]) / 1e6 for record in records]
    gaps = np.concatenate([np.diff(record["sent_ns"]) / 1e6 for record in records])
    times = np.sort(np.concatenate([record["sent_ns"] for record in records]))
    inner = times[int(len(times) * 0.1) : int(len(times) * 0.9)]
    return {
        "ttft_p50": float(np.percentile(ttft, 50)),
        "ttft_p99": float(np.percentile(ttft, 99)),
        "itl_p99": float(np.percentile(gaps, 99)),
        "tokens_per_s": float((len(inner) - 1) / ((inner[-1] - inner[0]) / 1e9)),
    }, len(times)


def main() -> int:
    """Run every tool at every number of streams and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", default="64,256")
    parser.add_argument("--rounds", type=int, default=3, help="requests for each stream")
    parser.add_argument("--vllm", type=Path, default=ROOT / ".venv-vllm" / "bin" / "vllm")
    parser.add_argument("--aiperf", type=Path)
    parser.add_argument("--client-core", type=int, default=0)
    parser.add_argument("--server-core", type=int, default=1)
    options = parser.parse_args()
    tools: dict[str, Callable[[str, int, int], Reported]] = {"llmtune": ours}
    if options.vllm.exists() and TOKENIZER.exists():
        tools["vllm bench serve"] = vllm_bench(options.vllm.absolute())
    if options.aiperf is not None and options.aiperf.exists():
        tools["aiperf"] = aiperf(options.aiperf.absolute())
    os.environ |= {"VLLM_NO_USAGE_STATS": "1"}
    with truth_server(options.server_core) as url:
        os.sched_setaffinity(0, {options.client_core})
        print("reported/true; times in ms; CPU without the tool's own start")
        for name, tool in tools.items():
            before = cpu_seconds()
            tool(url, 1, 1)
            start = cpu_seconds() - before
            for streams in map(int, options.streams.split(",")):
                httpx.post(f"{url}/truth/reset").raise_for_status()
                before = cpu_seconds()
                said = tool(url, streams, streams * options.rounds)
                spent = cpu_seconds() - before - start
                known, tokens = truth(url)
                cells = "  ".join(f"{key} {said[key]:.1f}/{known[key]:.1f}" for key in said)
                cpu = max(0.0, spent) / tokens * 1e6
                print(f"{name:>17} {streams:>4} streams  {cells}  CPU {cpu:.0f} us/token", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
