"""What the operating system allows one process: file descriptors and ports."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

from tuner.errors import UsageError

OTHER_FILES = 128
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def allow_connections(count: int) -> None:
    """Make room for this many connections at once, raising the soft limit of open files as far as the hard one.

    Raises:
        UsageError: when the hard limit, or the range of local ports, is too small; nothing was opened yet.

    """
    needed = count + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise UsageError(
                f"{count} connections need {needed} open files, and this process may have {hard}",
                hint=f"raise the limit (ulimit -Hn {needed}) or ask for fewer streams",
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    ports = local_ports()
    if ports is not None and count > ports:
        raise UsageError(
            f"{count} connections to one server need as many local ports, and there are {ports}",
            hint="widen net.ipv4.ip_local_port_range or ask for fewer streams",
        )


def local_ports() -> int | None:
    """Return how many local ports connections may use, or None where the system does not say."""
    with contextlib.suppress(OSError, ValueError):
        low, high = PORT_RANGE.read_text().split()
        return int(high) - int(low) + 1
    return None
