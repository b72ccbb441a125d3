"""Fit the coefficients of the step-time model to published measurements, and say how wrong it is on what it never saw.

    .venv/bin/python scripts/fit_step_time.py POINTS.csv [--write]

POINTS.csv has the columns of the public performance records: engine, model, gpu, tp, ep, dp, weight_quant, isl, osl,
concurrency, ttft_mean_ms, tpot_mean_ms. Only closed-loop records of fixed lengths are used. The fit is
Levenberg-Marquardt on logarithms of coefficients and of times, with weak priors, and is repeated with one model, one
GPU or a random fifth left out. --write stores coefficients and errors in tuner/facts/data/step_time.yaml.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from tuner.capacity.fit import Fit, Point, errors_of, held_out, summary
from tuner.capacity.published import GPUS, read_points

OUT = Path(__file__).parents[1] / "tuner" / "facts" / "data" / "step_time.yaml"


def main() -> int:
    """Fit, print, and store with --write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("points", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="no leave-one-out fits")
    given = parser.parse_args()
    points = read_points(given.points)
    fit = Fit(sorted({point.engine for point in points}))
    vector = fit.run(points)
    ratios = errors_of(fit, vector, points)
    say = sys.stdout.write
    say(f"{len(points)} records; in sample: {summary(ratios)}\n")
    for name in ("model", "gpu"):
        for group in sorted({(point.engine, getattr(point, name)) for point in points}):
            chosen = [(point.engine, getattr(point, name)) == group for point in points]
            say(f"  {group}: {summary(ratios[np.array(chosen)])}\n")
    for engine in fit.engines:
        say(f"{engine}: {fit.coefficients(vector, engine)}\n")
    if given.quick:
        return 0
    by = {
        "model": held_out(fit, vector, points, lambda p: p.model),
        "gpu": held_out(fit, vector, points, lambda p: p.gpu),
    }
    picked = np.random.default_rng(0).integers(0, 5, size=len(points))
    place = {id(point): int(fold) for point, fold in zip(points, picked, strict=True)}
    by["fold"] = held_out(fit, vector, points, lambda p: place[id(p)])
    document = document_of(fit, vector, points, by, given.points.name)
    say(yaml.safe_dump(document, sort_keys=False, width=120, default_flow_style=None))
    if given.write:
        _write(document)
    return 0


def document_of(
    fit: Fit, vector: NDArray[np.float64], points: Sequence[Point], by: dict[str, NDArray[np.float64]], origin: str
) -> dict[str, object]:
    """Return what is stored: coefficients, and errors on records that a fit did not see."""
    kept: dict[str, dict[str, object]] = {}
    cells: dict[str, dict[str, object]] = {}
    for engine in fit.engines:
        whole = np.array([point.engine == engine for point in points])
        kept[engine] = {name: summary(found[whole]) for name, found in by.items()}
        for gpu in sorted({point.gpu for point in points}):
            mine = np.array([point.engine == engine and point.gpu == gpu for point in points])
            if mine.any():
                cells.setdefault(engine, {})[GPUS[gpu]] = summary(by["model"][mine])
    models = sorted({point.model for point in points})
    return {
        "schema_version": 1,
        "fitted": {
            "points": origin, "records": len(points), "models": models, "script": "scripts/fit_step_time.py",
        },
        "coefficients": {
            engine: {k: float(f"{v:.4g}") for k, v in fit.coefficients(vector, engine).model_dump().items()}
            for engine in fit.engines
        },
        "held_out": kept,
        "held_out_by_gpu": cells,
    }


def _write(document: dict[str, object]) -> None:
    head = (
        "# Step-time coefficients and their error on records that the fit did not see: TPOT in percent, low to high\n"
        "# is the range of measured / predicted of 80 % of them. Written by scripts/fit_step_time.py; do not edit.\n"
    )
    OUT.write_text(head + yaml.safe_dump(document, sort_keys=False, width=120, default_flow_style=None))


if __name__ == "__main__":
    sys.exit(main())
