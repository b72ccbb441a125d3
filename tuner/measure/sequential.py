"""When a run has shown enough: it cannot keep the SLO any more, or the interval is as narrow as was wanted.

Both are fed with records as they end and asked from time to time, so they fit `Hooks.on_record` and `Hooks.stop`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from tuner.domain.load_record import RequestRecord
from tuner.domain.slo import Limit, Slo, parse_slo
from tuner.domain.study import Objective
from tuner.domain.trial import Estimate
from tuner.measure import estimate
from tuner.measure.samples import within_limits

Decision = Literal["kept", "missed", "open"]
ERROR_RATE = 0.05
SLICE_S = 0.25
LEAST_SLICES = 40
LOOKS = 1.5
"""Widens a 95 % interval that is looked at during a run: to about 99.7 %, as sequential looks need."""


def sprt(kept: int, missed: int, *, good: float, bad: float, error_rate: float = ERROR_RATE) -> Decision:
    """Decide whether the share of kept requests is at least `good` or at most `bad`, as early as that can be known.

    Wald's sequential probability ratio test (1945), both errors at `error_rate`. At 0.97 against 0.90 a configuration
    that keeps one request in two falls after about 6 requests, one that keeps 80 % after about 19.
    """
    ratio = kept * math.log(good / bad) + missed * math.log((1 - good) / (1 - bad))
    bound = math.log((1 - error_rate) / error_rate)
    return "kept" if ratio >= bound else "missed" if ratio <= -bound else "open"


def limit_shares(limit: Limit) -> tuple[float, float]:
    """Return the shares (good, bad) of requests that a limit is tested at.

    A percentile of one value a request says how many requests must keep it: p95 is tested at 97 % against 90 %. A
    mean, and a percentile of pooled gaps, only falls when three requests in four miss it by their own value.
    """
    if limit.percentile is None or limit.metric == "itl":
        return 0.5, 0.25
    share = limit.percentile / 100
    return share + 0.4 * (1 - share), max(0.05, share - (1 - share))


class Hopeless:
    """Notices early that an SLO will be missed.

    Failed requests miss every limit; warm-up requests and those that were cut off are left out.
    """

    def __init__(self, slo: Slo) -> None:
        self._tests = [(limit, Slo(limits=(limit,))) for limit in slo.limits if limit.metric != "error_rate"]
        self._kept = [0] * len(self._tests)
        self._seen = 0

    def add(self, record: RequestRecord) -> None:
        """Take in one request that ended."""
        if record.warmup or not (record.ok or record.failed):
            return
        self._seen += 1
        for index, (_, alone) in enumerate(self._tests):
            self._kept[index] += within_limits(record, alone)

    def reason(self) -> str | None:
        """Return which limit is out of reach, or None while that is open."""
        for (limit, _), kept in zip(self._tests, self._kept, strict=True):
            good, bad = limit_shares(limit)
            if sprt(kept, self._seen - kept, good=good, bad=bad) == "missed":
                return f"{limit.text} is out of reach: {self._seen - kept} of {self._seen} requests missed it"
        return None


class Running:
    """The rate of a run that is still going on: tokens per second, or `events` per second.

    Looks at slices of a quarter of a second in which every request has ended, without a ramp of one longest answer.
    """

    def __init__(
        self, *, clock: Callable[[], int], events: Callable[[RequestRecord], bool] | None = None
    ) -> None:
        self._clock = clock
        self._events = events
        self._counts = np.zeros(64)
        self._origin_ns: int | None = None
        self._longest_ns = 0

    def add(self, record: RequestRecord) -> None:
        """Take in one request that ended."""
        if self._origin_ns is None:
            self._origin_ns = record.start_ns
        self._longest_ns = max(self._longest_ns, record.end_ns - record.start_ns)
        if record.failed or not len(record.chunk_ns):
            return
        times, weights = record.chunk_ns, record.chunk_tokens
        if self._events is not None:
            times, weights = [record.end_ns], [int(self._events(record))]
        places = ((np.asarray(times) - self._origin_ns) / (SLICE_S * 1e9)).astype(np.int64)
        counts = np.asarray(weights, dtype=float)[places >= 0]
        places = places[places >= 0]
        if places.size and places[-1] >= self._counts.size:
            self._counts = np.concatenate([self._counts, np.zeros(max(self._counts.size, int(places[-1]) + 1))])
        np.add.at(self._counts, places, counts)

    def estimate(self) -> Estimate | None:
        """Return the rate so far, per second, or None while too little has been seen."""
        if self._origin_ns is None:
            return None
        slice_ns = SLICE_S * 1e9
        first = math.ceil(self._longest_ns / slice_ns)
        last = int((self._clock() - self._origin_ns - self._longest_ns) / slice_ns)
        whole: Sequence[float] = self._counts[first:last].tolist()
        return estimate.rate(whole, seconds=SLICE_S) if len(whole) >= LEAST_SLICES else None


class UntilPrecise(Running):
    """Ends a run when the interval of the output throughput is narrow enough, or at a time limit."""

    def __init__(self, half_width: float, *, cap_s: float, clock: Callable[[], int]) -> None:
        super().__init__(clock=clock)
        self._half_width = half_width
        self._cap_ns = int(cap_s * 1e9)

    def reason(self) -> str | None:
        """Return why the run may end, or None."""
        if self._origin_ns is not None and self._clock() - self._origin_ns >= self._cap_ns:
            return "the time limit is reached"
        found = self.estimate()
        if found is None or found.value <= 0 or (found.high - found.low) / 2 > self._half_width * found.value:
            return None
        return f"the throughput is known to {self._half_width:.1%}"


class OutOfReach:
    """Notices early that a run will not come up to an incumbent's objective.

    `target` is the end of the incumbent's own 95 % interval that is nearest to this run, for one server. A rate falls
    when its interval, widened because it is looked at again and again, ends below the target; a p95 latency when so
    many requests exceed the target that 95 % of them cannot be within it (`sprt`).
    """

    def __init__(self, objective: Objective, target: float, slo: Slo, *, clock: Callable[[], int]) -> None:
        self._target = target
        self._objective = objective
        self._within = self._limit(objective, target)
        self._rate = self._rate_of(objective, slo, clock)
        self._kept = self._seen = 0
        self.bound: Estimate | None = None
        """The widened interval of the rate at the last look."""

    @staticmethod
    def _limit(objective: Objective, target: float) -> Slo | None:
        metric = objective.removeprefix("p95_")
        if metric not in ("ttft", "e2e"):
            return None
        return parse_slo(f"p95 {metric}<={target:.6f}ms")

    @staticmethod
    def _rate_of(objective: Objective, slo: Slo, clock: Callable[[], int]) -> Running | None:
        match objective:
            case "output_tokens_per_s" | "cost_per_mtok":
                return Running(clock=clock)
            case "requests_per_s":
                return Running(clock=clock, events=lambda record: record.ok)
            case "goodput_per_s":
                return Running(clock=clock, events=lambda record: within_limits(record, slo))
            case _:
                return None

    def add(self, record: RequestRecord) -> None:
        """Take in one request that ended."""
        if self._rate is not None:
            self._rate.add(record)
        if self._within is not None and not record.warmup and (record.ok or record.failed):
            self._seen += 1
            self._kept += within_limits(record, self._within)

    def reason(self) -> str | None:
        """Return why the incumbent is out of reach, or None while that is open."""
        if self._within is not None:
            good, bad = limit_shares(self._within.limits[0])
            if sprt(self._kept, self._seen - self._kept, good=good, bad=bad) == "missed":
                missed = self._seen - self._kept
                return f"{missed} of {self._seen} requests took longer than the incumbent (p95 {self._target:.4g} ms)"
            return None
        found = self._rate.estimate() if self._rate is not None else None
        if found is None:
            return None
        half = LOOKS * (found.high - found.value)
        self.bound = Estimate(value=found.value, low=max(0.0, found.value - half), high=found.value + half, n=found.n)
        if self.bound.high >= self._target:
            return None
        return f"{self.bound.format()} per second, the incumbent has at least {self._target:.4g}"
