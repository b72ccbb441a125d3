"""Every metric once: its name, unit, direction, formula and edge cases, and the code that computes it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tuner.domain.load_record import LoadRun, RequestRecord
from tuner.domain.slo import Limit, Slo
from tuner.domain.trial import Estimate, LatencySummary, Measurement
from tuner.errors import NothingMeasuredError
from tuner.measure import estimate
from tuner.measure.quality import quality_warnings
from tuner.measure.window import Window, find_window

LATENCY_LIMITS = ("ttft", "itl", "tpot", "e2e")
SLICES = 40


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table of metrics."""

    name: str
    unit: str
    direction: Literal["minimize", "maximize"]
    formula: str
    edge_cases: str


METRICS: tuple[Metric, ...] = (
    Metric("ttft_ms", "ms", "minimize", "first token - start",
           "The first chunk with a token of any kind, reasoning included, role-only and empty chunks not. Start is the "
           "intended send time in an open loop, the hand-over to the socket in a closed one."),
    Metric("itl_ms", "ms", "minimize", "gap between reads that brought tokens",
           "One sample for each gap, pooled over requests; several tokens or events in one read are one arrival. "
           "Answers of one arrival have none."),
    Metric("tpot_ms", "ms", "minimize", "(last token - first token) / (n - tokens in the first arrival)",
           "One sample for each request; the first arrival's tokens are not counted. None for answers of one arrival."),
    Metric("e2e_ms", "ms", "minimize", "last token - start", "One sample for each good answer."),
    Metric("output_tokens_per_s", "1/s", "maximize", "output tokens that arrived in the window / window",
           "Tokens of failed requests do not count; those of warm-up requests that run into the window do, because the "
           "server made them. Never total over total, which is low by up to a third."),
    Metric("total_tokens_per_s", "1/s", "maximize", "(prompt tokens + output tokens) in the window / window",
           "A prompt counts when its first token arrives."),
    Metric("requests_per_s", "1/s", "maximize", "good answers that ended in the window / window",
           "Failed requests do not count."),
    Metric("goodput_per_s", "1/s", "maximize", "answers within every limit that ended in the window / window",
           "A request keeps a limit when its own value does: its mean or percentile of gaps for itl. "
           "Only with an SLO."),
    Metric("slo_attainment", "share", "maximize", "requests within every limit / requests",
           "Failed requests are not within. Only with an SLO."),
    Metric("error_rate", "share", "minimize", "failed requests / requests that ended",
           "Requests that llmtune cut off are left out. Truncated answers are failures."),
)


def measure(run: LoadRun, slo: Slo | None = None) -> Measurement:
    """Compute everything from the records of one run.

    Latencies are those of measured requests that started in the steady window, rates are counted by time in it.

    Raises:
        NothingMeasuredError: when the run holds no measured request that ended.

    """
    slo = slo or Slo()
    ended = [record for record in run.records if not record.warmup and (record.ok or record.failed)]
    if not ended:
        raise NothingMeasuredError(
            f"no request was measured{': ' + run.stopped if run.stopped else ''}",
            hint="look at the server's log, and at the number of requests",
        )
    window = find_window(run)
    chosen = [record for record in ended if window.holds(record.start_ns)] or ended
    good = [record for record in chosen if record.ok]
    samples = {name: _samples(good, name) for name in LATENCY_LIMITS}
    failed = sum(record.failed for record in ended)
    limited = bool(slo.limits)
    attained = sum(within_limits(record, slo) for record in chosen)
    lag = np.asarray(run.lag_ns, dtype=float) / 1e6
    return Measurement(
        requests=len(ended),
        completed=len(ended) - failed,
        failed=failed,
        errors=dict(sorted(Counter(record.error for record in ended if record.error is not None).items())),
        duration_s=run.duration_s,
        window_s=window.seconds,
        input_tokens=sum(record.input_tokens or 0 for record in ended if record.ok),
        output_tokens=sum(record.output_tokens for record in ended if record.ok),
        output_tokens_per_s=_rate(*_token_events(run, prompts=False), window),
        total_tokens_per_s=_rate(*_token_events(run, prompts=True), window),
        requests_per_s=_rate(*_end_events(run, None), window),
        goodput_per_s=_rate(*_end_events(run, slo), window) if limited else None,
        slo_attainment=estimate.share(attained, len(chosen)) if limited else None,
        ttft_ms=_summary(samples["ttft"], len(good)),
        itl_ms=_summary(samples["itl"], len(good)),
        tpot_ms=_summary(samples["tpot"], len(good)),
        e2e_ms=_summary(samples["e2e"], len(good)),
        limits=_limits(slo, samples, len(good), failed, len(ended)),
        client_lag_ms=float(np.percentile(lag, 99)) if lag.size else 0.0,
        client_cpu_share=run.cpu_share,
        stopped=run.stopped,
        warnings=(*window.warnings, *quality_warnings(run, ended, len(good))),
    )


