"""What this process's control groups allow: containers rarely own all that /proc shows. Both cgroup versions are read.

Source: the kernel's documents cgroup-v2 (cpu.max, memory.max) and cgroup-v1 (cpu.cfs_quota_us, memory.limit_in_bytes).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def cpu_quota(root: Path = ROOT, membership: Path = MEMBERSHIP) -> float | None:
    """CPUs' worth of time that may be used, by the tightest group on the way up; None without a limit."""
    quotas = []
    for folder in _folders("cpu", root, membership):
        words = _words(folder / "cpu.max")
        if len(words) == 2 and words[0].isdigit():
            quotas.append(int(words[0]) / int(words[1]))
        quota, period = _words(folder / "cpu.cfs_quota_us"), _words(folder / "cpu.cfs_period_us")
        if quota and period and quota[0].isdigit():
            quotas.append(int(quota[0]) / int(period[0]))
    return min(quotas, default=None)


def memory_limit_bytes(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int | None:
    """Memory that may be used, by the tightest group on the way up; None without a limit."""
    limits = []
    for folder in _folders("memory", root, membership):
        for name in ("memory.max", "memory.limit_in_bytes"):
            words = _words(folder / name)
            if words and words[0].isdigit():
                limits.append(int(words[0]))
    return min(limits, default=None)


def _folders(controller: str, root: Path, membership: Path) -> Iterator[Path]:
    """Yield the folders of this process's group and of every group above it."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            bases = [root, root / "unified"]
        elif controller in controllers.split(","):
            bases = [root / controllers, root / controller]
        else:
            continue
        for base in bases:
            group = Path(path.lstrip("/"))
            # Inside a container the path may be the host's and not exist here; the mount's top is then the group's own.
            yield from (base / part for part in (group, *group.parents))


def _words(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="ascii").split()
    return []
