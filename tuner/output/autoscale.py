"""When to add a replica: requests in flight, from what was measured, never CPU or GPU utilisation.

One replica's share of the load at the SLO's knee is known by measurement; a replica is added before it is reached.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tuner.domain.plan import Arm, Plan
from tuner.domain.workload import Arrivals, ClosedLoop, OpenLoop, Sessions
from tuner.facts.signals import Signals, signals
from tuner.output import numbers

HEADROOM = 0.8
"""Share of the measured load at which the next replica is asked for: it takes a start until that helps."""
MAX_REPLICAS = 4
SETTLE_S = 300


class Threshold(NamedTuple):
    """Requests in flight per replica at which another is wanted, and where the number comes from."""

    in_flight: int
    why: str


def most_replicas(plan: Plan) -> int:
    """Return the upper bound of an autoscaler, which is not measured: some times what fills the machine."""
    return MAX_REPLICAS * plan.sizing.replicas


def plan_signals(plan: Plan) -> Signals | None:
    """Return the metric names of the plan's server; None when it shows none that are known."""
    return signals(plan.config.engine, plan.config.version, plan.launch.metrics_path)


def signals_refusal(plan: Plan) -> str | None:
    """Say why the server cannot be watched by Prometheus; None when it can."""
    if plan_signals(plan) is not None:
        return None
    engine = f"{plan.config.engine} {plan.config.version}"
    return f"no Prometheus metrics are known at {plan.launch.metrics_path} of {engine}"


def threshold(plan: Plan) -> Threshold | None:
    """Return the threshold of the autoscaler; None when nothing was measured that keeps the SLO."""
    if not plan.measured:
        return None
    knee = plan.sizing.knee_in_flight
    if knee is not None:
        return _of(knee, f"{knee:g} requests in flight at the highest load that kept the SLO (MEASURED)")
    arm = numbers.deployed_arm(plan)
    row = numbers.deployed_trial(plan)
    kept = arm.meets_slo if arm is not None else bool(row and row.meets_slo)
    if not kept:
        return None
    return _from_arrivals(plan.study.workload.arrivals, arm, plan.sizing.replicas)


def _from_arrivals(arrivals: Arrivals, arm: Arm | None, replicas: int) -> Threshold | None:
    """Return the threshold of one replica, which was measured under its share of the load."""
    share = f" over {replicas} replicas" if replicas > 1 else ""
    no_sweep = "the only load that was measured and kept the SLO; `llmtune bench --sweep` finds the highest"
    match arrivals:
        case ClosedLoop():
            return _of(arrivals.concurrency / replicas, f"{arrivals.concurrency} clients{share}, {no_sweep}")
        case Sessions():
            return _of(arrivals.users / replicas, f"{arrivals.users} users{share}, {no_sweep}")
        case OpenLoop():
            latency_s = _mean_latency_s(arm)
            found = arrivals.rate_per_s / replicas * (latency_s or 0)
            return None if latency_s is None else _of(
                found, f"{arrivals.rate_per_s:g} requests/s{share} x {latency_s:.3g} s mean latency "
                f"= {found:.3g} in flight (Little's law), {no_sweep}")
        case _:
            return None


def requests_per_s(plan: Plan) -> float | None:
    """Return the requests/s that one replica may be given: 80 % of what was measured; None when nothing was."""
    arm = numbers.deployed_arm(plan) if plan.measured else None
    if arm is None:
        return None
    taken = [run.goodput_per_s or run.requests_per_s for run in arm.rounds]
    if not taken or not arm.meets_slo:
        return None
    rate = HEADROOM * sum(estimate.value for estimate in taken) / len(taken)
    return float(f"{rate:.3g}")


def selector(plan: Plan, found: Signals, *more: str) -> str:
    """Return the label matchers of this plan's model in PromQL, without braces."""
    return ", ".join((*more, f'{found.model_label}="{promql(plan.launch.served_name)}"'))


def in_flight_query(plan: Plan, found: Signals, *more: str) -> str:
    """Return the PromQL of requests in flight over all replicas of this model: always one series."""
    where = selector(plan, found, *more)
    return f"sum({found.running}{{{where}}}) + sum({found.waiting}{{{where}}})"


def promql(text: str) -> str:
    """Escape for a double-quoted string of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(ch if ch.isprintable() else _escape(ch) for ch in escaped)


def _of(measured: float, why: str) -> Threshold:
    return Threshold(max(1, math.floor(HEADROOM * measured)), f"{HEADROOM:.0%} of {why}")


def _mean_latency_s(arm: Arm | None) -> float | None:
    taken = [run.e2e_ms.mean.value for run in arm.rounds if run.e2e_ms is not None] if arm is not None else []
    return sum(taken) / len(taken) / 1000 if taken else None


def _escape(ch: str) -> str:
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return named.get(ch) or (f"\\u{ord(ch):04x}" if ord(ch) < 0x10000 else f"\\U{ord(ch):08x}")
