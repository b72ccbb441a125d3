"""Least squares of a function without derivatives, for few parameters: Levenberg-Marquardt with forward differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_Vector = NDArray[np.float64]
_Function = Callable[[_Vector], _Vector]
_STEP = 0.05
_FAR = 0.7
_TRIES = 4


def least_squares(residuals: _Function, start: _Vector, rounds: int, gain: float = 2e-3) -> _Vector:
    """Return the vector (logarithms) that makes the sum of squares small.

    It stops after `rounds`, or when one of them lowers the sum by less than `gain`. Slopes are measured at the start
    and, once more, where they no longer lead down; between, each step corrects them (Broyden), because a call is a
    simulation of every trial. Steps of the differences are wide: simulations jump where the order of events changes.
    """
    vector, here = start.copy(), residuals(start)
    slopes, fresh, damping = _slopes(residuals, vector, here), True, 1e-2
    measured = 1
    for _ in range(rounds):
        change, after, damping = _best_step(residuals, (vector, here, slopes), damping)
        better = 1 - (after @ after) / (here @ here)
        if better > 0:
            slopes += np.outer(after - here - slopes @ change, change) / (change @ change)
            vector, here, damping = vector + change, after, damping / 3
        if better < gain:
            if fresh or measured > 1:
                break
            slopes, fresh, measured, damping = _slopes(residuals, vector, here), True, measured + 1, 1e-2
        else:
            fresh = False
    return vector


def _best_step(
    residuals: _Function, at: tuple[_Vector, _Vector, _Vector], damping: float
) -> tuple[_Vector, _Vector, float]:
    """Return the first of a few ever shorter steps that leads down, or the last of them, and the damping it took."""
    vector, here, slopes = at
    normal, gradient = slopes.T @ slopes, slopes.T @ here
    change, after = np.zeros_like(vector), here
    for _ in range(_TRIES):
        exact = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -gradient)
        change = np.asarray(np.clip(exact, -_FAR, _FAR), dtype=np.float64)
        after = residuals(vector + change)
        if after @ after < here @ here:
            break
        damping *= 5
    return change, after, damping


def _slopes(residuals: _Function, vector: _Vector, here: _Vector) -> _Vector:
    slopes = np.empty((here.size, vector.size))
    for index in range(vector.size):
        moved = vector.copy()
        moved[index] += _STEP
        slopes[:, index] = (residuals(moved) - here) / _STEP
    return slopes


def soft(error: float, scale: float = 0.2) -> float:
    """Damp errors beyond `scale`, which are often another thing that happened on the machine."""
    return float(np.sign(error) * scale * np.sqrt(2 * (np.sqrt(1 + (error / scale) ** 2) - 1)))
