"""How long `llmtune --help` takes, beside the bare interpreter: the median of several runs and their ratio.

    .venv/bin/python benchmarks/startup.py [--runs 15]

The ratio is what to compare between machines; the interpreter's own start is in both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path


def seconds(command: list[str]) -> float:
    """Wall time of one run of `command`, which must succeed."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Time both commands in turn, so that a busy moment hits both, and print one line of JSON."""
    parser = argparse.ArgumentParser(description="Time `llmtune --help` beside `python -c pass`.")
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    commands = {
        "help_s": [str(Path(sys.executable).with_name("llmtune")), "--help"],
        "python_s": [sys.executable, "-c", "pass"],
    }
    for command in commands.values():
        seconds(command)  # the first run compiles and fills the disk cache
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            times[name].append(seconds(command))
    medians = {name: statistics.median(values) for name, values in times.items()}
    result = {name: round(value, 4) for name, value in medians.items()}
    print(json.dumps({**result, "ratio": round(medians["help_s"] / medians["python_s"], 2), "runs": runs}))


if __name__ == "__main__":
    main()
