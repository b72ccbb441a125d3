"""Load levels: a workload at another load, and what a level came to."""

from __future__ import annotations

import math

from tuner.domain.slo import Slo
from tuner.domain.study import Objective
from tuner.domain.trial import LoadPoint, Measurement, Warn
from tuner.domain.workload import ClosedLoop, OpenLoop, Workload
from tuner.measure.objective import meets

LEAST_REQUESTS = 24
ROUNDS = 4
"""Requests that each client of a closed loop sends at least."""
LEVEL_S = 15.0
"""How long a level of an open loop lasts where the workload's own rate does not say."""
SWEEP = (0.25, 0.5, 2.0)
"""Levels of a load curve, as shares of the workload's own, which is measured anyway."""


def at_clients(workload: Workload, clients: int) -> Workload:
    """Return the workload as a closed loop of so many clients, with requests in proportion."""
    own = workload.arrivals.concurrency if isinstance(workload.arrivals, ClosedLoop) else 0
    requests = math.ceil(workload.requests * clients / own) if own else 0
    return workload.model_copy(update={
        "arrivals": ClosedLoop(concurrency=clients),
        "requests": max(LEAST_REQUESTS, ROUNDS * clients, min(requests, workload.requests * 4)),
        "warmup_requests": clients,
    })


def at_rate(workload: Workload, rate: float) -> Workload:
    """Return the workload as an open loop at this rate, for as long as at its own rate."""
    own = workload.arrivals if isinstance(workload.arrivals, OpenLoop) else None
    seconds = workload.requests / own.rate_per_s if own else LEVEL_S
    return workload.model_copy(update={
        "arrivals": OpenLoop(rate_per_s=rate, burstiness=own.burstiness if own else 1.0),
        "requests": max(LEAST_REQUESTS, round(rate * seconds)),
    })


def first_level(workload: Workload, objective: Objective) -> float:
    """Return where the search for the highest load begins: the workload's own level, else one client or request."""
    arrivals = workload.arrivals
    if objective == "max_concurrency":
        return float(arrivals.concurrency) if isinstance(arrivals, ClosedLoop) else 1.0
    return arrivals.rate_per_s if isinstance(arrivals, OpenLoop) else 1.0


def sweep(workload: Workload) -> list[Workload]:
    """Return the levels of a load curve beside the workload's own; none for arrivals that are not one number."""
    arrivals = workload.arrivals
    match arrivals:
        case ClosedLoop(concurrency=clients):
            counts = sorted({max(1, round(share * clients)) for share in SWEEP} - {clients})
            return [at_clients(workload, count) for count in counts]
        case OpenLoop(rate_per_s=rate):
            return [at_rate(workload, share * rate) for share in SWEEP]
        case _:
            return []


def load_point(measurement: Measurement, workload: Workload, slo: Slo, note: str = "") -> LoadPoint:
    """Sum up one level. A queue that grows keeps no SLO, whatever the latencies of a short run are."""
    arrivals, e2e = workload.arrivals, measurement.e2e_ms
    saturated = any(warning.kind is Warn.SATURATED for warning in measurement.warnings)
    return LoadPoint(
        clients=arrivals.concurrency if isinstance(arrivals, ClosedLoop) else None,
        rate_per_s=arrivals.rate_per_s if isinstance(arrivals, OpenLoop) else None,
        in_flight=measurement.requests_per_s.value * e2e.mean.value / 1000 if e2e else 0.0,
        requests=measurement.requests,
        output_tokens_per_s=measurement.output_tokens_per_s,
        requests_per_s=measurement.requests_per_s,
        p95_ttft_ms=measurement.ttft_ms.p95 if measurement.ttft_ms else None,
        p95_itl_ms=measurement.itl_ms.p95 if measurement.itl_ms else None,
        limits=measurement.limits,
        meets_slo=meets(measurement, slo) and not saturated and not note,
        note=note or ("the queue grows" if saturated else ""),
    )
