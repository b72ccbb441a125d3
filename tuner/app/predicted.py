"""What the predictor takes and gives: loads, and numbers with ranges. Every number is PREDICTED."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from tuner.capacity.jobs import Simulated
from tuner.capacity.reading import Reading
from tuner.domain.record import Record
from tuner.domain.slo import Limit, Slo
from tuner.domain.study import StudySpec
from tuner.domain.trial import LatencySummary, Measured
from tuner.domain.workload import ClosedLoop, OpenLoop, Workload

METRICS = ("output_tokens_per_s", "requests_per_s", "p95_ttft", "p95_itl", "p95_e2e", "mean_e2e")
"""Those that the predictor keeps a record of its errors for; times in ms."""
_FAMILY = {"ttft": "p95_ttft", "itl": "p95_itl", "tpot": "p95_itl", "e2e": "p95_e2e"}


class Ranged(Record):
    """A PREDICTED number with the range that 8 of 10 measurements fall into, by the predictor's own record."""

    value: float
    low: float
    high: float


class Predicted(Record):
    """PREDICTED numbers of one trial. Times in ms, rates a second."""

    values: dict[str, Ranged]
    """By the names of objectives: output_tokens_per_s, requests_per_s, goodput_per_s, p95_ttft, p95_itl, p95_e2e,
    mean_e2e, and cost_per_mtok where the study has a price."""
    limits: dict[str, Ranged]
    """What each limit of the SLO comes to, by `Limit.text`."""
    slo: Literal["meets", "misses", "unsure"]
    """`misses` only when the whole range of some limit lies above it, `meets` when all ranges lie below."""
    meets_slo: bool
    """By the values alone, without their ranges."""
    trials: int
    """Measured trials behind it."""

    def objective(self, name: str) -> Ranged | None:
        """Return the value of an objective, None for one that is not predicted (levels, energy)."""
        return self.values.get(name)


class Loaded(NamedTuple):
    """A load level: clients of a closed loop or requests a second; neither: the study's own arrivals."""

    clients: int | None = None
    rate_per_s: float | None = None
    requests: int | None = None

    def on(self, workload: Workload) -> Workload:
        """Return the workload at this level."""
        changed: dict[str, object] = {}
        if self.requests is not None:
            changed["requests"] = max(self.requests, 3 * (self.clients or 1))
        if self.clients is not None:
            changed |= {"arrivals": ClosedLoop(concurrency=self.clients),
                        "warmup_requests": max(self.clients, workload.warmup_requests)}
        elif self.rate_per_s is not None:
            changed["arrivals"] = OpenLoop(rate_per_s=self.rate_per_s)
        return workload.model_copy(update=changed) if changed else workload


def loads_of(
    outcome: Measured, workload: Workload, share: Loaded | None = None
) -> list[tuple[Loaded, dict[str, float]]]:
    """Return what a trial measured: at its share of the study's load, and at all other levels of the same start."""
    share = share or Loaded()
    found = outcome.measurement
    row = {"output_tokens_per_s": found.output_tokens_per_s.value, "requests_per_s": found.requests_per_s.value}
    for name in ("ttft", "itl", "e2e"):
        summary: LatencySummary | None = getattr(found, f"{name}_ms")
        if summary is not None:
            row |= {f"{stat}_{name}": getattr(summary, stat).value for stat in ("mean", "p50", "p95")}
    rows = [(share, row)] if row["output_tokens_per_s"] > 0 and "mean_ttft" in row else []
    own = workload.arrivals
    for point in outcome.levels:
        if isinstance(own, ClosedLoop) and point.clients == (share.clients or own.concurrency):
            continue
        level = {"output_tokens_per_s": point.output_tokens_per_s.value, "requests_per_s": point.requests_per_s.value}
        level |= {"p95_ttft": point.p95_ttft_ms.value} if point.p95_ttft_ms else {}
        level |= {"p95_itl": point.p95_itl_ms.value} if point.p95_itl_ms else {}
        rows.append((Loaded(point.clients, point.rate_per_s, point.requests), level))
    return rows


