"""Free loopback ports."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from tuner.errors import PortError

TRIES = 200
_LOWEST = 15_000
_CONNECT_S = 0.2


def default_ports() -> Sequence[int]:
    """Ports below the range from which the kernel takes the near end of outgoing connections.

    A port of that range could be taken by any client in the seconds between the choice and the engine's bind.
    """
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        first = 32_768
    return range(_LOWEST, first) if first - _LOWEST >= 1000 else range(_LOWEST, 65_536)


def free_port(host: str, ports: Sequence[int] | None = None) -> int:
    """Choose a port of `ports` at random on which nobody is bound and nobody answers.

    Raises:
        PortError: none of the ports tried is free.

    """
    candidates = default_ports() if ports is None else ports
    for port in random.sample(candidates, min(TRIES, len(candidates))):
        if is_free(host, port) and not answers(host, port):
            return port
    raise PortError(
        f"no free port on {host}: tried {min(TRIES, len(candidates))} of {_span(candidates)}",
        hint="end what listens there, or give another range of ports",
    )


def _span(ports: Sequence[int]) -> str:
    return f"{min(ports)}-{max(ports)}" if ports else "none"


def is_free(host: str, port: int) -> bool:
    """Whether this address and the wildcard address can be bound now; closed connections that linger do not count."""
    for address in (host, "0.0.0.0"):  # noqa: S104  (a test of who else is there; nothing listens)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True


def answers(host: str, port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_S):
            return True
    except OSError:
        return False


def refuses(host: str, port: int) -> bool:
    """Whether connections are refused: nobody listens at this address. Far cheaper than reading the socket table."""
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_S):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


def wait_free(host: str, port: int, timeout_s: float) -> bool:
    """Wait until the port can be bound; False when `timeout_s` passes first."""
    limit = time.monotonic() + timeout_s
    while not is_free(host, port):
        if time.monotonic() >= limit:
            return False
        time.sleep(0.05)
    return True
