"""Process trees of servers: who belongs to one, what it uses, who listens, and how leftovers are taken down.

A process belongs to a server when it is the recorded engine or guard (pid and start time), carries the server's mark
in its environment, sits in the engine's session, or descends from one of these. Nothing is chosen by name or port.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from tuner.runtime.base import Handle, Listener
from tuner.runtime.processes import Process, descendants, process_table, read_process, send_signal

MARK = "LLMTUNE_LAUNCH"
KILL_LIMIT_S = 10.0
_LISTENING = "0A"


def boot_id() -> str:
    """Name of the present boot; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def lives(pid: int | None, created: float | None) -> bool:
    """Whether the process with this pid and start time (ticks since boot) still runs."""
    if pid is None:
        return False
    row = read_process(pid)
    return row is not None and row.created == created and row.state not in "ZX"


def leftovers(handle: Handle) -> list[Process]:
    """Processes of this server that are alive now; empty after a reboot or on another host."""
    if handle.boot != boot_id():
        return []
    table = process_table()
    roots = {
        pid
        for pid, created in ((handle.pid, handle.created), (handle.guard_pid, handle.guard_created))
        if pid in table and table[pid].created == created
    }
    roots |= {row.pid for row in table.values() if _carries(row, handle)}
    tree = {**descendants(table, roots), **{pid: table[pid] for pid in roots}}
    # This process and those above it are never part of a tree, whatever their environment says.
    return [row for row in tree.values() if row.state not in "ZX" and row.pid not in _ancestry(table)]


def _ancestry(table: dict[int, Process]) -> set[int]:
    found: set[int] = set()
    pid = os.getpid()
    while pid in table and pid not in found:
        found.add(pid)
        pid = table[pid].parent
    return found


def _carries(row: Process, handle: Handle) -> bool:
    """Whether a process carries the server's mark, or is of its session and cannot be somebody else's.

    Programs that set their title overwrite their environment, hence the second way. A session's number can be reused
    only when nothing of the session is left; a foreign process in it has an environment of its own, without our mark.
    """
    if row.created < handle.created or row.session == 0:
        return False  # older than the server, or a thread of the kernel
    try:
        environment = Path(f"/proc/{row.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    if handle.mark and f"{MARK}={handle.mark}".encode() in environment:
        return True
    intact = any(entry.startswith((b"PATH=", b"HOME=")) for entry in environment)
    return handle.pid > 1 and row.session == handle.pid and not intact


def take_down(handle: Handle, *, grace_s: float) -> list[int]:
    """End what is left of a server: SIGTERM, `grace_s`, then SIGKILL. Returns pids that would not go."""
    asked: set[int] = set()
    started = time.monotonic()
    while living := leftovers(handle):
        waited = time.monotonic() - started
        if waited > grace_s + KILL_LIMIT_S:
            return sorted(row.pid for row in living)
        for row in living:
            if waited >= grace_s:
                send_signal(row, signal.SIGKILL)
            elif row.pid not in asked:
                asked.add(row.pid)
                send_signal(row, signal.SIGTERM)
        time.sleep(0.03)
    return []


def tree_of(*roots: tuple[int | None, float | None]) -> list[Process]:
    """Rows of these processes, as far as they are still the ones meant, and of all their descendants."""
    table = process_table()
    found = {pid for pid, created in roots if pid is not None and pid in table and table[pid].created == created}
    return [*(table[pid] for pid in found), *descendants(table, found).values()]


def memory_bytes(rows: Iterable[Process]) -> int | None:
    """Proportional set size of the processes together; resident size where the kernel does not tell the former.

    Source: proc(5), smaps_rollup. Reading it holds a process's memory map for a moment: not to be done in a tight loop.
    """
    readings = [reading for row in rows if (reading := _process_memory(row.pid)) is not None]
    return sum(readings) if readings else None


def _process_memory(pid: int) -> int | None:
    for name, field in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        try:
            text = Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for line in text.splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    return None


def cpu_seconds(rows: Iterable[Process], guard_pid: int | None) -> float | None:
    """CPU time of the processes and of their dead, collected children. The guard's own time is left out."""
    ticks = [row.waited_cpu_ticks + (0 if row.pid == guard_pid else row.cpu_ticks) for row in rows]
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None


def listening_inodes(port: int) -> set[str]:
    """Sockets that listen on TCP `port` on any address of this host."""
    suffix = f":{port:04X}"
    found: set[str] = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{name}").read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and fields[1].endswith(suffix):
                    found.add(fields[9])
    return found


def who_listens(port: int, rows: Iterable[Process]) -> Listener:
    """Say whether the listeners on `port` are all held by these processes; `foreign` as soon as one is not."""
    wanted = {f"socket:[{inode}]" for inode in listening_inodes(port)}
    if not wanted:
        return "none"
    for row in rows:
        wanted -= _open_files(row.pid)
    return "foreign" if wanted else "ours"


def _open_files(pid: int) -> set[str]:
    found: set[str] = set()
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(os.readlink(path))  # noqa: PTH115  (a socket is no path)
    return found
