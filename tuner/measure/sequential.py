"""When a run has shown enough: it cannot keep the SLO any more, or the interval is as narrow as was wanted.

Both are fed with records as they end and asked from time to time, so they fit `Hooks.on_record` and `Hooks.stop`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from tuner.domain.load_record import RequestRecord
from tuner.domain.slo import Limit, Slo
from tuner.domain.trial import Estimate
from tuner.measure import estimate
from tuner.measure.samples import within_limits

Decision = Literal["kept", "missed", "open"]
ERROR_RATE = 0.05
SLICE_S = 0.25
LEAST_SLICES = 40


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


class UntilPrecise:
    """Ends a run when the interval of the output throughput is narrow enough, or at a time limit.

    Looks at slices of a quarter of a second in which every request has ended, without a ramp of one longest answer.
    """

    def __init__(self, half_width: float, *, cap_s: float, clock: Callable[[], int]) -> None:
        self._half_width = half_width
        self._cap_ns = int(cap_s * 1e9)
        self._clock = clock
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
        places = ((np.asarray(record.chunk_ns) - self._origin_ns) / (SLICE_S * 1e9)).astype(np.int64)
        counts = np.asarray(record.chunk_tokens, dtype=float)[places >= 0]
        places = places[places >= 0]
        if places.size and places[-1] >= self._counts.size:
            self._counts = np.concatenate([self._counts, np.zeros(max(self._counts.size, int(places[-1]) + 1))])
        np.add.at(self._counts, places, counts)

    def estimate(self) -> Estimate | None:
        """Return the throughput so far, in tokens per second, or None while too little has been seen."""
        if self._origin_ns is None:
            return None
        slice_ns = SLICE_S * 1e9
        first = math.ceil(self._longest_ns / slice_ns)
        last = int((self._clock() - self._origin_ns - self._longest_ns) / slice_ns)
        whole: Sequence[float] = self._counts[first:last].tolist()
        return estimate.rate(whole, seconds=SLICE_S) if len(whole) >= LEAST_SLICES else None

    def reason(self) -> str | None:
        """Return why the run may end, or None."""
        if self._origin_ns is not None and self._clock() - self._origin_ns >= self._cap_ns:
            return "the time limit is reached"
        found = self.estimate()
        if found is None or found.value <= 0 or (found.high - found.low) / 2 > self._half_width * found.value:
            return None
        return f"the throughput is known to {self._half_width:.1%}"
