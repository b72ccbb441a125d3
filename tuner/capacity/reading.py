"""Reads a simulation as `tuner.measure` reads a live run of clients in a closed loop or of arrivals by the clock.

The same window, the same requests, the same pooling of gaps, without the intervals: a few milliseconds, so that
hundreds of configurations can be ranked. Every number is PREDICTED.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuner.capacity.jobs import Simulated

PERCENTS = (50, 90, 95, 99)
FULL_SHARE = 0.95
_LEAST_STARTS = 8
_SETTLED = 0.1

_NORMAL = np.array([-1.84, -1.32, -1.02, -0.80, -0.61, -0.44, -0.29, -0.14, 0.0,
                    0.14, 0.29, 0.44, 0.61, 0.80, 1.02, 1.32, 1.84])
"""Middles of seventeen equally likely parts of the normal distribution."""

_Values = NDArray[np.float64]


class Reading(NamedTuple):
    """Numbers of the steady part of a run: rates a second; times in ms, `mean` and percentiles by name."""

    output_tokens_per_s: float
    requests_per_s: float
    ttft_ms: dict[str, float]
    itl_ms: dict[str, float]
    tpot_ms: dict[str, float]
    e2e_ms: dict[str, float]


def read_run(
    done: Simulated, clients: int | None, jitter: float = 0.0, full_s: float = 0.0
) -> Reading | None:
    """Return the numbers of a run with so many clients (None: arrivals by the clock); None when nothing was answered.

    Closed loop: from the first measured request, or `full_s` when nearly all clients have begun, until fewer than 95 %
    of the clients wait for an answer. `jitter` is the standard deviation of the logarithm of a step's time around what
    the model says; it widens the gaps between tokens, whose percentiles would otherwise lie on the edge between steps
    with and without a prompt.
    """
    if done.end.size == 0:
        return None
    start, end = _window(done, clients, full_s)
    chosen = (done.arrival >= start) & (done.arrival <= end)
    before = chosen & (done.arrival < done.cut_s)
    if before.sum() >= chosen.sum() / 2:
        chosen = before
    if not chosen.any():
        chosen = np.ones(done.end.size, dtype=bool)
    seconds = max(end - start, 1e-9)
    many = chosen & (done.output > 1)
    tpot = (done.end[many] - done.first[many]) / (done.output[many] - 1) * 1e3
    return Reading(
        output_tokens_per_s=_tokens(done, start, end) / seconds,
        requests_per_s=float(((done.end >= start) & (done.end <= end)).sum()) / seconds,
        ttft_ms=_spread(done.ttft[chosen] * 1e3), e2e_ms=_spread(done.e2e[chosen] * 1e3), tpot_ms=_spread(tpot),
        itl_ms=_gaps(done, chosen, jitter),
    )


def _window(done: Simulated, clients: int | None, full_s: float) -> tuple[float, float]:
    start = max(float(done.arrival.min()), full_s)
    last = float(done.arrival.max())
    if clients is None:
        ordered = np.sort(done.arrival)
        return float(ordered[int(_SETTLED * ordered.size)]), last
    if math.isfinite(done.cut_s):
        return start, done.now_s
    after = np.sort(done.end[done.end > last])
    missing = clients - math.ceil(FULL_SHARE * clients)
    end = float(after[min(missing, after.size - 1)]) if after.size else last
    if (done.arrival <= end).sum() < min(_LEAST_STARTS, done.end.size):
        end = float(done.end.max())
    return start, end


def _tokens(done: Simulated, start: float, end: float) -> float:
    """Return how many tokens came between two moments; entries of several steps count with the part that lies there."""
    begun = done.times - done.gaps * done.repeats
    inside = np.clip(np.minimum(done.times, end) - np.maximum(begun, start), 0.0, None)
    one = (done.times > start) & (done.times <= end)
    share = np.where(done.repeats == 1, one, inside / np.maximum(done.times - begun, 1e-12))
    return float(done.weights @ share) + float(((done.firsts > start) & (done.firsts <= end)).sum())


def _gaps(done: Simulated, chosen: NDArray[np.bool_], jitter: float) -> dict[str, float]:
    """Return the statistics of the gaps between tokens, pooled over the chosen requests."""
    if not done.gaps.size:
        return {}
    cover = np.zeros(done.gaps.size + 1)
    np.add.at(cover, done.spans[chosen, 0], 1.0)
    np.add.at(cover, done.spans[chosen, 1], -1.0)
    weights = np.cumsum(cover)[:-1] * done.repeats
    seen = weights > 0
    if not seen.any():
        return {}
    gaps, weights = done.gaps[seen] * 1e3, weights[seen]
    mean = float(gaps @ weights / weights.sum())
    if jitter:
        widened = np.exp(jitter * _NORMAL - jitter * jitter / 2)
        gaps, weights = np.outer(gaps, widened).ravel(), np.repeat(weights, _NORMAL.size)
    return {"mean": mean} | _cuts(gaps, weights)


def _cuts(values: _Values, weights: _Values) -> dict[str, float]:
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    places = np.searchsorted(total, np.array(PERCENTS) / 100 * total[-1])
    return {f"p{percent}": float(values[order[min(int(place), values.size - 1)]])
            for percent, place in zip(PERCENTS, places, strict=True)}


def _spread(values: _Values) -> dict[str, float]:
    if not values.size:
        return {}
    cuts = np.percentile(values, PERCENTS)
    found = {f"p{percent}": float(cut) for percent, cut in zip(PERCENTS, cuts, strict=True)}
    return found | {"mean": float(values.mean())}
