"""How true the load generator's numbers are: ours against the record of a server whose every send is known.

    python benchmarks/load_accuracy.py [--repeats 3] [--streams 64,256,512] [--rate 80] [--json FILE]
    python benchmarks/load_accuracy.py --streams 2000 --rate 0 --itl-ms 100 --workers 2

The server runs on one core, the client on another (with all its workers, when there are several). Each line compares
the client's percentiles with those of the server's own record of what went to its kernel, so a server that is late is
no error of the client. CPU is user and system time of the client's processes over the tokens that they received.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tuner.domain.load_record import LoadRun
from tuner.domain.workload import ClosedLoop, Fixed, OpenLoop, Workload
from tuner.load.prompts import build_requests
from tuner.load.run import run_load
from tuner.measure.quality import client_limits
from tuner.measure.window import find_window

SERVER = Path(__file__).parent.parent / "tests" / "fakes" / "truth_server.py"
TOKENS = 128
TTFT_MS, ITL_MS = 50.0, 20.0
ANY = {"ttft_p50": 1.0, "ttft_p99": 5.0, "itl_p99": 3.0, "rate_percent": 0.5}
BOUNDS = {
    "streams": ANY | {"us_per_token": 45.0},
    # A wake-up for each token costs more than one for a few: with few streams the CPU per token is not bound.
    "few streams": ANY,
    "Poisson": {"ttft_p50": 1.0, "ttft_p99": 3.0},
}
"""How far each load may be from the truth: ms, per cent, and us of CPU."""
FEW_STREAMS = 255


@dataclasses.dataclass(frozen=True)
class Row:
    """One run, each figure beside the truth. Times in ms."""

    load: str
    requests: int
    ttft_p50: float
    ttft_p50_true: float
    ttft_p99: float
    ttft_p99_true: float
    itl_p99: float
    itl_p99_true: float
    tokens_per_s: float
    tokens_per_s_true: float
    us_per_token: float
    exact_counts: bool
    bounds: str
    client_limited: list[str]

    @property
    def missed(self) -> list[str]:
        """The bounds that do not hold."""
        off = {
            "ttft_p50": abs(self.ttft_p50 - self.ttft_p50_true),
            "ttft_p99": abs(self.ttft_p99 - self.ttft_p99_true),
            "itl_p99": abs(self.itl_p99 - self.itl_p99_true),
            "rate_percent": abs(self.tokens_per_s / self.tokens_per_s_true - 1) * 100,
            "us_per_token": self.us_per_token,
        }
        bounds = BOUNDS[self.bounds].items()
        found = [f"{name} {off[name]:.2f} > {bound:g}" for name, bound in bounds if off[name] > bound]
        return found if self.exact_counts else [*found, "counts"]


@contextlib.contextmanager
def truth_server(core: int | None, *options: str, realtime: bool = False) -> Iterator[str]:
    """Run the truth server in a process of its own; give its URL."""
    pin = [] if core is None else ["--core", str(core)]
    command = [sys.executable, str(SERVER), "--ttft-ms", str(TTFT_MS), "--itl-ms", str(ITL_MS), *pin, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = process.stdout.readline().strip() if process.stdout else ""
            if realtime:
                os.sched_setscheduler(process.pid, os.SCHED_RR, os.sched_param(2))
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def run_once(url: str, arrivals: ClosedLoop | OpenLoop, requests: int, salt: str, *, workers: int = 1) -> Row:
    """Load the server once and compare."""
    httpx.post(f"{url}/truth/reset").raise_for_status()
    workload = Workload(name="accuracy", input_tokens=Fixed(tokens=8), output_tokens=Fixed(tokens=TOKENS),
                        arrivals=arrivals, requests=requests, warmup_requests=0)
    built = build_requests(workload, vocab_size=32000, seed=0, salt=salt)
    run = run_load(url, "truth", built, workload, workers=workers)
    records = httpx.get(f"{url}/truth", timeout=60).json()["records"]
    if isinstance(arrivals, ClosedLoop):
        few = arrivals.concurrency <= FEW_STREAMS
        return compare(f"{arrivals.concurrency} streams", run, records, "few streams" if few else "streams")
    return compare(f"Poisson {arrivals.rate_per_s:g}/s", run, records, "Poisson")


def compare(label: str, run: LoadRun, truths: list[dict[str, Any]], bounds: str) -> Row:
    """Put the client's figures beside the server's, over the client's steady window."""
    window = find_window(run)
    ours = [record for record in run.records if window.holds(record.start_ns) and record.ok]
    inside = [truth for truth in truths if window.holds(truth["received_ns"])]
    ttft = np.array([(record.chunk_ns[0] - record.start_ns) / 1e6 for record in ours])
    ttft_true = np.array([(truth["sent_ns"][0] - truth["received_ns"]) / 1e6 for truth in inside])
    itl = np.concatenate([np.diff(record.chunk_ns) / 1e6 for record in ours])
    itl_true = np.concatenate([np.diff(truth["sent_ns"]) / 1e6 for truth in inside])
    tokens = sum(window.holds(at) for record in run.records for at in record.chunk_ns)
    tokens_true = sum(window.holds(at) for truth in truths for at in truth["sent_ns"])
    total = sum(record.output_tokens for record in run.records)
    return Row(
        load=label, requests=len(run.records),
        ttft_p50=_at(ttft, 50), ttft_p50_true=_at(ttft_true, 50),
        ttft_p99=_at(ttft, 99), ttft_p99_true=_at(ttft_true, 99),
        itl_p99=_at(itl, 99), itl_p99_true=_at(itl_true, 99),
        tokens_per_s=tokens / window.seconds, tokens_per_s_true=tokens_true / window.seconds,
        us_per_token=run.cpu_s / total * 1e6,
        exact_counts=total == sum(len(truth["sent_ns"]) for truth in truths) and all(r.ok for r in run.records),
        bounds=bounds, client_limited=client_limits(run),
    )


