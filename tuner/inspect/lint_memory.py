"""Rules about the share of the device that a server asks for."""

from __future__ import annotations

import re
from functools import lru_cache

from tuner.inspect.issue import Report
from tuner.inspect.view import View, facts

_SMALL_SHARE = 0.6


def memory_share(view: View, report: Report) -> None:
    """A share of nearly the whole device leaves no room for what lies outside it."""
    value = view.arguments.values.get("gpu-memory-utilization")
    line = view.flag_line("gpu-memory-utilization")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0.95 <= value <= 1:
        report.warning(
            line,
            "memory-share",
            f"--gpu-memory-utilization {value:g} leaves {100 * (1 - value):.0f} % of the card for CUDA graphs, "
            "NCCL and other processes; the start or the first long prompt may run out of memory",
            "0.90 to 0.94; more KV cache comes cheaper from a smaller --max-num-seqs",
        )
    _unified_memory(view, report, value if isinstance(value, float) else None, line)


def _unified_memory(view: View, report: Report, value: float | None, line: int) -> None:
    machine = _unified_machine(view.text) if view.context.hardware is None else None
    if machine is not None and (value is None or value > 0.8) and "kv-cache-memory-bytes" not in view.arguments.words:
        share = f"{value:g}" if value is not None else "the default (0.90 or 0.92)"
        report.warning(
            line,
            "unified-memory",
            f"on {machine} the GPU shares the host's memory: a share of {share} is no bound and can hang the host",
            "stay at or below 0.75, cap the cache with --kv-cache-memory-bytes, and limit the container's memory",
        )


@lru_cache(maxsize=16)
def _unified_machine(text: str) -> str | None:
    """Return the machine with shared memory that a file speaks of."""
    names = facts()["unified_memory"]
    return next((name for name in names if re.search(rf"\b{name}\b", text, re.IGNORECASE)), None)


def memory_part(view: View, report: Report) -> None:
    """A small share keeps the rest of the device for others, and two servers slow one another."""
    value = view.arguments.values.get("gpu-memory-utilization")
    if isinstance(value, float) and 0 < value < _SMALL_SHARE and "kv-cache-memory-bytes" not in view.arguments.words:
        report.note(
            view.flag_line("gpu-memory-utilization"),
            "memory-part",
            f"--gpu-memory-utilization {value:g} leaves {100 * (1 - value):.0f} % of the card unused unless another "
            "server takes it; two servers on one card share its speed, and the latency of each depends on the other",
            "for a server alone 0.90 or the default; for a shared card --kv-cache-memory-bytes is exact",
        )
