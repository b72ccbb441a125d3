"""When requests are sent: pure and seeded, so that every trial of a study meets the same arrivals."""

from __future__ import annotations

import numpy as np

from tuner.domain.workload import ClosedLoop, OpenLoop

STAGGER_S_PER_CLIENT = 0.01
STAGGER_LIMIT_S = 5.0


def open_loop_offsets(arrivals: OpenLoop, count: int, seed: int) -> tuple[float, ...]:
    """Return `count` send times in seconds from the start of the run, ascending.

    Gaps have mean 1/rate. With `burstiness` b they are gamma distributed with shape b (coefficient of variation
    1/sqrt(b); b = 1 is a Poisson process), without it they are all equal. The same seed gives the same pattern at
    every rate, only faster or slower.
    """
    if arrivals.burstiness is None:
        gaps = np.ones(count)
    else:
        shape = arrivals.burstiness
        gaps = np.random.default_rng([seed, 0xA221]).gamma(shape, 1.0 / shape, size=count)
    return tuple(float(offset) for offset in np.cumsum(gaps) / arrivals.rate_per_s)


def closed_loop_offsets(arrivals: ClosedLoop, seed: int) -> tuple[float, ...]:
    """Return when each of the clients sends its first request, in seconds from the start of the run, ascending.

    Clients that all start at once stay in step for the whole run and measure the wave instead of the server, so their
    starts are spread: 10 ms a client, 5 s at most, jittered within each client's own slice.
    """
    clients = arrivals.concurrency
    if clients == 1:
        return (0.0,)
    slice_s = min(STAGGER_S_PER_CLIENT, STAGGER_LIMIT_S / clients)
    jitter = np.random.default_rng([seed, 0xC105]).uniform(0.0, 1.0, size=clients)
    jitter[0] = 0.0
    return tuple(float(offset) for offset in (np.arange(clients) + jitter) * slice_s)
