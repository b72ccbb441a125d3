"""Fits the coefficients of the step-time model to measurements: Levenberg-Marquardt on logarithms, with weak priors.

Used by scripts/fit_step_time.py on published records, and to calibrate the model with a few live trials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.capacity.latency import Coefficients, Rates, Shape, StepTime, lone_ttft, steady_tpot

PRIOR: dict[str, tuple[float, float]] = {
    # start, and by how much (as a factor) the data must insist to move it
    "bandwidth": (0.80, 1.15), "expert_bandwidth": (0.70, 1.3), "packed_bandwidth": (0.85, 1.2),
    "cache_bandwidth": (0.70, 1.3), "latent_bandwidth": (0.45, 1.5), "compute_16": (0.65, 1.2),
    "compute_8": (0.55, 1.3), "compute_4": (0.40, 1.5), "expert_compute": (0.60, 1.5), "expert_compute_4": (0.60, 1.5),
    "attention_compute": (0.40, 1.5),
    "step_us": (1500.0, 2.0), "sequence_us": (8.0, 2.0), "token_us": (0.5, 2.0), "layer_us": (15.0, 2.0),
    "expert_layer_us": (20.0, 2.0), "latent_layer_us": (10.0, 2.0),
    "reduce_us": (8.0, 2.0), "link": (0.5, 1.5), "request_ms": (12.0, 1.1),
}
OWN = ("step_us", "sequence_us", "token_us", "layer_us", "expert_layer_us", "latent_layer_us", "reduce_us",
       "request_ms")
CAP = {"bandwidth", "expert_bandwidth", "packed_bandwidth", "cache_bandwidth", "latent_bandwidth", "compute_16",
       "compute_8", "compute_4", "expert_compute", "expert_compute_4", "attention_compute", "link"}
BUDGET = 8192
TTFT_WEIGHT = 0.25
TTFT_AT_MOST = 8


@dataclass(frozen=True)
class Point:
    """One record with the structure of its step."""

    engine: str
    model: str
    gpu: str
    shape: Shape
    rates: Rates
    in_flight: float
    prompt: float
    output: float
    tpot_ms: float
    ttft_ms: float
    budget: int = BUDGET
    share: float = 1.0
    """Part of a prompt that is not in the prefix cache."""

    def predict(self, found: Coefficients) -> tuple[float, float]:
        """Return TPOT and TTFT in ms."""
        step = StepTime(self.shape, self.rates, found)
        tpot = steady_tpot(step, self.in_flight, self.prompt, self.output, self.budget, share=self.share)
        ttft = lone_ttft(step, self.in_flight, self.prompt * self.share, self.output, self.budget)
        return 1e3 * tpot, 1e3 * ttft


class Fit:
    """The parameters as one vector: shared ones, then those of each engine."""

    def __init__(
        self, engines: Sequence[str], *, start: Coefficients | None = None, trust: float = 0.3
    ) -> None:
        """Lay the parameters of these engines out.

        `start` are the priors' values, those of `PRIOR` by default; `trust` is what leaving them costs against the
        errors: low for few measurements of one machine, which is not the mean of published ones.
        """
        self.trust = trust
        self.engines = tuple(engines)
        self.names = [(name, "") for name in PRIOR if name not in OWN]
        self.names += [(name, engine) for engine in self.engines for name in OWN]
        values = start.model_dump() if start else {name: value for name, (value, _) in PRIOR.items()}
        self.start = np.log([values[name] for name, _ in self.names])
        self.pull = np.array([1 / np.log(PRIOR[name][1]) for name, _ in self.names])

    def coefficients(self, vector: NDArray[np.float64], engine: str) -> Coefficients:
        """Return the coefficients of one engine."""
        values = {}
        for (name, owner), value in zip(self.names, vector, strict=True):
            if owner in ("", engine):
                found = float(np.exp(value))
                values[name] = min(found, 1.0) if name in CAP else found
        return Coefficients(**values)

    def residuals(self, vector: NDArray[np.float64], points: Sequence[Point]) -> NDArray[np.float64]:
        """Return logarithmic errors of TPOT, of TTFT where there is no queue, and the pull of the priors."""
        found = {engine: self.coefficients(vector, engine) for engine in self.engines}
        errors = []
        for point in points:
            tpot, ttft = point.predict(found[point.engine])
            errors.append(_soft(np.log(tpot / point.tpot_ms)))
            if point.in_flight <= TTFT_AT_MOST and point.ttft_ms > 0:
                errors.append(TTFT_WEIGHT * _soft(np.log(ttft / point.ttft_ms)))
        return np.array([*errors, *(self.trust * self.pull * (vector - self.start))])

    def run(
        self, points: Sequence[Point], start: NDArray[np.float64] | None = None, rounds: int = 12
    ) -> NDArray[np.float64]:
        """Minimise by Levenberg-Marquardt."""
        vector = (self.start if start is None else start).copy()
        damping, here = 1e-2, self.residuals(vector, points)
        for _ in range(rounds):
            slopes = np.empty((here.size, vector.size))
            for index in range(vector.size):
                moved = vector.copy()
                moved[index] += 1e-3
                slopes[:, index] = (self.residuals(moved, points) - here) / 1e-3
            normal, gradient = slopes.T @ slopes, slopes.T @ here
            change, after = np.zeros_like(vector), here
            for _ in range(6):
                change = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -gradient)
                change = np.clip(change, -0.7, 0.7)
                after = self.residuals(vector + change, points)
                if after @ after < here @ here:
                    break
                damping *= 4
            gain = 1 - (after @ after) / (here @ here)
            if gain <= 0:
                break
            vector, here, damping = vector + change, after, damping / 3
            if gain < 1e-3:
                break
        return vector


def _soft(error: float, scale: float = 0.25) -> float:
    """Damp outliers, which in published tables are often another configuration than the label says."""
    return float(np.sign(error) * scale * np.sqrt(2 * (np.sqrt(1 + (error / scale) ** 2) - 1)))


def errors_of(fit: Fit, vector: NDArray[np.float64], points: Sequence[Point]) -> NDArray[np.float64]:
    """Return predicted / measured TPOT."""
    found = {engine: fit.coefficients(vector, engine) for engine in fit.engines}
    return np.array([point.predict(found[point.engine])[0] / point.tpot_ms for point in points])


def held_out(
    fit: Fit, whole: NDArray[np.float64], points: Sequence[Point], key: Callable[[Point], object]
) -> NDArray[np.float64]:
    """Return predicted / measured for each point, from a fit that saw nothing of its group."""
    ratios = np.empty(len(points))
    for group in sorted({str(key(point)) for point in points}):
        out = [index for index, point in enumerate(points) if str(key(point)) == group]
        seen = [point for point in points if str(key(point)) != group]
        vector = fit.run(seen, start=0.5 * (whole + fit.start), rounds=6)
        ratios[out] = errors_of(fit, vector, [points[index] for index in out])
    return ratios


def summary(ratios: NDArray[np.float64]) -> dict[str, float | int]:
    """Return count, MAPE, median error and bias in percent, and the range of measured / predicted of 80 %."""
    off = np.abs(ratios - 1)
    return {
        "n": int(ratios.size),
        "mape": round(100 * float(off.mean()), 1),
        "median": round(100 * float(np.median(off)), 1),
        "bias": round(100 * float(np.median(ratios) - 1), 1),
        "low": round(float(np.percentile(1 / ratios, 10)), 3), "high": round(float(np.percentile(1 / ratios, 90)), 3),
    }
