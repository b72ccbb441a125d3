"""What a configuration does under the load: the highest rate within the limits, and every number at the asked one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.app.calibration import Calibration
from tuner.app.plan_ask import Question
from tuner.app.plan_candidates import Candidate, Traffic
from tuner.capacity.jobs import Bound, Job, Simulated
from tuner.capacity.simulate import simulate
from tuner.capacity.sizing import replicas_for
from tuner.domain.record import Record
from tuner.domain.slo import Limit, Slo
from tuner.errors import UsageError
from tuner.facts.read import data

_Values: TypeAlias = NDArray[np.float64]
_ROUNDS = 5
_LEAST, _MOST = 300, 480
_SETTLED = 0.1
_KEEPS_UP = 1.6
_FIRST, _WIDE, _NEAR = 0.65, 1.6, 1.2
"""Where the search begins, as a share of the closed form's rate; its first steps; those where a neighbour is known."""
_CLOSE = 1.1
"""Rates nearer to each other than this are not told apart: far less than the model's error."""
_UNKNOWN = 0.7
"""What stands for the distance outside the limits where it was not measured: about a factor of two."""
_REPLICAS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


class Predicted(Record):
    """PREDICTED numbers of one server under its share of the load. Times in ms."""

    ttft_ms: dict[str, float]
    itl_ms: dict[str, float]
    tpot_ms: dict[str, float]
    e2e_ms: dict[str, float]
    requests_per_s: float
    output_tokens_per_s: float
    tokens_per_s: float
    goodput_share: float
    running: float
    preemptions: int
    prefix_hit_share: float
    cache_peak_share: float
    keeps_up: bool
    limits: dict[str, float]
    """What each limit of the SLO comes to."""
    meets_slo: bool


class Band(Record):
    """Range of measured / predicted that holds 80 % of records which the fit did not see, and how many they are."""

    of: str
    low: float
    high: float
    mape: float
    records: int


@dataclass(frozen=True)
class Evaluated:
    """A candidate with its replicas."""

    candidate: Candidate
    capacity: float | None
    """Highest requests/s of one server within the limits; None for a closed loop."""
    replicas: int
    predicted: Predicted
    enough: bool
    """Whether the replicas serve the load within the limits, with the headroom."""

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.replicas * self.candidate.devices


def evaluate(question: Question, candidate: Candidate, traffic: Traffic, like: Evaluated | None = None) -> Evaluated:
    """Simulate a candidate and find its replicas; what was found for one `like` it saves time."""
    if question.rate is None:
        return _closed(question, candidate, traffic)
    count = _requests(candidate, traffic)
    capacity = _capacity(question, candidate, traffic, count, like)
    fixed = _fixed(question, candidate)
    replicas = fixed or (replicas_for(question.rate, capacity, question.headroom) if capacity else 1)
    each = question.rate / replicas
    predicted = _predict(question.slo, candidate, traffic.jobs[:count], each)
    enough = predicted.meets_slo and each <= capacity * (1 - question.headroom) * 1.001
    return Evaluated(candidate, capacity, replicas, predicted, enough)


