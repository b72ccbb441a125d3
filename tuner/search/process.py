"""A Gaussian process over settings, averaged over what its parameters may be.

The covariance of two configurations is a mixture of three: settings that act alone, pairs of them (both after Duvenaud
and others, "Additive Gaussian Processes", 2011), and all of them at once. Each setting has a relevance and a length.
With 3 to 60 observations no single choice of those can be trusted, so a population of choices is drawn from priors and
moved towards the data by a sequential Monte Carlo sampler (Del Moral and others, 2006).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.search.lattice import Array, Lattice, Points

_PARTICLES = 24
_USED = 8
"""Particles that predict; more cost time and change little."""
_STAGES = 3
_MOVES = 2
_OWN = 0.25
"""Share of a value's effect that its neighbours know nothing of: engines have cliffs."""
_LEVEL_SPREAD = 1.0
"""Prior spread of the level of all values around their mean, in units of their own spread."""
_RELEVANCE = (-0.5, 1.8)
_LENGTH = (-0.4, 0.6)
_SHARES = ((1.0, 0.8), (0.0, 0.8), (-1.0, 0.8))
_SCALE = (0.0, 0.7)
_NOISE = (-3.5, 0.8)
"""Means and spreads of the priors: logit of relevance, log of length, logits of the three shares, log of the scale and
of the noise that intervals do not tell (both in units of the values' spread)."""


@dataclass(frozen=True)
class Evidence:
    """What was seen of one quantity: values with their standard errors, at rows of the lattice.

    `trend` is a prediction for each row, zero where there is none; how far it is to be believed is learnt.
    """

    rows: Points
    values: Array
    errors: Array
    trend: Array


class Process:
    """The quantity at any row, as a few equally likely pairs of mean and standard deviation."""

    def __init__(self, lattice: Lattice, evidence: Evidence, rng: np.random.Generator, *, least_scale: float) -> None:
        self._lattice = lattice
        self._rows = evidence.rows
        self._trend = evidence.trend
        self._mean = float(np.average(evidence.values, weights=1 / (evidence.errors**2 + least_scale**2)))
        spread = float(np.std(evidence.values)) if len(evidence.values) > 2 else 0.0
        self._scale = max(spread, least_scale)
        self._values = (evidence.values - self._mean) / self._scale
        self._errors = evidence.errors / self._scale
        self._column = np.repeat(np.arange(len(lattice.axes)), [len(axis.levels) for axis in lattice.axes])
        if lattice.axes:
            self._apart = np.concatenate(
                [axis.distance[:, self._rows[:, column]] for column, axis in enumerate(lattice.axes)]
            )
        theta = self._population(rng)
        used = theta[np.linspace(0, len(theta) - 1, _USED).astype(int)]
        self._used = _Parameters(used, len(lattice.axes))
        gram = self._covariance(self._used, self._rows, self._trend) + self._noise(self._used)
        self._root = np.linalg.cholesky(gram)
        residual = self._values[None, :] - self._used.slope[:, None] * self._trend[None, :] / self._scale
        self._weights = np.linalg.solve(gram, residual[:, :, None])[:, :, 0]

    def predict(self, rows: Points, trend: Array) -> tuple[Array, Array]:
        """Return means and standard deviations, one row of each for each particle."""
        cross = self._covariance(self._used, rows, trend)
        mean = np.einsum("mcn,mn->mc", cross, self._weights) + self._used.slope[:, None] * trend[None, :] / self._scale
        half = np.linalg.solve(self._root, cross.transpose(0, 2, 1))
        prior = self._prior_variance(trend)
        variance = np.maximum(prior - (half**2).sum(axis=1), 1e-8)
        return mean * self._scale + self._mean, np.sqrt(variance) * self._scale

    def _prior_variance(self, trend: Array) -> Array:
        own = self._used.scale[:, None] ** 2 + _LEVEL_SPREAD**2
        result: Array = own + (self._used.slope_spread[:, None] * trend[None, :] / self._scale) ** 2
        return result

    def _population(self, rng: np.random.Generator) -> Array:
        means, spreads = _priors(len(self._lattice.axes))
        theta = means + spreads * rng.standard_normal((_PARTICLES, len(means)))
        likelihood = self._likelihood(theta)
        for stage in range(_STAGES):
            share = (stage + 1) / _STAGES
            weights = np.exp((likelihood - likelihood.max()) / _STAGES)
            chosen = _systematic(weights / weights.sum(), rng)
            theta, likelihood = theta[chosen], likelihood[chosen]
            for move in range(_MOVES):
                step = (0.6, 0.25)[move % 2]
                tried = theta + step * spreads * rng.standard_normal(theta.shape) * (rng.random(theta.shape) < 0.4)
                found = self._likelihood(tried)
                gain = share * (found - likelihood) + _log_prior(tried, means, spreads) - _log_prior(
                    theta, means, spreads
                )
                taken = np.log(rng.random(len(theta))) < gain
                theta[taken], likelihood[taken] = tried[taken], found[taken]
        return theta

    def _likelihood(self, theta: Array) -> Array:
        parameters = _Parameters(theta, len(self._lattice.axes))
        gram = self._covariance(parameters, self._rows, self._trend) + self._noise(parameters)
        root = np.linalg.cholesky(gram)
        residual = self._values[None, :] - parameters.slope[:, None] * self._trend[None, :] / self._scale
        half = np.linalg.solve(root, residual[:, :, None])[:, :, 0]
        result: Array = -0.5 * (half**2).sum(axis=1) - np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        return result

    def _noise(self, parameters: _Parameters) -> Array:
        variance = self._errors[None, :] ** 2 + parameters.noise[:, None] ** 2 + 1e-6
        diagonal: Array = np.eye(len(self._rows))[None] * variance[:, :, None]
        return diagonal

    def _covariance(self, parameters: _Parameters, rows: Points, trend: Array) -> Array:
        """Covariance of `rows` with the rows seen, for every particle: (particles, rows, seen).

        All three parts are sums over settings of something looked up by two levels (of logarithms, for the product),
        so they are matrix products of the rows, with a column of zeros and ones for each level, and such tables.
        """
        shape = (len(parameters.scale), len(rows), len(self._rows))
        first, squares, logs = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        if self._lattice.axes:
            relevance = parameters.relevance[:, self._column, None]
            alike = (1 - _OWN) * _matern(self._apart[None] / parameters.length[:, self._column, None])
            weighted = relevance * (alike + _OWN * (self._apart[None] == 0))
            ones = self._lattice.ones(rows)
            first = ones @ weighted
            squares = ones @ weighted**2
            logs = ones @ np.log(np.maximum(1 - relevance + weighted, 1e-12))
        total = np.maximum(parameters.relevance.sum(axis=1), 1e-9)[:, None, None]
        pairs = (total**2 - (parameters.relevance**2).sum(axis=1)[:, None, None]) / 2
        alone, paired, all_at_once = (parameters.shares[:, part, None, None] for part in range(3))
        product = np.exp(logs)
        mixed = alone * first / total + all_at_once * product
        mixed += paired * ((first**2 - squares) / (2 * pairs) if len(self._lattice.axes) > 1 else product)
        result: Array = parameters.scale[:, None, None] ** 2 * mixed + _LEVEL_SPREAD**2
        if trend.any() and self._trend.any():
            sloped = parameters.slope_spread[:, None, None] ** 2 * trend[None, :, None] * self._trend[None, None, :]
            result = result + sloped / self._scale**2
        return result


