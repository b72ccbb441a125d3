"""Which part of a run is steady, and whether it is steady at all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from tuner.domain.load_record import LoadRun, RequestRecord
from tuner.domain.trial import MeasureWarning, Warn
from tuner.domain.workload import ClosedLoop, OpenLoop, RateProfile, Sessions, Trace

FULL_SHARE = 0.95
LEAST_STARTS = 8
LEAST_SHARE = 0.25
SATURATION_GROWTH = 2.0
SATURATION_LEAST = 8


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a run that is measured, in monotonic ns, and what is wrong with it."""

    start_ns: int
    end_ns: int
    steady: bool
    warnings: tuple[MeasureWarning, ...] = ()

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_ns - self.start_ns) / 1e9

    def holds(self, at_ns: int) -> bool:
        """Whether this moment lies in it."""
        return self.start_ns <= at_ns <= self.end_ns


def find_window(run: LoadRun) -> Window:
    """Return the steady window of a run, or the whole measured part marked as not steady.

    Closed loop: from the first to the last moment with at least 95 % of the clients waiting for an answer. Sessions:
    while every user is in a conversation. By the clock: from one median latency after the first measured arrival to
    the last arrival. It never begins before the first
    measured request, and must hold the starts of a quarter of the measured requests (at least 8) to be used.
    """
    sent = [record for record in run.records if record.sent_ns is not None]
    measured = [record for record in sent if not record.warmup]
    if not measured:
        return Window(run.started_ns, run.ended_ns, steady=False)
    first = min(record.start_ns for record in measured)
    match run.arrivals:
        case ClosedLoop(concurrency=clients):
            found = _full_span(sent, math.ceil(FULL_SHARE * clients))
        case Sessions(users=users):
            found = _all_talking(sent, users)
        case OpenLoop() | RateProfile() | Trace():
            lives = [record.end_ns - record.start_ns for record in sent if record.ok]
            ramp = int(np.median(lives)) if lives else 0
            found = first + ramp, max(record.start_ns for record in measured)
        case _:
            assert_never(run.arrivals)
    if found is not None:
        start, end = max(found[0], first), found[1]
        starts = sum(start <= record.start_ns <= end for record in measured)
        if end > start and starts >= max(LEAST_STARTS, math.ceil(LEAST_SHARE * len(measured))):
            return Window(start, end, steady=True, warnings=_saturation(run, sent, start, end))
    whole = Window(first, max(record.end_ns for record in measured), steady=False)
    detail = "too few requests at full load; the whole run counts, with its ramps"
    return Window(whole.start_ns, max(whole.end_ns, whole.start_ns + 1), steady=False,
                  warnings=(MeasureWarning(kind=Warn.NOT_STEADY, detail=detail),))


def in_flight(records: list[RequestRecord]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the times at which the number of open requests changes, and the number from then on."""
    starts = np.array([record.start_ns for record in records], dtype=np.int64)
    ends = np.array([record.end_ns for record in records], dtype=np.int64)
    times = np.concatenate([starts, ends])
    steps = np.concatenate([np.ones_like(starts), -np.ones_like(ends)])
    order = np.lexsort((steps, times))  # an end before a start of the same moment
    return times[order], np.cumsum(steps[order])


def _full_span(records: list[RequestRecord], needed: int) -> tuple[int, int] | None:
    times, open_now = in_flight(records)
    full = np.flatnonzero(open_now >= needed)
    if full.size == 0:
        return None
    return int(times[full[0]]), int(times[min(full[-1] + 1, times.size - 1)])


def _all_talking(records: list[RequestRecord], users: int) -> tuple[int, int] | None:
    """Return the span from the moment when every user has begun to the start of the last conversation."""
    begins: dict[str, int] = {}
    for record in records:
        if record.session:
            begins[record.session] = min(record.start_ns, begins.get(record.session, record.start_ns))
    ordered = sorted(begins.values())
    return (ordered[users - 1], ordered[-1]) if len(ordered) > users else None


def _saturation(run: LoadRun, records: list[RequestRecord], start: int, end: int) -> tuple[MeasureWarning, ...]:
    """Look for a queue that grows: in an open loop, twice as many requests open in the last third as in the first."""
    if not isinstance(run.arrivals, OpenLoop):  # other rates change on purpose
        return ()
    times, open_now = in_flight(records)
    grid = np.linspace(start, end, 91)
    levels = open_now[np.clip(np.searchsorted(times, grid, side="right") - 1, 0, None)]
    early, late = float(levels[:30].mean()), float(levels[-30:].mean())
    if late < SATURATION_LEAST or late < SATURATION_GROWTH * max(early, 1.0):
        return ()
    detail = f"requests in flight grew from {early:.0f} to {late:.0f} during the run"
    return (MeasureWarning(kind=Warn.SATURATED, detail=detail),)
