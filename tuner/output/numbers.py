"""The numbers of a plan as rows of estimates, the same ones for headers and reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tuner.domain.plan import Arm, Plan, TrialRow
from tuner.domain.trial import Estimate, LatencySummary, Measurement
from tuner.output.words import OBJECTIVES

_LATENCIES = {"ttft": "TTFT", "itl": "ITL", "tpot": "TPOT", "e2e": "end-to-end latency"}
_SHOWN = (
    ("ttft", "p50"), ("ttft", "p95"), ("ttft", "p99"), ("itl", "p50"), ("itl", "p95"), ("itl", "p99"),
    ("tpot", "p95"), ("e2e", "p95"),
)


class Reading(NamedTuple):
    """One metric of one arm. `estimate` is None when it was not taken; `rounds` says over how many runs."""

    name: str
    unit: str
    estimate: Estimate | None
    rounds: int

    @property
    def text(self) -> str:
        """Value, interval, unit, n and rounds; `-` when it was not taken."""
        if self.estimate is None:
            return "-"
        return f"{self.estimate.format(self.unit)}, n={self.estimate.n}, {count(self.rounds, 'round')}"


def label(plan: Plan) -> str:
    """Return the word that stands before every performance number of this plan."""
    return "MEASURED" if plan.measured else "PREDICTED"


def start_label(plan: Plan) -> str:
    """Return the word that stands before the start time."""
    return "MEASURED" if plan.measured and plan.sizing.start_n else "PREDICTED"


def start_words(plan: Plan) -> str:
    """Say how long a start took, and out of how many starts."""
    if plan.sizing.start_n:
        return f"start {plan.sizing.start_s:.1f} s, the longest of {plan.sizing.start_n}"
    return f"start {plan.sizing.start_s:.0f} s"


def replica_words(plan: Plan) -> str:
    """Say how many servers the numbers are of, and what each of them has; for a plan of several."""
    replicas, devices = plan.sizing.replicas, plan.launch.devices
    share = f", each with {count(devices, 'GPU')}" if devices else ""
    return (f"{replicas} servers fill the hardware{share}. The objective is of all of them together; one was measured "
            f"under its share of the load, and other metrics are of one.")


def deployed_arm(plan: Plan) -> Arm | None:
    """Return the verified arm whose configuration is deployed."""
    return next((arm for arm in plan.arms if arm.config.key == plan.config.key), None)


def reference_arm(plan: Plan) -> Arm | None:
    """Return the arm that the deployed one was compared with; None when that is itself or was never measured."""
    found = next((arm for arm in plan.arms if arm.label == plan.verdict.reference), None)
    return None if found is not None and found.config.key == plan.config.key else found


def arms(plan: Plan) -> list[Arm]:
    """Return all arms, the reference first and the deployed one next."""
    first = [arm for arm in (reference_arm(plan), deployed_arm(plan)) if arm is not None]
    return first + [arm for arm in plan.arms if arm not in first]


def deployed_trial(plan: Plan) -> TrialRow | None:
    """Return the best scored trial of the deployed configuration, for a plan that was not verified."""
    rows = [row for row in plan.trials if row.key == plan.config.key and row.score is not None]
    return rows[-1] if rows else None


def score_reading(plan: Plan, arm: Arm) -> Reading:
    """Return the objective of an arm over all its rounds."""
    name, unit = OBJECTIVES[plan.study.objective]
    return Reading(name, unit, arm.score, len(arm.rounds))


def readings(plan: Plan, arm: Arm) -> tuple[Reading, ...]:
    """Return every metric of an arm, the objective first, then throughput, the SLO and latencies."""
    rounds = arm.rounds
    found = [
        score_reading(plan, arm),
        _over("output throughput", "tokens/s", [run.output_tokens_per_s for run in rounds]),
        _over("request throughput", "requests/s", [run.requests_per_s for run in rounds]),
        _over("goodput within the SLO", "requests/s", [run.goodput_per_s for run in rounds]),
    ]
    found += limit_readings(plan, arm)
    found += [
        _over(f"{stat} {_LATENCIES[metric]}", "ms", [_latency(run, metric, stat) for run in rounds])
        for metric, stat in _SHOWN
    ]
    unique: dict[str, Reading] = {}
    for reading in found:
        unique.setdefault(reading.name, reading)
    return tuple(unique.values())


def limit_readings(plan: Plan, arm: Arm) -> list[Reading]:
    """Return what each limit of the SLO came to, named by the limit."""
    found = []
    for limit in plan.study.slo.limits:
        taken = [run.limits.get(limit.text) for run in arm.rounds]
        if limit.metric == "error_rate":
            taken = [None if share is None else _percent(share) for share in taken]
        found.append(_over(f"limit {limit.text}", "%" if limit.metric == "error_rate" else "ms", taken))
    return found


def over_rounds(estimates: Sequence[Estimate]) -> Estimate:
    """Return the mean of several rounds' estimates with the interval that holds all of theirs; `n` adds up.

    Wider than a pooled interval on purpose: rounds are fresh servers, and their spread must stay visible.
    """
    values = [estimate.value for estimate in estimates]
    return Estimate(
        value=sum(values) / len(values),
        low=min(estimate.low for estimate in estimates),
        high=max(estimate.high for estimate in estimates),
        n=sum(estimate.n for estimate in estimates),
    )


def count(number: int, noun: str) -> str:
    """`1 round`, `3 rounds`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _over(name: str, unit: str, estimates: Iterable[Estimate | None]) -> Reading:
    taken = [estimate for estimate in estimates if estimate is not None]
    return Reading(name, unit, over_rounds(taken) if taken else None, len(taken))


def _percent(share: Estimate) -> Estimate:
    return Estimate(value=share.value * 100, low=share.low * 100, high=share.high * 100, n=share.n)


def _latency(run: Measurement, metric: str, stat: str) -> Estimate | None:
    summary: LatencySummary | None = getattr(run, f"{metric}_ms")
    estimate: Estimate | None = None if summary is None else getattr(summary, stat)
    return estimate
