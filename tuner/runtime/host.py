"""The host around a trial: how busy it is, how much of it is stolen, how much memory is left."""

from __future__ import annotations

import contextlib
import os

import psutil

from tuner.domain.trial import Environment
from tuner.runtime import gpu
from tuner.runtime.settle import Settled, wait_until

MEMORY_TOLERANCE_BYTES = 256 << 20


class HostWatch:
    """Reads the host's counters when it is made; `environment` gives what happened since."""

    def __init__(self) -> None:
        self._start = psutil.cpu_times()

    def environment(self, known_cpu_s: float = 0.0) -> Environment:
        """Return the state of the machine, shares of CPU time counted since this watch was made.

        `host_cpu_share` is the share of all CPUs' time that was busy, less `known_cpu_s`: give the CPU seconds of the
        engine and of llmtune itself to see what others took. `cpu_steal_share` is the share that the hypervisor gave
        to somebody else, of the time in which a CPU wanted to run.
        """
        before, now = self._start, psutil.cpu_times()
        spent = {field: max(0.0, getattr(now, field) - getattr(before, field)) for field in now._fields}
        # The kernel counts guests' time in `user` and `nice` already.
        total = sum(value for field, value in spent.items() if field not in ("guest", "guest_nice"))
        stolen = spent.get("steal", 0.0)
        busy = total - spent["idle"] - spent.get("iowait", 0.0) - stolen
        wanted = busy + stolen
        return Environment(
            load_1m=_load(),
            cpu_steal_share=stolen / wanted if wanted > 0 else 0.0,
            host_cpu_share=min(1.0, max(0.0, busy - known_cpu_s) / total) if total > 0 else None,
            memory_available_bytes=memory_available_bytes(),
            gpu_clocks_mhz=gpu.clocks_mhz(),
        )


def snapshot() -> Environment:
    """Return the state of the machine at one moment, without shares of time."""
    return Environment(
        load_1m=_load(), memory_available_bytes=memory_available_bytes(), gpu_clocks_mhz=gpu.clocks_mhz()
    )


def memory_available_bytes() -> int:
    """Memory that a new process could take without swapping."""
    return int(psutil.virtual_memory().available)


def wait_settled(base: int, timeout_s: float = 10.0, tolerance_bytes: int = MEMORY_TOLERANCE_BYTES) -> Settled:
    """Wait until the host has again nearly as much memory available as `base`, read before the launch."""
    return wait_until(lambda: base - memory_available_bytes(), tolerance_bytes, timeout_s)


def _load() -> float | None:
    with contextlib.suppress(OSError):
        return os.getloadavg()[0]
    return None