def _closed(question: Question, candidate: Candidate, traffic: Traffic) -> Evaluated:
    clients = question.in_flight or 1
    fixed = _fixed(question, candidate)
    found: list[Evaluated] = []
    for replicas in (fixed,) if fixed else _REPLICAS:
        share = max(1, -(-clients // replicas))
        predicted = _predict(question.slo, candidate, traffic.clients(share))
        found.append(Evaluated(candidate, None, replicas, predicted, predicted.meets_slo))
        if predicted.meets_slo or share == 1:
            break
    return found[-1]


def _fixed(question: Question, candidate: Candidate) -> int | None:
    """Return how many servers the GPUs that are there make; None when as many are found as are needed."""
    count = question.counts.get(candidate.gpu.name)
    return count // candidate.devices if count else None


def _requests(candidate: Candidate, traffic: Traffic) -> int:
    """Return enough requests that several generations of the running ones pass."""
    return int(min(len(traffic.jobs), max(_LEAST, min(_MOST, 5 * candidate.in_flight))))


def _capacity(
    question: Question, candidate: Candidate, traffic: Traffic, count: int, like: Evaluated | None
) -> float:
    """Find the highest rate of one server within the limits, to a tenth at most; zero when there is none.

    It begins where the closed form says, as far off as that was for `like`. Once one rate is good and one is bad, each
    step goes where the limits' logarithms between them cross, kept away from both.
    """
    known = like.capacity / like.candidate.rate if like is not None and like.capacity and like.candidate.rate else None
    rate, wide = (known or _FIRST) * candidate.rate, _NEAR if known else _WIDE
    low, high, inside, outside = 0.0, math.inf, 0.0, _UNKNOWN
    for _ in range(_ROUNDS):
        worst = _worst(question.slo, candidate, traffic.jobs[:count], rate)
        if worst <= 0:
            low, inside = rate, worst
        else:
            high, outside = rate, worst
        if low and high / low < _CLOSE:
            break
        if not low:
            rate, wide = high / wide, _WIDE
        elif math.isinf(high):
            rate = low * wide
        else:
            share = inside / (inside - outside) if inside < 0 else 0.5
            rate = low * (high / low) ** min(0.7, max(0.3, share))
    return low


def _worst(slo: Slo, candidate: Candidate, jobs: Sequence[Job], pace: float) -> float:
    """Return ln(value / limit) of the limit that is nearest to its maximum, or furthest above, at this rate.

    A run that breaks a limit on the first token ends as soon as that is certain. A server that cannot keep up, or
    refuses, is outside whatever the limits say.
    """
    bound = _bound(slo, len(jobs))
    done = simulate(jobs, candidate.engine, candidate.step, pace, bound=bound)
    if bound is not None and bound.broken:
        return _UNKNOWN
    found = summarize(done, slo, jobs, candidate.engine.blocks)
    ratios = [math.log(max(1e-9, found.limits[limit.text]) / limit.maximum)
              for limit in slo.limits if limit.metric != "error_rate" and limit.maximum > 0]
    worst = max(ratios, default=-_UNKNOWN)
    return min(worst, 0.0) if found.meets_slo else max(worst, _UNKNOWN / 2)


def _bound(slo: Slo, requests: int) -> Bound | None:
    """Return the limit on the first token that is broken soonest, with one request to spare for interpolation."""
    counted = requests - int(_SETTLED * requests)
    found = [Bound(limit.maximum / 1e3, int(counted * (1 - limit.percentile / 100)) + 1, int(_SETTLED * requests))
             for limit in slo.limits if limit.metric == "ttft" and limit.percentile is not None]
    return min(found, key=lambda bound: bound.ttft_s * bound.may_be_late, default=None)


def _predict(slo: Slo, candidate: Candidate, jobs: Sequence[Job], pace: float = 1.0) -> Predicted:
    return summarize(simulate(jobs, candidate.engine, candidate.step, pace), slo, jobs, candidate.engine.blocks)


def summarize(done: Simulated, slo: Slo, jobs: Sequence[Job], blocks: int) -> Predicted:
    """Return the numbers of a simulation, without its first tenth, which meets an empty server.

    Raises:
        UsageError: no request was answered, because none fits the cache.

    """
    if done.end.size == 0:
        raise UsageError("no request of this workload fits the KV cache of the configuration")
    order = np.argsort(done.arrival)[int(_SETTLED * done.end.size):]
    ttft, e2e = done.ttft[order] * 1e3, done.e2e[order] * 1e3
    later = order[done.output[order] > 1]
    tpot = (done.end[later] - done.first[later]) / (done.output[later] - 1) * 1e3
    limits = {limit.text: _limit(limit, done, {"ttft": ttft, "e2e": e2e, "tpot": tpot}) for limit in slo.limits}
    open_loop = all(job.at_s is not None for job in jobs)
    keeps_up = _keeps_up(ttft) if open_loop else True
    early, late = np.percentile(done.end, (10, 90))
    inner = (done.end > early) & (done.end <= late)
    span = max(float(late - early), 1e-9)
    good = done.refused == 0 and keeps_up
    good = good and all(limits[limit.text] <= limit.maximum for limit in slo.limits if limit.metric != "error_rate")
    output = float(done.output[inner].sum())
    prompts = np.array([job.prompt for job in jobs], dtype=float).mean() * inner.sum()
    return Predicted(
        ttft_ms=_spread(ttft), tpot_ms=_spread(tpot), e2e_ms=_spread(e2e),
        itl_ms={f"p{percent}": done.itl(percent) * 1e3 for percent in (50, 95, 99)}
        | {"mean": float(np.average(done.gaps, weights=done.weights)) * 1e3 if done.gaps.size else 0.0},
        requests_per_s=float(inner.sum()) / span,
        output_tokens_per_s=output / span,
        tokens_per_s=float(output + prompts) / span,
        goodput_share=_goodput(done, slo),
        running=done.running,
        preemptions=done.preemptions,
        prefix_hit_share=done.hit_tokens / max(1, done.prompt_tokens),
        cache_peak_share=done.peak_blocks / blocks if blocks else 1.0,
        keeps_up=keeps_up,
        limits=limits,
        meets_slo=bool(good),
    )


def _keeps_up(ttft: _Values) -> bool:
    """Whether the wait does not grow through the run, which no steady load would bear."""
    if ttft.size < 40:
        return True
    parts = np.array_split(ttft, 3)
    return bool(np.median(parts[2]) <= _KEEPS_UP * np.median(parts[0]) + 100.0)


def _goodput(done: Simulated, slo: Slo) -> float:
    """Return the share of requests that keep every limit by themselves."""
    good = np.ones(done.end.size, dtype=bool)
    for limit in slo.limits:
        match limit.metric:
            case "ttft":
                good &= done.ttft * 1e3 <= limit.maximum
            case "e2e":
                good &= done.e2e * 1e3 <= limit.maximum
            case "tpot" | "itl":
                mean = (done.end - done.first) / np.maximum(1, done.output - 1) * 1e3
                good &= mean <= limit.maximum
            case "error_rate":
                continue
    return float(good.mean()) if good.size else 0.0


def _limit(limit: Limit, done: Simulated, samples: dict[str, _Values]) -> float:
    if limit.metric == "error_rate":
        return done.refused / max(1, done.refused + done.end.size)
    if limit.metric == "itl":
        if limit.percentile is None:
            return float(np.average(done.gaps, weights=done.weights)) * 1e3 if done.gaps.size else 0.0
        return done.itl(limit.percentile) * 1e3
    values = samples[limit.metric]
    if not values.size:
        return 0.0
    return float(values.mean() if limit.percentile is None else np.percentile(values, limit.percentile))


def _spread(values: _Values) -> dict[str, float]:
    if not values.size:
        return {}
    cuts = np.percentile(values, (50, 95, 99))
    found = {f"p{percent}": float(cut) for percent, cut in zip((50, 95, 99), cuts, strict=True)}
    return found | {"mean": float(values.mean())}


def band_of(gpu: str, engine: str = "vllm", calibration: Calibration | None = None) -> Band:
    """Return how wrong step times were on records that the fit did not see: of this GPU where there are any.

    After a calibration on this GPU type it is the error over the study's own arms.
    """
    if calibration is not None and calibration.gpu == gpu:
        return Band(of=f"the study's own configurations on {gpu}", low=1 - calibration.spread,
                    high=1 + calibration.spread, mape=round(calibration.after, 1), records=calibration.arms)
    stored = data("step_time.yaml")
    cell = stored["held_out_by_gpu"][engine].get(gpu)
    name = f"models left out of the fit, on {gpu}"
    if cell is None:
        cell, name = stored["held_out"][engine]["model"], f"models left out of the fit (no record of {gpu} was in it)"
    return Band(of=name, low=cell["low"], high=cell["high"], mape=cell["mape"], records=cell["n"])
