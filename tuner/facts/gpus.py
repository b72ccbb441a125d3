"""GPUs by name: what an engine sees of their memory, their rates, and hardware that is not here (`h100x8`)."""

from __future__ import annotations

import difflib
import re
from functools import cache

from tuner.domain.hardware import Gpu, Hardware
from tuner.domain.record import Record
from tuner.errors import UsageError
from tuner.facts.read import data

_GIB = 1 << 30
MOST_GPUS = 1024
_COUNT_FIRST = re.compile(r"^(\d{1,9})\s*x\s*(.+)$")
_COUNT_LAST = re.compile(r"^(.+?)\s*x\s*(\d{1,9})$")


class GpuFacts(Record):
    """One row of facts/data/gpus.yaml. Rates are dense, in TFLOP/s; None is not known or not there."""

    name: str
    aliases: tuple[str, ...]
    match: tuple[str, ...]
    nominal_gb: float
    usable_gib: float | None = None
    capability: float | None = None
    architecture: str | None = None
    """AMD's name of the instruction set, e.g. gfx942."""
    bandwidth_gbs: float | None = None
    bf16_tflops: float | None = None
    fp16_tflops: float | None = None
    fp8_tflops: float | None = None
    fp4_tflops: float | None = None
    int8_tops: float | None = None
    link: str | None = None
    link_gbs: float | None = None
    pcie_gbs: float | None = None
    tdp_w: float | None = None
    unified_memory: bool = False
    wheel: str | None = None
    confidence: str
    source: str
    note: str = ""

    @property
    def memory_bytes(self) -> int:
        """What CUDA sees of the memory; 98 % of the label where it was never read."""
        return int((self.usable_gib or self.nominal_gb * 0.98 * 1e9 / _GIB) * _GIB)


@cache
def gpu_table() -> dict[str, GpuFacts]:
    """Return all known GPUs by name."""
    return {name: GpuFacts(name=name, **row) for name, row in data("gpus.yaml")["gpus"].items()}


@cache
def facts_of(driver_name: str) -> GpuFacts | None:
    """Return the facts of a GPU by its driver's name, e.g. `NVIDIA H100 80GB HBM3`; None when not known."""
    best: tuple[int, GpuFacts] | None = None
    for facts in gpu_table().values():
        for part in facts.match:
            found = re.search(rf"(?<![A-Za-z0-9]){re.escape(part)}(?![A-Za-z0-9])", driver_name, re.IGNORECASE)
            if found and (best is None or len(part) > best[0]):
                best = (len(part), facts)
    return best[1] if best else None


def usable_bytes(gpu: Gpu) -> int:
    """Bytes that CUDA sees of a GPU, which is what an engine divides: less than the driver's total.

    A slice of a GPU (MIG) has less than its whole; then the driver's own number counts.
    """
    facts = facts_of(gpu.name)
    if facts is None or facts.usable_gib is None:
        return gpu.memory_bytes
    return min(gpu.memory_bytes, facts.memory_bytes)


def has_unified_memory(gpu: Gpu) -> bool:
    """Whether the GPU shares its memory with the host."""
    facts = facts_of(gpu.name)
    return bool(facts and facts.unified_memory)


def parse_hardware(text: str) -> Hardware:
    """Return GPUs that are not here, from `h100`, `h100x8` or `8xH100`.

    Raises:
        UsageError: no such GPU, or a count that is not from 1 to 1024.

    """
    if "," in text:
        raise UsageError(f"--gpu {text}: one machine has one type of GPU here, e.g. h100x8",
                         hint="`llmtune plan --gpu h100,h200` compares types")
    facts, count = named_gpu(text)
    gpus = tuple(
        Gpu(name=facts.match[0], memory_bytes=facts.memory_bytes, capability=facts.capability, index=index)
        for index in range(count or 1)
    )
    return Hardware(kind="cuda", gpus=gpus)


def named_gpu(text: str) -> tuple[GpuFacts, int | None]:
    """Return the facts of `h100`, `h100x8` or `8xH100`, and how many are meant; None where no number is given.

    Raises:
        UsageError: no such GPU, or a count that is not from 1 to 1024.

    """
    name, count = text.strip(), None
    first, last = _COUNT_FIRST.match(name), _COUNT_LAST.match(name)
    if _by_alias(name) is not None:
        first = last = None
    if first:
        count, name = int(first[1]), first[2]
    elif last:
        name, count = last[1], int(last[2])
    if count is not None and not 1 <= count <= MOST_GPUS:
        raise UsageError(f"--gpu {text}: {count} GPUs", hint=f"give 1 to {MOST_GPUS}, e.g. h100x8")
    facts = _by_alias(name)
    if facts is None:
        known = sorted(alias for row in gpu_table().values() for alias in row.aliases)
        near = difflib.get_close_matches(name.lower(), known, n=5, cutoff=0.0)
        raise UsageError(f"--gpu {text}: no GPU of that name is known",
                         hint=f"the nearest are {', '.join(near)}; `llmtune models --gpus` lists all")
    return facts, count


def _by_alias(name: str) -> GpuFacts | None:
    wanted = name.lower().replace("_", "-").replace(" ", "-").removeprefix("nvidia-")
    for facts in gpu_table().values():
        if wanted in facts.aliases or wanted == facts.name.lower().replace(" ", "-"):
            return facts
    return None
