"""What a launcher must do: start one server, watch it, and take its whole process tree down on every path."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from tuner.domain.engine import LaunchSpec
from tuner.domain.record import Record


class Handle(Record):
    """Enough to find a server again after a crash of llmtune: written as JSON beside the trial, read by `reap`.

    A process is named by its pid together with its start time, so a reused pid is never taken for ours.
    """

    launcher: str
    pid: int
    created: float
    host: str
    port: int
    log: str


class Server(Protocol):
    """A started server. It may still be loading, and it may already be dead."""

    handle: Handle
    log_path: Path

    @property
    def url(self) -> str:
        """Base URL on loopback, without a slash at the end."""
        ...

    def exit_code(self) -> int | None:
        """Exit code of the server's main process, or None while it runs."""
        ...

    def owns_listener(self) -> bool:
        """Whether the process that listens on our port is this server or one of its descendants."""
        ...

    def log_text(self) -> str:
        """Everything that the server has logged so far."""
        ...

    def memory_bytes(self) -> int | None:
        """Resident memory of the whole process tree now, shared pages counted once where the system can tell."""
        ...

    def cpu_seconds(self) -> float | None:
        """CPU time of the whole process tree so far."""
        ...


class Launcher(Protocol):
    """One way to run servers."""

    name: str

    def start(self, spec: LaunchSpec, folder: Path) -> AbstractContextManager[Server]:
        """Start `spec` on a free loopback port with its log and handle in `folder`.

        Leaving the context takes the whole process tree down and returns when it is gone and the port is free.

        Raises:
            EngineError: the program cannot be started at all.
            PortError: no loopback port is free.

        """
        ...

    def reap(self, handle: Handle) -> bool:
        """Take down what is left of a server of an earlier, dead llmtune. True if there was something left."""
        ...
