"""What each request adds to the latency metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.domain.load_record import RequestRecord
from tuner.domain.slo import Limit, Slo
from tuner.domain.trial import Estimate, LatencySummary
from tuner.measure import estimate

LATENCIES = ("ttft", "itl", "tpot", "e2e", "normalized")


@dataclass(frozen=True, slots=True)
class Samples:
    """All samples of one latency in ms, in order of time, and how many each request gave."""

    values: NDArray[np.float64]
    parts: NDArray[np.int64]

    def percentile(self, percent: float) -> Estimate:
        """Return the percentile over all samples."""
        return estimate.percentile(self.values, percent, parts=self.parts)

    def mean(self) -> Estimate:
        """Return the mean over all samples."""
        return estimate.mean(self.values, parts=self.parts)

    def of(self, limit: Limit) -> Estimate:
        """Return what a limit speaks of."""
        return self.mean() if limit.percentile is None else self.percentile(limit.percentile)

    def summary(self) -> LatencySummary | None:
        """Return mean and percentiles, or None without a sample."""
        if self.values.size == 0:
            return None
        return LatencySummary(mean=self.mean(), p50=self.percentile(50), p90=self.percentile(90),
                              p95=self.percentile(95), p99=self.percentile(99))


def collect(records: Sequence[RequestRecord], metric: str) -> Samples:
    """Pool the samples of good requests, in order of their start."""
    ordered = sorted((record for record in records if record.ok), key=lambda record: record.start_ns)
    found = [values for record in ordered if (values := request_values(record, metric)).size]
    values = np.concatenate(found) if found else np.empty(0)
    return Samples(values, np.array([one.size for one in found], dtype=np.int64))


def within_limits(record: RequestRecord, slo: Slo) -> bool:
    """Whether one request was answered within every latency limit of the SLO."""
    if not record.ok:
        return False
    for limit in slo.limits:
        if limit.metric == "error_rate" or (limit.group and limit.group != record.group):
            continue
        values = request_values(record, limit.metric)
        if values.size and _statistic(values, limit) > limit.maximum:
            return False
    return True


def request_values(record: RequestRecord, metric: str) -> NDArray[np.float64]:
    """Return the samples in ms that one good request adds to a latency metric (see `tuner.measure.table`)."""
    at = np.asarray(record.chunk_ns, dtype=np.int64)
    if at.size == 0:
        return np.empty(0)
    match metric:
        case "ttft":
            return np.array([(at[0] - record.start_ns) / 1e6])
        case "e2e":
            return np.array([(at[-1] - record.start_ns) / 1e6])
        case "normalized":
            return np.array([(at[-1] - record.start_ns) / 1e6 / record.output_tokens])
        case "itl":
            return np.asarray(np.diff(at) / 1e6, dtype=float)
        case "tpot":
            later = record.output_tokens - record.chunk_tokens[0]
            return np.array([(at[-1] - at[0]) / 1e6 / later]) if at.size > 1 and later > 0 else np.empty(0)
        case _:
            raise ValueError(f"no latency metric {metric!r}")


def _statistic(values: NDArray[np.float64], limit: Limit) -> float:
    return float(values.mean() if limit.percentile is None else np.percentile(values, limit.percentile))
