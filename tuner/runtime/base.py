"""What a launcher must do: start one server, watch it, and take its whole process tree down on every path."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, Protocol

from tuner.domain.engine import LaunchSpec
from tuner.domain.record import Record

HANDLE_FILE = "handle.json"
LOG_FILE = "engine.log"

Listener = Literal["none", "ours", "foreign"]


class Handle(Record):
    """Enough to find a server again after a crash of llmtune: written as JSON beside the trial, read by `reap`.

    The file is removed once the server is known to be gone, so a file that is there is work for `reap`.

    A process is named by its pid together with its start time (clock ticks since boot, as the kernel counts them) and
    the boot it belongs to, so a reused pid is never taken for ours. `pid` is the engine's main process, `guard_pid`
    the watcher above it, `owner_pid` the llmtune that started both. `mark` is a random word that the engine's
    processes carry in their environment. `log` is relative to the handle's folder.
    """

    launcher: str
    pid: int
    created: float
    host: str
    port: int
    log: str = LOG_FILE
    guard_pid: int | None = None
    guard_created: float | None = None
    owner_pid: int | None = None
    owner_created: float | None = None
    boot: str = ""
    mark: str = ""


class Teardown(Record):
    """How a server ended. Times in seconds.

    `engine_s` is the engine's own: from the request to stop until its tree was gone. `check_s` is llmtune's: looking
    for leftovers and waiting for the port. `forced` says that SIGKILL was needed, `left` names pids that would not go,
    `lost_log_bytes` is output that could not be written (a full disk).
    """

    engine_s: float
    check_s: float
    forced: bool
    left: tuple[int, ...]
    port_free: bool
    lost_log_bytes: int = 0

    @property
    def clean(self) -> bool:
        """Whether the process tree is gone and the port is free."""
        return self.port_free and not self.left


class Server(Protocol):
    """A started server. It may still be loading, and it may already be dead."""

    handle: Handle
    log_path: Path
    launch_s: float
    """Seconds that llmtune took to have the engine's process running."""
    teardown: Teardown | None
    """Set once the server was taken down."""

    @property
    def url(self) -> str:
        """Base URL on loopback, without a slash at the end."""
        ...

    def exit_code(self) -> int | None:
        """Exit code of the server's main process, or None while it runs; -N when signal N ended it."""
        ...

    def listener(self) -> Listener:
        """Who listens on our port: nobody, this server or a descendant of it, or (also) somebody else."""
        ...

    def owns_listener(self) -> bool:
        """Whether the process that listens on our port is this server or one of its descendants."""
        ...

    def log_text(self) -> str:
        """Everything that the server has logged so far."""
        ...

    def log_complete(self) -> bool:
        """Whether the whole process tree is gone and its last words are in the log."""
        ...

    def fault(self) -> str | None:
        """What broke on our side and not the engine's, so that its end says nothing about the configuration."""
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

        Leaving the context takes the whole process tree down and returns when it is gone and the port is free; the
        server's `teardown` says whether that came true.

        Raises:
            EngineError: the program cannot be started at all.
            PortError: no loopback port is free.
            OutputError: `folder` cannot be written.

        """
        ...

    def reap(self, handle: Handle) -> bool:
        """Take down what is left of a server of an earlier, dead llmtune. True if there was something left.

        A server whose llmtune still lives, in another process than this one, is left alone.
        """
        ...
