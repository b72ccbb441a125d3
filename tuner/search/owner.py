"""Who works on a trial, and whether that process can still be alive.

Within one boot of one host a process is named by its pid and its start time, so a reused pid is never taken for it.
Of another host nothing can be known but when it last gave a sign of life.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from tuner.domain.record import Record, content_hash

BEAT_S = 60.0
"""How often a sign of life is written to a storage that several machines share, while a trial runs."""
SILENCE_S = 1800.0
"""A process elsewhere that was silent for so long is taken for dead. The machines' clocks may differ by minutes."""
_PROC = Path("/proc")


class Owner(Record):
    """One llmtune process, by what the kernel calls it.

    `boot` names the boot of the machine and `pids` the space its pids belong to (containers have their own); `started`
    is in clock ticks since that boot. `folder` is the study's folder as a hash: who holds its lock has it alone.
    """

    host: str
    boot: str
    pids: str
    pid: int
    started: float
    folder: str

    @property
    def text(self) -> str:
        """`process 4711 on host`, for people."""
        return f"process {self.pid} on {self.host}"

    @property
    def runs(self) -> bool:
        """Whether it is a process that this one can see, and it is there."""
        return _same_space(self, this_process()) and _start_of(self.pid) == self.started


def this_process(folder: Path = Path()) -> Owner:
    """Return the owner that this process is, at work in `folder`."""
    pid = os.getpid()
    return Owner(
        host=socket.gethostname(),
        boot=_text(_PROC / "sys/kernel/random/boot_id"),
        pids=_pid_space(),
        pid=pid,
        started=_start_of(pid) or 0.0,
        folder=content_hash(str(folder.resolve())),
    )


def is_gone(owner: Owner, *, me: Owner, last_sign: float, now: float) -> bool:
    """Whether a trial's owner has died. `me` holds the lock of its folder; times are seconds since the epoch.

    Whoever is seen from here is judged by its process. An owner of an earlier boot of this host is gone. Everybody else
    is only taken for dead after `SILENCE_S`.
    """
    if _same_space(owner, me):
        return owner.folder == me.folder or _start_of(owner.pid) != owner.started
    if owner.host == me.host and owner.boot != me.boot and last_sign < _boot_time(now):
        return True
    return now - last_sign > SILENCE_S


def _same_space(one: Owner, other: Owner) -> bool:
    return (one.host, one.boot, one.pids) == (other.host, other.boot, other.pids)


def _start_of(pid: int) -> float | None:
    """Start of a living process in ticks since boot, from /proc/<pid>/stat (proc(5)); None for zombies too."""
    text = _text(_PROC / str(pid) / "stat")
    fields = text[text.rindex(")") + 2 :].split() if ")" in text else []
    return float(fields[19]) if len(fields) > 19 and fields[0] not in ("Z", "X") else None


def _boot_time(now: float) -> float:
    """When this host was booted, in seconds since the epoch; long ago where the system does not tell."""
    text = _text(_PROC / "uptime").split()
    return now - float(text[0]) if text else 0.0


def _pid_space() -> str:
    try:
        return str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def now_s() -> float:
    """Return the time that signs of life are stamped with: seconds since the epoch."""
    return time.time()
