"""When requests are sent: pure and seeded, so that every trial of a study meets the same arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from tuner.domain.workload import Arrivals, ClosedLoop, OpenLoop, RateProfile, Sessions, Trace
from tuner.load.prompts import Request

STAGGER_S_PER_CLIENT = 0.01
STAGGER_LIMIT_S = 5.0
OPEN_CONNECTIONS_S = 4.0
LEAST_OPEN_CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class Schedule:
    """When to send, in seconds from the start of the run.

    Either `clients` holds the moment at which each client begins (it then sends one request after the other), or
    `times` holds the moment of every request. `connections` are opened beforehand.
    """

    clients: tuple[float, ...] = ()
    times: tuple[float, ...] = ()
    connections: int = 0

    @property
    def open_loop(self) -> bool:
        """Whether requests are sent by the clock and not by the answers."""
        return bool(self.times)


def schedule(arrivals: Arrivals, requests: Sequence[Request], seed: int) -> Schedule:
    """Return when each request, or each client, of this workload begins."""
    count = len(requests)
    match arrivals:
        case ClosedLoop(concurrency=clients, ramp_s=ramp_s):
            return Schedule(clients=client_offsets(clients, seed, ramp_s), connections=min(clients, count))
        case Sessions(users=users):
            return Schedule(clients=client_offsets(users, seed, None), connections=min(users, count))
        case OpenLoop():
            return _by_the_clock(open_loop_offsets(arrivals, count, seed))
        case RateProfile():
            return _by_the_clock(profile_offsets(arrivals, count, seed))
        case Trace():
            return _by_the_clock(tuple(request.at_s for request in requests))
        case _:
            assert_never(arrivals)


def split(
    whole: Schedule, requests: Sequence[Request], parts: int
) -> list[tuple[Schedule, list[Request]]]:
    """Deal clients, times and requests out to `parts` processes, so that each has a fair share of every moment.

    Requests of one session stay together. There are never more parts than clients or times.
    """
    parts = max(1, min(parts, len(whole.clients) or len(whole.times)))
    if whole.open_loop:
        return [
            (Schedule(times=whole.times[part::parts], connections=-(-whole.connections // parts)),
             list(requests[part::parts]))
            for part in range(parts)
        ]
    dealt: list[list[Request]] = [[] for _ in range(parts)]
    for session in by_session(requests):
        min(dealt, key=len).extend(session)
    return [
        (Schedule(clients=whole.clients[part::parts], connections=-(-whole.connections // parts)), own)
        for part, own in enumerate(dealt)
    ]


def by_session(requests: Sequence[Request]) -> list[list[Request]]:
    """Return the requests of each session in turn order; a request without a session is one of its own."""
    sessions: list[list[Request]] = []
    place: dict[str, int] = {}
    for request in requests:
        if request.session and request.session in place:
            sessions[place[request.session]].append(request)
            continue
        if request.session:
            place[request.session] = len(sessions)
        sessions.append([request])
    return sessions


def open_loop_offsets(arrivals: OpenLoop, count: int, seed: int) -> tuple[float, ...]:
    """Return `count` send times in seconds from the start of the run, ascending.

    Gaps have mean 1/rate. With `burstiness` b they are gamma distributed with shape b (coefficient of variation
    1/sqrt(b); b = 1 is a Poisson process), without it they are all equal. The same seed gives the same pattern at
    every rate, only faster or slower.
    """
    return tuple((_unit_times(arrivals.burstiness, count, seed) / arrivals.rate_per_s).tolist())


def profile_offsets(arrivals: RateProfile, count: int, seed: int) -> tuple[float, ...]:
    """Return `count` send times whose rate follows the profile, ascending.

    A process of rate 1 is stretched by the inverse of the cumulated rate, which is exact for a Poisson process and
    keeps the burstiness otherwise.
    """
    wanted = _unit_times(arrivals.burstiness, count, seed)
    times = np.array([0.0, *(point.at_s for point in arrivals.points)])
    rates = np.array([arrivals.points[0].rate_per_s, *(point.rate_per_s for point in arrivals.points)])
    expected = np.concatenate([[0.0], np.cumsum(np.diff(times) * (rates[1:] + rates[:-1]) / 2)])
    found = np.empty(count)
    beyond = wanted >= expected[-1]
    found[beyond] = times[-1] + (wanted[beyond] - expected[-1]) / rates[-1]
    inside = np.flatnonzero(~beyond)
    piece = np.searchsorted(expected, wanted[inside], side="right") - 1
    left = wanted[inside] - expected[piece]
    slope = (rates[piece + 1] - rates[piece]) / (times[piece + 1] - times[piece])
    root = np.sqrt(rates[piece] ** 2 + 2 * slope * left)
    found[inside] = times[piece] + 2 * left / (rates[piece] + root)  # stable also for a slope of zero
    return tuple(found.tolist())


def client_offsets(clients: int, seed: int, ramp_s: float | None) -> tuple[float, ...]:
    """Return when each of the clients sends its first request, in seconds from the start of the run, ascending.

    Clients that all start at once stay in step for the whole run and measure the wave instead of the server, so their
    starts are spread over the ramp, jittered within each client's own slice.
    """
    if clients == 1:
        return (0.0,)
    slice_s = min(STAGGER_S_PER_CLIENT, STAGGER_LIMIT_S / clients) if ramp_s is None else ramp_s / clients
    jitter = np.random.default_rng([seed, 0xC105]).uniform(0.0, 1.0, size=clients)
    jitter[0] = 0.0
    return tuple(((np.arange(clients) + jitter) * slice_s).tolist())


def _unit_times(burstiness: float | None, count: int, seed: int) -> NDArray[np.float64]:
    if burstiness is None:
        return np.arange(1.0, count + 1)
    gaps = np.random.default_rng([seed, 0xA221]).gamma(burstiness, 1.0 / burstiness, size=count)
    return np.cumsum(gaps)


def _by_the_clock(times: tuple[float, ...]) -> Schedule:
    """Open enough connections beforehand for what comes in the busiest four seconds, if all of it is under way."""
    ascending = np.sort(np.array(times))
    busiest = np.searchsorted(ascending, ascending + OPEN_CONNECTIONS_S) - np.arange(ascending.size)
    most = int(busiest.max()) if busiest.size else 0
    return Schedule(times=times, connections=min(len(times), max(LEAST_OPEN_CONNECTIONS, most)))
