"""TPOT of published records, predicted here and by aiconfigurator, in one run and on the rows that both can answer.

    .venv/bin/python benchmarks/aiconfigurator_points.py POINTS.csv AIC_PYTHON [--rows N]

AIC_PYTHON is the interpreter of an environment with aiconfigurator 0.12 (python -m venv V; V/bin/pip install
aiconfigurator==0.12.0; Linux on x86-64 only, 0.7 GB): it is never imported here. A seeded sample of rows is drawn; the
coefficients are fitted to all the other rows, so that the sample is held out; aiconfigurator is asked with its newest
database of each backend, the weight type of the row, and the KV cache type that is assumed here. Rows that it refuses
are counted and left out of both errors. The coefficients that are shipped have seen all rows; their error is printed
too, but it is not a fair one.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.capacity.fit import Fit, Point, errors_of
from tuner.capacity.latency import coefficients
from tuner.capacity.published import read_points

CHILD = """
import json, socket, sys, time, warnings, logging
def offline(*args, **more):
    raise OSError("offline")
socket.getaddrinfo, time.sleep = offline, lambda seconds: None  # no downloads, and no waiting for them
warnings.filterwarnings("ignore"); logging.disable(logging.CRITICAL)
from aiconfigurator.cli.api import cli_estimate
for line in open(sys.argv[1]):
    asked = json.loads(line)
    try:
        found = cli_estimate(asked.pop("model"), asked.pop("system"), **asked)
        print(json.dumps({"tpot": float(found.tpot), "ttft": float(found.ttft)}), file=sys.stderr, flush=True)
    except BaseException as problem:
        print(json.dumps({"failed": f"{type(problem).__name__}: {str(problem)[:120]}"}), file=sys.stderr, flush=True)
"""
NAMES = {"meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
         "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
         "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B"}
"""Its own names of the same architectures: others would be downloaded."""
QUANT = {"fp8": "fp8", "nvfp4": "nvfp4", "bf16": "bf16", "": "bf16"}


def rows_of(path: Path, points: list[Point]) -> list[dict[str, str]]:
    """Return the row of each point, in order."""
    found, left = [], iter(points)
    wanted = next(left, None)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if wanted is not None and _is(row, wanted):
                found.append(row)
                wanted = next(left, None)
    if len(found) != len(points):
        raise SystemExit("the rows of some points were not found again")
    return found


def _is(row: dict[str, str], point: Point) -> bool:
    try:
        return (row["engine"] == point.engine and row["model"] == point.model and row["gpu"] == point.gpu
                and float(row["tpot_mean_ms"]) == point.tpot_ms and float(row["ttft_mean_ms"]) == point.ttft_ms
                and float(row["isl"]) == point.prompt and float(row["osl"]) == point.output)
    except ValueError:
        return False


def question(row: dict[str, str], point: Point) -> dict[str, Any]:
    """Return what aiconfigurator is asked for a row."""
    quant = row["weight_quant"]
    asked: dict[str, Any] = {
        "model": NAMES.get(row["model"], row["model"]), "system": row["gpu"], "backend_name": row["engine"],
        "isl": int(point.prompt), "osl": int(point.output), "batch_size": max(1, round(point.in_flight)),
        "tp_size": int(float(row["tp"])), "attention_dp_size": int(float(row["dp"] or 1)),
    }
    if quant in QUANT and not point.shape.expert_layers:
        asked["gemm_quant_mode"] = QUANT[quant]
    if row["engine"] == "trtllm" and quant in ("fp8", "nvfp4"):
        asked["kvcache_quant_mode"] = "fp8"
    if point.shape.expert_layers:
        ranks = int(float(row["tp"])) * int(float(row["dp"] or 1))
        ep = int(float(row["ep"] or 1))
        asked |= {"moe_tp_size": max(1, ranks // ep), "moe_ep_size": ep}
        asked |= {"moe_quant_mode": "nvfp4"} if quant == "nvfp4" and "gpt-oss" not in row["model"] else {}
    return asked


def ask(python: str, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return its answers, in order."""
    with tempfile.TemporaryDirectory() as folder:
        child, asked = Path(folder, "child.py"), Path(folder, "asked.jsonl")
        child.write_text(CHILD)
        asked.write_text("".join(json.dumps(one) + "\n" for one in questions))
        done = subprocess.run([python, str(child), str(asked)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True, check=False)
    answers = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    if len(answers) != len(questions):
        raise SystemExit(f"aiconfigurator answered {len(answers)} of {len(questions)}: {done.stderr[-500:]}")
    return answers


def _line(name: str, ratios: NDArray[np.float64]) -> str:
    off = 100 * np.abs(ratios - 1)
    return (f"  {name:<34} MAPE {off.mean():5.1f} %  median {np.median(off):5.1f} %  bias "
            f"{100 * (np.median(ratios) - 1):+5.1f} %  n={ratios.size}\n")


def main() -> int:
    """Print both errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("points", type=Path)
    parser.add_argument("python", help="interpreter of an environment with aiconfigurator 0.12")
    parser.add_argument("--rows", type=int, default=120)
    given = parser.parse_args()
    say = sys.stdout.write
    points = read_points(given.points)
    rows = rows_of(given.points, points)
    chosen = sorted(np.random.default_rng(0).choice(len(points), given.rows, replace=False).tolist(),
                    key=lambda index: (points[index].engine, points[index].gpu, points[index].model, index))
    answers = ask(given.python, [question(rows[index], points[index]) for index in chosen])
    drawn = set(chosen)
    fit = Fit(sorted({point.engine for point in points}))
    vector = fit.run([point for index, point in enumerate(points) if index not in drawn])
    both = [(points[index], answer) for index, answer in zip(chosen, answers, strict=True) if "tpot" in answer]
    say(f"{given.rows} of {len(points)} records drawn; aiconfigurator answers {len(both)} of them\n")
    refusals: dict[str, int] = {}
    for index, answer in zip(chosen, answers, strict=True):
        if "tpot" not in answer:
            key = f"{points[index].engine} {points[index].model}: {answer['failed']}"
            refusals[key] = refusals.get(key, 0) + 1
    for text, count in sorted(refusals.items(), key=lambda pair: -pair[1]):
        say(f"  refused {count:3} x {text}\n")
    for engine in ("", *fit.engines):
        mine = [(point, answer) for point, answer in both if engine in ("", point.engine)]
        if not mine:
            continue
        found = [point for point, _ in mine]
        theirs = np.array([answer["tpot"] / point.tpot_ms for point, answer in mine])
        own = errors_of(fit, vector, found)
        shipped = np.array([point.predict(coefficients(point.engine))[0] / point.tpot_ms for point in found])
        nearer = float(np.mean(np.abs(own - 1) < np.abs(theirs - 1)))
        say(f"TPOT, {engine or 'all'}: predicted / measured\n")
        say(_line("aiconfigurator", theirs) + _line("here, fitted to the other rows", own))
        say(_line("here, as shipped (saw these rows)", shipped))
        say(f"  nearer to the measurement here: {100 * nearer:.0f} % of the rows\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
