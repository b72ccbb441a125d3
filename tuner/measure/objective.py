"""What a study optimises, and what it must keep."""

from __future__ import annotations

from typing import Literal, assert_never

from tuner.domain.slo import Limit, Slo
from tuner.domain.study import KNEES, Objective
from tuner.domain.trial import Estimate, LatencySummary, Measurement, Warn
from tuner.errors import NothingMeasuredError

IMPLIED_ERROR_RATE = Limit(metric="error_rate", percentile=None, maximum=0.01)
"""Joins every SLO that says nothing of errors: latencies of the answers that survived prove little."""

NO_SAMPLES = 10.0
"""The violation of a limit that has no sample because nothing was answered: ten times over."""


def direction(objective: Objective) -> Literal["maximize", "minimize"]:
    """Return which way is better."""
    return "maximize" if objective.endswith("_per_s") or objective in KNEES else "minimize"


def score(
    measurement: Measurement, objective: Objective, *, replicas: int = 1, dollars_per_hour: float | None = None
) -> Estimate:
    """Return the objective's value for a machine that holds `replicas` servers like the measured one.

    Rates and load levels are those of all replicas together, so that a server that takes more GPUs does not look
    better for it; latencies and energy per token are those of each. `dollars_per_hour` is the price of the machine.
    Goodput without an SLO is the request rate.

    Raises:
        NothingMeasuredError: when no answer gave the metric a sample, or a price or a power reading is missing.

    """
    found = _score(measurement, objective, dollars_per_hour)
    if objective == "cost_per_mtok":
        return _times(found, 1 / replicas)
    return _times(found, replicas) if direction(objective) == "maximize" else found


def _times(found: Estimate, factor: float) -> Estimate:
    if factor == 1:
        return found
    return Estimate(value=found.value * factor, low=found.low * factor, high=found.high * factor, n=found.n)


def _score(  # noqa: C901, PLR0911, PLR0912  (one case an objective)
    measurement: Measurement, objective: Objective, dollars_per_hour: float | None
) -> Estimate:
    match objective:
        case "output_tokens_per_s":
            return measurement.output_tokens_per_s
        case "requests_per_s":
            return measurement.requests_per_s
        case "goodput_per_s":
            return measurement.goodput_per_s or measurement.requests_per_s
        case "max_concurrency" | "max_rate":
            if measurement.knee is None:
                raise NothingMeasuredError("no load levels were run", hint="an objective of load levels needs a search")
            return measurement.knee
        case "cost_per_mtok":
            return _cost(measurement.output_tokens_per_s, dollars_per_hour)
        case "joules_per_token":
            if measurement.joules_per_token is None:
                raise NothingMeasuredError("the power of the devices cannot be read", hint="choose another --objective")
            return measurement.joules_per_token
        case "p95_ttft":
            return _latency(measurement.ttft_ms, objective).p95
        case "p95_itl":
            return _latency(measurement.itl_ms, objective).p95
        case "p95_e2e":
            return _latency(measurement.e2e_ms, objective).p95
        case "mean_e2e":
            return _latency(measurement.e2e_ms, objective).mean
        case _:
            assert_never(objective)


def slo_violations(measurement: Measurement, slo: Slo) -> dict[str, float]:
    """Return by how much each limit is missed, as value/limit - 1: above zero is a violation.

    An SLO without a limit on errors gets one of 1 %. A limit of zero errors counts in per mille.
    """
    if not slo.limits:
        return {}
    limits = list(slo.limits)
    if all(limit.metric != "error_rate" for limit in limits):
        limits.append(IMPLIED_ERROR_RATE)
    return {limit.text: _violation(measurement, limit) for limit in limits}


def meets(measurement: Measurement, slo: Slo) -> bool:
    """Whether every limit holds (by the measured values; their intervals say how sure that is).

    While a queue grows, a latency is that of the moment: it will pass any limit, and keeps none.
    """
    of_latency = any(limit.metric != "error_rate" for limit in slo.limits)
    if of_latency and any(warning.kind is Warn.SATURATED for warning in measurement.warnings):
        return False
    return all(violation <= 0 for violation in slo_violations(measurement, slo).values())


def _violation(measurement: Measurement, limit: Limit) -> float:
    if limit.metric == "error_rate":
        rate = measurement.failed / max(1, measurement.requests)
        if limit.group:
            group = measurement.groups.get(limit.group)
            rate = group.failed / max(1, group.requests) if group else 0.0
        if limit.maximum == 0:
            return rate * 1000 if rate > 0 else -1.0
        return rate / limit.maximum - 1
    found = measurement.limits.get(limit.text)
    return NO_SAMPLES if found is None else found.value / limit.maximum - 1


def _cost(rate: Estimate, dollars_per_hour: float | None) -> Estimate:
    """USD per million output tokens of a machine that costs this much an hour and is always busy."""
    if dollars_per_hour is None:
        raise NothingMeasuredError("no price is known for this machine", hint="say --price, in USD per GPU and hour")
    if rate.low <= 0:
        raise NothingMeasuredError("the throughput cannot be told from zero", hint="measure for longer: --requests")
    value, low, high = (dollars_per_hour / 3600 * 1e6 / one for one in (rate.value, rate.high, rate.low))
    return Estimate(value=value, low=low, high=high, n=rate.n)


def _latency(summary: LatencySummary | None, objective: str) -> LatencySummary:
    if summary is None:
        raise NothingMeasuredError(f"no answer gave a sample for {objective}",
                                   hint="look at the errors of the run; answers of one token have no gaps")
    return summary
