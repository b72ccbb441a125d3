"""Waiting until a machine is back to where it was."""

from __future__ import annotations

import time
from collections.abc import Callable

from tuner.domain.record import Record

POLL_S = 0.1


class Settled(Record):
    """How a wait ended: whether the reading came back, how long it took, and how many bytes are still missing."""

    settled: bool
    seconds: float
    missing_bytes: int


def wait_until(missing: Callable[[], int], tolerance_bytes: int, timeout_s: float) -> Settled:
    """Read `missing` until it is within the tolerance or `timeout_s` is over. The first reading is immediate."""
    started = time.monotonic()
    while True:
        now = missing()
        seconds = time.monotonic() - started
        if now <= tolerance_bytes or seconds >= timeout_s:
            return Settled(settled=now <= tolerance_bytes, seconds=seconds, missing_bytes=max(0, now))
        time.sleep(POLL_S)
