"""Least squares of a function without derivatives, for few parameters: Levenberg-Marquardt with forward differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_Vector = NDArray[np.float64]
_STEP = 0.05
_FAR = 0.7


def least_squares(residuals: Callable[[_Vector], _Vector], start: _Vector, rounds: int, gain: float = 2e-3) -> _Vector:
    """Return the vector (logarithms) that makes the sum of squares small.

    It stops after `rounds`, or when one of them lowers the sum by less than `gain`. Steps of the differences are wide,
    because simulations jump where the order of events changes.
    """
    vector: _Vector = start.copy()
    damping, here = 1e-2, residuals(start)
    for _ in range(rounds):
        slopes = np.empty((here.size, vector.size))
        for index in range(vector.size):
            moved = vector.copy()
            moved[index] += _STEP
            slopes[:, index] = (residuals(moved) - here) / _STEP
        normal, gradient = slopes.T @ slopes, slopes.T @ here
        change, after = np.zeros_like(vector), here
        for _ in range(4):
            exact = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -gradient)
            change = np.asarray(np.clip(exact, -_FAR, _FAR), dtype=np.float64)
            after = residuals(vector + change)
            if after @ after < here @ here:
                break
            damping *= 5
        better = 1 - (after @ after) / (here @ here)
        if better <= 0:
            break
        vector, here, damping = vector + change, after, damping / 3
        if better < gain:
            break
    return vector


def soft(error: float, scale: float = 0.2) -> float:
    """Damp errors beyond `scale`, which are often another thing that happened on the machine."""
    return float(np.sign(error) * scale * np.sqrt(2 * (np.sqrt(1 + (error / scale) ** 2) - 1)))