class _Parameters:
    """Columns of the population by name."""

    def __init__(self, theta: Array, columns: int) -> None:
        self.relevance = 1e-3 + 1 / (1 + np.exp(-theta[:, :columns]))
        self.length = np.exp(theta[:, columns : 2 * columns])
        shares = np.exp(theta[:, 2 * columns : 2 * columns + 3])
        self.shares = shares / shares.sum(axis=1, keepdims=True)
        self.scale = np.exp(theta[:, 2 * columns + 3])
        self.noise = np.exp(theta[:, 2 * columns + 4])
        believed = 1 / (1 + np.exp(-theta[:, 2 * columns + 5]))
        self.slope = 0.8 * believed
        self.slope_spread = 0.1 + 0.4 * believed


def _priors(columns: int) -> tuple[Array, Array]:
    pairs = [*[_RELEVANCE] * columns, *[_LENGTH] * columns, *_SHARES, _SCALE, _NOISE, (0.0, 1.5)]
    return np.array([mean for mean, _ in pairs]), np.array([spread for _, spread in pairs])


def _log_prior(theta: Array, means: Array, spreads: Array) -> Array:
    result: Array = -0.5 * (((theta - means) / spreads) ** 2).sum(axis=1)
    return result


def _matern(distance: Array) -> Array:
    """Matern kernel of smoothness 5/2 (Rasmussen and Williams 2006, equation 4.17)."""
    scaled = np.sqrt(5.0) * distance
    result: Array = (1 + scaled + scaled**2 / 3) * np.exp(-scaled)
    return result


def _systematic(weights: Array, rng: np.random.Generator) -> Points:
    """Resample with one random number (Kitagawa 1996): every particle comes as often as its weight says, within one."""
    places = (rng.random() + np.arange(len(weights))) / len(weights)
    return np.minimum(np.searchsorted(np.cumsum(weights), places), len(weights) - 1).astype(np.int64)