def predicted_of(
    reading: Reading, done: Simulated, spec: StudySpec, band: Callable[[str], float], trials: int
) -> Predicted:
    """Put ranges around a reading, and judge it by the study's limits."""
    plain = {
        "output_tokens_per_s": reading.output_tokens_per_s, "requests_per_s": reading.requests_per_s,
        "p95_ttft": reading.ttft_ms.get("p95"), "p95_itl": reading.itl_ms.get("p95"),
        "p95_e2e": reading.e2e_ms.get("p95"), "mean_e2e": reading.e2e_ms.get("mean"),
    }
    values = {name: ranged(value, band(name)) for name, value in plain.items() if value is not None}
    if spec.slo.limits:
        rate = reading.requests_per_s * good_share(done, spec.slo)
        values["goodput_per_s"] = ranged(rate, band("requests_per_s") + band("p95_ttft"))
    if spec.price_per_hour and reading.output_tokens_per_s > 0:
        devices = max(1, len(spec.hardware.gpus))
        cost = spec.price_per_hour * devices / (reading.output_tokens_per_s * 3600) * 1e6
        values["cost_per_mtok"] = ranged(cost, band("output_tokens_per_s"))
    limits, verdicts, good = {}, [], True
    for limit in spec.slo.limits:
        value = limit_value(limit, reading, done)
        if value is None:
            continue
        found = ranged(value, band(_FAMILY.get(limit.metric, "p95_e2e")))
        limits[limit.text] = found
        good = good and value <= limit.maximum
        over, under = found.low > limit.maximum, found.high <= limit.maximum
        verdicts.append("misses" if over else "meets" if under else "unsure")
    slo: Literal["meets", "misses", "unsure"] = "meets"
    if "misses" in verdicts:
        slo = "misses"
    elif "unsure" in verdicts:
        slo = "unsure"
    return Predicted(values=values, limits=limits, slo=slo, meets_slo=good, trials=trials)


def ranged(value: float, half: float) -> Ranged:
    """Return a value with a range of so much of a logarithm on both sides."""
    return Ranged(value=value, low=value * math.exp(-half), high=value * math.exp(half))


def limit_value(limit: Limit, reading: Reading, done: Simulated) -> float | None:
    """Return what a limit of the SLO comes to; None for error rates, which are not predicted."""
    if limit.metric == "error_rate":
        return None
    known: dict[str, float] = getattr(reading, f"{limit.metric}_ms")
    name = "mean" if limit.percentile is None else f"p{limit.percentile:g}"
    if name in known:
        return known[name]
    if limit.metric == "itl":
        return done.itl(limit.percentile or 50.0) * 1e3
    values = {"ttft": done.ttft, "tpot": done.tpot, "e2e": done.e2e}[limit.metric] * 1e3
    return float(np.percentile(values, limit.percentile or 50.0)) if values.size else None


def good_share(done: Simulated, slo: Slo) -> float:
    """Return the share of requests that keep every latency limit by themselves."""
    good = np.ones(done.end.size, dtype=bool)
    tpot = (done.end - done.first) / np.maximum(1, done.output - 1) * 1e3
    for limit in slo.limits:
        if limit.metric == "itl":
            own = done.itl_of_requests(limit.percentile) * 1e3
            good &= ~(own > limit.maximum)
        elif limit.metric != "error_rate":
            good &= {"ttft": done.ttft * 1e3, "e2e": done.e2e * 1e3, "tpot": tpot}[limit.metric] <= limit.maximum
    return float(good.mean()) if good.size else 0.0


def text_of(errors: Mapping[str, Sequence[float]], trials: int) -> str:
    """Say how well predictions made before the trials did."""
    parts = []
    for name in ("output_tokens_per_s", "p95_ttft", "p95_itl"):
        found = np.abs(np.exp(np.array(errors.get(name, ()))) - 1)
        if found.size:
            parts.append(f"{name} {100 * float(np.median(found)):.0f} %")
    if not parts:
        return f"learnt from {trials} trials; none was predicted before it ran"
    return f"median error of what was predicted before it ran ({trials} trials learnt from): {', '.join(parts)}"
