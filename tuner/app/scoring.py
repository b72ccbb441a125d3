"""What a configuration is worth to this study's machine: replicas that fill it, their share of the load, their score.

One server of a configuration is measured under the share of the load that it would get if the machine were filled with
its like, and rates count for all of them together. So a setting that takes more devices is compared fairly with one
that takes fewer: tensor parallel 8 once against tensor parallel 2 four times.
"""

from __future__ import annotations

import math

from tuner.domain.engine import EngineConfig
from tuner.domain.study import Objective, StudySpec
from tuner.domain.trial import Estimate, Measurement
from tuner.domain.workload import ClosedLoop, OpenLoop, RateProfile, Sessions, Trace, Workload
from tuner.engines import ENGINES
from tuner.measure.objective import direction, score

LEAST_REQUESTS = 32


def replicas(spec: StudySpec, config: EngineConfig) -> int:
    """Return how many servers of this configuration the machine's devices hold, at least one.

    A trace cannot be shared out, so it always goes to one server.
    """
    if isinstance(spec.workload.arrivals, Trace):
        return 1
    devices = ENGINES[config.engine].footprint(spec.model, config).devices
    return max(1, spec.hardware.devices // max(1, devices))


def shared_workload(workload: Workload, replicas: int) -> Workload:
    """Return the share of the load that each of so many servers gets; they are told apart by chance, so equally."""
    if replicas <= 1:
        return workload
    arrivals = workload.arrivals
    least = LEAST_REQUESTS
    match arrivals:
        case ClosedLoop(concurrency=clients):
            share = math.ceil(clients / replicas)
            arrivals, least = arrivals.model_copy(update={"concurrency": share}), max(LEAST_REQUESTS, 4 * share)
        case OpenLoop(rate_per_s=rate):
            arrivals = arrivals.model_copy(update={"rate_per_s": rate / replicas})
        case Sessions(users=users):
            arrivals = arrivals.model_copy(update={"users": math.ceil(users / replicas)})
        case RateProfile(points=points):
            thinner = tuple(point.model_copy(update={"rate_per_s": point.rate_per_s / replicas}) for point in points)
            arrivals = arrivals.model_copy(update={"points": thinner})
        case Trace():
            return workload
    return workload.model_copy(update={
        "arrivals": arrivals,
        "requests": min(workload.requests, max(least, math.ceil(workload.requests / replicas))),
        "warmup_requests": math.ceil(workload.warmup_requests / replicas),
    })


def scored(
    spec: StudySpec, config: EngineConfig, measurement: Measurement, objective: Objective | None = None
) -> Estimate:
    """Return the study's objective (or another one) for the whole machine.

    Raises:
        NothingMeasuredError: when the measurement holds no value for it.

    """
    price = spec.price_per_hour
    return score(
        measurement,
        objective or spec.objective,
        replicas=replicas(spec, config),
        dollars_per_hour=None if price is None else price * max(1, spec.hardware.devices),
    )


def better(spec: StudySpec, one: float, other: float) -> bool:
    """Whether one value of the study's objective is better than another."""
    return one > other if direction(spec.objective) == "maximize" else one < other