def within_limits(record: RequestRecord, slo: Slo) -> bool:
    """Whether one request was answered within every latency limit of the SLO."""
    if not record.ok:
        return False
    for limit in slo.limits:
        if limit.metric == "error_rate":
            continue
        values = request_values(record, limit.metric)
        if values.size and _statistic(values, limit) > limit.maximum:
            return False
    return True


def request_values(record: RequestRecord, metric: str) -> NDArray[np.float64]:
    """Return the samples in ms that one good request adds to a latency metric (see `METRICS`)."""
    at = np.asarray(record.chunk_ns, dtype=np.int64)
    if at.size == 0:
        return np.empty(0)
    match metric:
        case "ttft":
            return np.array([(at[0] - record.start_ns) / 1e6])
        case "e2e":
            return np.array([(at[-1] - record.start_ns) / 1e6])
        case "itl":
            return np.asarray(np.diff(at) / 1e6, dtype=float)
        case "tpot":
            later = record.output_tokens - record.chunk_tokens[0]
            return np.array([(at[-1] - at[0]) / 1e6 / later]) if at.size > 1 and later > 0 else np.empty(0)
        case _:
            raise ValueError(f"no latency metric {metric!r}")


def _statistic(values: NDArray[np.float64], limit: Limit) -> float:
    return float(values.mean() if limit.percentile is None else np.percentile(values, limit.percentile))


def _samples(records: list[RequestRecord], metric: str) -> NDArray[np.float64]:
    parts = [request_values(record, metric) for record in records]
    return np.concatenate(parts) if parts else np.empty(0)


def _summary(samples: NDArray[np.float64], requests: int) -> LatencySummary | None:
    if samples.size == 0:
        return None
    at = {percent: estimate.percentile(samples, percent, independent=requests) for percent in (50, 90, 95, 99)}
    return LatencySummary(mean=estimate.mean(samples, independent=requests),
                          p50=at[50], p90=at[90], p95=at[95], p99=at[99])


def _limits(
    slo: Slo, samples: dict[str, NDArray[np.float64]], requests: int, failed: int, ended: int
) -> dict[str, Estimate]:
    found = {}
    for limit in slo.limits:
        if limit.metric == "error_rate":
            found[limit.text] = estimate.share(failed, ended)
        elif samples[limit.metric].size:
            values = samples[limit.metric]
            found[limit.text] = (
                estimate.mean(values, independent=requests) if limit.percentile is None
                else estimate.percentile(values, limit.percentile, independent=requests)
            )
    return found


def _token_events(run: LoadRun, *, prompts: bool) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return arrival times and token counts of everything that was not failed."""
    times, counts = [], []
    for record in run.records:
        if record.failed or record.first_ns is None:
            continue
        times.append(np.asarray(record.chunk_ns, dtype=np.int64))
        counts.append(np.asarray(record.chunk_tokens, dtype=float))
        if prompts:
            times.append(np.array([record.first_ns], dtype=np.int64))
            known = record.asked_input_tokens if record.input_tokens is None else record.input_tokens
            counts.append(np.array([float(known)]))
    if not times:
        return np.empty(0, dtype=np.int64), np.empty(0)
    return np.concatenate(times), np.concatenate(counts)


def _end_events(run: LoadRun, slo: Slo | None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    ends = [record.end_ns for record in run.records if record.ok and (slo is None or within_limits(record, slo))]
    return np.array(ends, dtype=np.int64), np.ones(len(ends))


def _rate(times: NDArray[np.int64], counts: NDArray[np.float64], window: Window) -> Estimate:
    edges = np.linspace(window.start_ns, window.end_ns, SLICES + 1)
    per_slice, _ = np.histogram(times, bins=edges, weights=counts)
    return estimate.batch_means(per_slice, seconds=window.seconds / SLICES)