def _at(values: np.ndarray[Any, np.dtype[np.float64]], percent: float) -> float:
    return round(float(np.percentile(values, percent)), 3)


def main() -> None:
    """Run all loads and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", default="64,256,512")
    parser.add_argument("--rate", type=float, default=80.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=4, help="requests for each stream")
    parser.add_argument("--client-core", type=int, default=0)
    parser.add_argument("--server-core", type=int, default=1)
    parser.add_argument("--realtime", action="store_true", help="real-time priority for both, on a busy machine")
    parser.add_argument("--itl-ms", type=float, default=ITL_MS)
    parser.add_argument("--workers", type=int, default=1, help="load processes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[Row] = []
    with truth_server(options.server_core, "--itl-ms", str(options.itl_ms), realtime=options.realtime) as url:
        os.sched_setaffinity(0, {options.client_core})
        if options.realtime:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        print(f"{'load':>14} {'TTFT p50':>16} {'TTFT p99':>16} {'ITL p99':>16} {'tok/s':>16} {'us/tok':>7}  bounds")
        for repeat in range(options.repeats):
            loads: list[tuple[ClosedLoop | OpenLoop, int]] = [
                (ClosedLoop(concurrency=int(n)), int(n) * options.rounds) for n in options.streams.split(",") if n
            ]
            if options.rate:
                loads.append((OpenLoop(rate_per_s=options.rate), int(options.rate * 12)))
            for arrivals, requests in loads:
                row = run_once(url, arrivals, requests, f"{time.time_ns()}-{repeat}", workers=options.workers)
                rows.append(row)
                print(f"{row.load:>14} {row.ttft_p50:7.2f}/{row.ttft_p50_true:7.2f}  {row.ttft_p99:7.2f}/"
                      f"{row.ttft_p99_true:7.2f}  {row.itl_p99:7.2f}/{row.itl_p99_true:7.2f}  "
                      f"{row.tokens_per_s:7.0f}/{row.tokens_per_s_true:7.0f}  {row.us_per_token:6.1f}  "
                      f"{', '.join(row.missed) or 'hold'} {'; '.join(row.client_limited)}", flush=True)
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
