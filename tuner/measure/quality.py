"""Whether a run's numbers can be believed: the client's own honesty, the answers' completeness, the sample's size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from tuner.domain.load_record import TRUNCATED, LoadRun, RequestRecord
from tuner.domain.trial import MeasureWarning, Warn
from tuner.measure.estimate import requests_needed

CPU_SHARE_LIMIT = 0.85
LAG_LIMIT_MS = 10.0
LAG_LIMIT_SHARE = 0.1
"""Of the median TTFT: where answers take seconds, a late client of 20 ms does not matter."""
LATE_SEND_LIMIT_MS = 10.0
MULTI_EVENT_LIMIT = 0.2
LITTLE_LAG_MS = 2.0
FEW_REQUESTS = 100
LENGTH_TOLERANCE = 0.05


def quality_warnings(run: LoadRun, ended: Sequence[RequestRecord], samples: int) -> tuple[MeasureWarning, ...]:
    """Return what makes this run less trustworthy. `samples` is the number of requests behind the latencies."""
    return tuple(MeasureWarning(kind=kind, detail=detail) for kind, detail in _found(run, ended, samples))


def _found(run: LoadRun, ended: Sequence[RequestRecord], samples: int) -> Iterator[tuple[Warn, str]]:
    limited = client_limits(run)
    if limited:
        yield Warn.CLIENT_LIMITED, "; ".join(limited)
    if samples < FEW_REQUESTS:
        yield Warn.FEW_REQUESTS, (
            f"latencies come from {samples} requests; the interval of a p95 needs {requests_needed(95)}, that of a "
            f"p99 {requests_needed(99)}, and more where neighbours are alike"
        )
    off = _length_error(ended)
    if abs(off) > LENGTH_TOLERANCE:
        yield Warn.LENGTHS_OFF, f"prompts had {off:+.0%} tokens against what was asked for"
    errors = Counter(record.error for record in ended if record.failed)
    if errors:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(errors.items(), key=str))
        yield Warn.ERRORS, f"{errors.total()} of {len(ended)} requests failed: {kinds}"
    short = errors.get(TRUNCATED, 0)
    if short:
        yield Warn.TRUNCATED, f"{short} answers were shorter than asked for"
    wrong = sum(record.count_mismatch for record in ended)
    if wrong:
        yield Warn.COUNT_MISMATCH, f"the server's token count cannot be true in {wrong} answers"
    counted = sum(not record.from_usage and not record.count_mismatch for record in ended if record.ok)
    if counted:
        yield Warn.NO_USAGE, f"{counted} answers came without a token count"


def _length_error(records: Sequence[RequestRecord]) -> float:
    """Return by how much the prompts' tokens, as the server counted them, differ from what was meant."""
    known = [record for record in records if record.ok and record.input_tokens and record.asked_input_tokens]
    asked = sum(record.asked_input_tokens for record in known)
    return sum(record.input_tokens or 0 for record in known) / asked - 1 if asked else 0.0


def client_limits(run: LoadRun) -> list[str]:
    """Return the reasons to think that the load generator itself was the bottleneck."""
    reasons = []
    if run.cpu_share > CPU_SHARE_LIMIT:
        reasons.append(f"the client used {run.cpu_share:.0%} of its core")
    lag = float(np.percentile(np.asarray(run.lag_ns, dtype=float), 99)) / 1e6 if len(run.lag_ns) else 0.0
    waits = [(record.first_ns - record.start_ns) / 1e6 for record in run.records if record.first_ns is not None]
    if lag > max(LAG_LIMIT_MS, LAG_LIMIT_SHARE * float(np.median(waits)) if waits else 0.0):
        reasons.append(f"its event loop was late by {lag:.1f} ms (p99)")
    several = run.multi_event_reads / run.reads if run.reads else 0.0
    if several > MULTI_EVENT_LIMIT and lag > LITTLE_LAG_MS:  # alone it only says that the server sends in batches
        reasons.append(f"{several:.0%} of its reads held several events while its loop was late by {lag:.1f} ms")
    late = [(record.sent_ns - record.scheduled_ns) / 1e6 for record in run.records if record.sent_ns is not None]
    if late and (worst := float(np.percentile(late, 99))) > LATE_SEND_LIMIT_MS:
        reasons.append(f"requests were sent {worst:.1f} ms late (p99)")
    return reasons
