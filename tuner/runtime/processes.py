"""The kernel's process table, read from /proc (proc(5)), and signals that cannot hit the wrong process.

Standard library only and light to import: the guard uses it too.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import NamedTuple


class Process(NamedTuple):
    """One row of the kernel's process table; `created` in clock ticks since boot."""

    pid: int
    parent: int
    group: int
    session: int
    state: str
    created: float
    cpu_ticks: int
    waited_cpu_ticks: int


def read_process(pid: int) -> Process | None:
    """Read /proc/<pid>/stat; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  (pathlib costs the guard start-up time)
            text = file.read()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    number = [int(field) for field in fields[1:20]]
    return Process(
        pid=pid,
        parent=number[0],
        group=number[1],
        session=number[2],
        state=fields[0].decode(),
        created=float(number[18]),
        cpu_ticks=number[10] + number[11],
        waited_cpu_ticks=number[12] + number[13],
    )


def process_table() -> dict[int, Process]:
    """Every process that can be seen now, by pid."""
    rows = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return {row.pid: row for row in rows if row is not None}


def descendants(table: dict[int, Process], roots: set[int]) -> dict[int, Process]:
    """Rows of `table` whose chain of parents reaches one of `roots`; the roots themselves are not among them."""
    children: dict[int, list[Process]] = {}
    for row in table.values():
        children.setdefault(row.parent, []).append(row)
    found: dict[int, Process] = {}
    waiting = list(roots)
    while waiting:
        for row in children.get(waiting.pop(), ()):
            if row.pid not in found and row.pid not in roots:
                found[row.pid] = row
                waiting.append(row.pid)
    return found


def send_signal(process: Process, number: int) -> None:
    """Signal exactly this process: a pid that meanwhile names another one is left alone."""
    descriptor = open_process(process.pid)
    try:
        now = read_process(process.pid)
        if now is None or now.created != process.created:
            return
        with contextlib.suppress(OSError):
            if descriptor is None:
                os.kill(process.pid, number)
            else:
                signal.pidfd_send_signal(descriptor, number)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def open_process(pid: int) -> int | None:
    """Return a descriptor that stands for the process and becomes readable at its end.

    None when there is no such process, or when the kernel, a sandbox or this Python has no such descriptors.
    """
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None
