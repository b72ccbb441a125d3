"""What this machine has: GPUs or a CPU, as far as an engine that is started from here may use them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil

from tuner.domain.hardware import Hardware
from tuner.runtime import cgroup, gpu
from tuner.runtime.installs import detect_engine

__all__ = ["CPU_FEATURES", "detect_engine", "detect_hardware", "read_cpuinfo", "usable_cores"]

CPU_FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_tile")
_CPUINFO = Path("/proc/cpuinfo")
_TOPOLOGY = Path("/sys/devices/system/cpu")


def detect_hardware() -> Hardware:
    """Return what an engine started from here can use: visible GPUs, allowed cores, the memory limit in force."""
    gpus, driver = gpu.inventory()
    cpu, features = read_cpuinfo(_cpuinfo_text())
    memory = int(psutil.virtual_memory().total)
    limit = cgroup.memory_limit_bytes()
    return Hardware(
        kind="cuda" if gpus else "cpu",
        gpus=gpus,
        driver=driver,
        cpu=cpu,
        cores=usable_cores(_allowed_cpus(), cgroup.cpu_quota()),
        memory_bytes=min(memory, limit) if limit else memory,
        cpu_features=features,
    )


def read_cpuinfo(text: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the CPU's name and those of its features that decide which kernels exist."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    flags = set(fields.get("flags", "").split())
    return fields.get("model name") or fields.get("Processor"), tuple(
        feature for feature in CPU_FEATURES if feature in flags
    )


def usable_cores(cpus: set[int], quota: float | None, topology: Path = _TOPOLOGY) -> int:
    """Count the physical cores among the allowed CPUs, no more than the quota pays for; at least 1."""
    cores = {_core_of(cpu, topology) for cpu in cpus}
    allowed = len(cores) if quota is None else min(len(cores), int(quota))
    return max(1, allowed)


def _core_of(cpu: int, topology: Path) -> str:
    with contextlib.suppress(OSError):
        return (topology / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text(encoding="ascii").strip()
    return str(cpu)


def _allowed_cpus() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _cpuinfo_text() -> str:
    with contextlib.suppress(OSError):
        return _CPUINFO.read_text(encoding="utf-8", errors="replace")
    return ""
