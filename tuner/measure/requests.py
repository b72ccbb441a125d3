"""From the records of one run to its measurement. `tuner.measure.table` has every formula."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.domain.load_record import INTERRUPTED, LoadRun, RequestRecord
from tuner.domain.slo import Slo
from tuner.domain.trial import Estimate, GroupMeasurement, Measurement, MeasureWarning, Warn
from tuner.domain.workload import ClosedLoop, OpenLoop
from tuner.errors import NothingMeasuredError
from tuner.measure import estimate
from tuner.measure.quality import quality_warnings
from tuner.measure.samples import LATENCIES, Samples, collect, within_limits
from tuner.measure.window import Window, find_window

SLICES = 40
DRIFT_SLICES = 10
DRIFT_SHARE = 0.15


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
    chosen = _whole(run, [record for record in ended if window.holds(record.start_ns)] or ended)
    samples = {name: collect(chosen, name) for name in LATENCIES}
    failed = sum(record.failed for record in ended)
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
        goodput_per_s=_rate(*_end_events(run, slo), window) if slo.limits else None,
        slo_attainment=_attainment(chosen, slo),
        **{f"{name}_ms": samples[name].summary() for name in LATENCIES},
        groups=_groups(chosen, slo),
        limits=_limits(slo, chosen, samples, ended),
        client_lag_ms=float(np.percentile(lag, 99)) if lag.size else 0.0,
        client_cpu_share=run.cpu_share,
        stopped=run.stopped,
        warnings=(
            *window.warnings,
            *_drift(run, window),
            *quality_warnings(run, ended, sum(record.ok for record in chosen)),
        ),
    )


def _whole(run: LoadRun, chosen: list[RequestRecord]) -> list[RequestRecord]:
    """Leave out what started after the first request that was cut off, as long as half of the requests remain.

    Of the requests under way when a run is ended the short ones would be in and the long ones not.
    """
    cut = [record.start_ns for record in run.records if record.error == INTERRUPTED and not record.warmup]
    if not cut:
        return chosen
    before = [record for record in chosen if record.start_ns < min(cut)]
    return before if len(before) >= len(chosen) / 2 else chosen


def _drift(run: LoadRun, window: Window) -> tuple[MeasureWarning, ...]:
    """Look for a throughput that rises or falls through the window: a line through it with a slope beyond chance."""
    if not isinstance(run.arrivals, (ClosedLoop, OpenLoop)) or not window.steady:
        return ()
    times, counts = _token_events(run, prompts=False)
    rates = _per_slice(times, counts, window, DRIFT_SLICES) * DRIFT_SLICES / window.seconds
    change, error = estimate.trend(rates)
    if abs(change) <= max(error, DRIFT_SHARE * float(rates.mean())):
        return ()
    middle = float(rates.mean())
    detail = f"the throughput went from {middle - change / 2:.4g} to {middle + change / 2:.4g} tokens/s within the run"
    return (MeasureWarning(kind=Warn.NOT_STEADY, detail=detail),)


def _attainment(records: Sequence[RequestRecord], slo: Slo) -> Estimate | None:
    if not slo.limits:
        return None
    return estimate.share(sum(within_limits(record, slo) for record in records), len(records))


def _groups(records: Sequence[RequestRecord], slo: Slo) -> dict[str, GroupMeasurement]:
    names = sorted({record.group for record in records})
    if len(names) < 2:
        return {}
    found = {}
    for name in names:
        own = [record for record in records if record.group == name]
        found[name or "other"] = GroupMeasurement(
            requests=len(own), failed=sum(record.failed for record in own), slo_attainment=_attainment(own, slo),
            **{f"{metric}_ms": collect(own, metric).summary() for metric in ("ttft", "itl", "tpot", "e2e")},
        )
    return found


def _limits(
    slo: Slo, chosen: Sequence[RequestRecord], samples: dict[str, Samples], ended: Sequence[RequestRecord]
) -> dict[str, Estimate]:
    found = {}
    for limit in slo.limits:
        if limit.metric == "error_rate":
            those = [record for record in ended if limit.group in ("", record.group)]
            found[limit.text] = estimate.share(sum(record.failed for record in those), len(those))
            continue
        own = samples[limit.metric]
        if limit.group:
            own = collect([record for record in chosen if record.group == limit.group], limit.metric)
        if own.values.size:
            found[limit.text] = own.of(limit)
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
    return estimate.rate(_per_slice(times, counts, window, SLICES), seconds=window.seconds / SLICES)


def _per_slice(
    times: NDArray[np.int64], counts: NDArray[np.float64], window: Window, slices: int
) -> NDArray[np.float64]:
    edges = np.linspace(window.start_ns, window.end_ns, slices + 1)
    return np.asarray(np.histogram(times, bins=edges, weights=counts)[0], dtype=float)
