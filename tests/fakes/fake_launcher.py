"""A launcher without processes: the truth server in a thread, and deaths on demand. For tests of what uses launchers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.fakes.truth_server import Behaviour, InThread
from tuner.domain.engine import LaunchSpec
from tuner.errors import EngineError
from tuner.runtime.base import HANDLE_FILE, LOG_FILE, Handle, Listener, Teardown


@dataclass(frozen=True)
class Death:
    """How a server ends by itself: exit code, last words in the log, seconds after the start."""

    exit_code: int = 1
    log: str = ""
    after_s: float = 0.0


class FakeServer:
    """One server of the fake launcher. `kill` ends it as if it had crashed."""

    def __init__(self, handle: Handle, log_path: Path, death: Death | None) -> None:
        self.handle = handle
        self.log_path = log_path
        self.launch_s = 0.0
        self.teardown: Teardown | None = None
        self.broken: str | None = None
        self._started = time.monotonic()
        self._death = death
        self._code: int | None = None
        self._stop: Callable[[], None] | None = None

    @property
    def url(self) -> str:
        return f"http://{self.handle.host}:{self.handle.port}"

    def serve(self, stop: Callable[[], None]) -> None:
        self._stop = stop

    def kill(self, exit_code: int = -9, log: str = "") -> None:
        if self._code is None:
            self._code = exit_code
            with self.log_path.open("a", encoding="utf-8") as file:
                file.write(log + "\n" if log else "")
            if self._stop is not None:
                self._stop()

    def exit_code(self) -> int | None:
        if self._death is not None and time.monotonic() - self._started >= self._death.after_s:
            self.kill(self._death.exit_code, self._death.log)
        return self._code

    def listener(self) -> Listener:
        return "ours" if self._stop is not None and self.exit_code() is None else "none"

    def owns_listener(self) -> bool:
        return self.listener() == "ours"

    def log_text(self) -> str:
        return self.log_path.read_text(encoding="utf-8")

    def log_complete(self) -> bool:
        return self._code is not None

    def fault(self) -> str | None:
        return self.broken

    def memory_bytes(self) -> int | None:
        return 123 << 20

    def cpu_seconds(self) -> float | None:
        return time.monotonic() - self._started


class FakeLauncher:
    """`behave` says how the server of a spec answers, `die` how it ends by itself (None: it lives).

    `started` keeps every spec that was started, `reaped` every handle that was given to `reap`.
    """

    name = "fake"

    def __init__(
        self,
        behave: Callable[[LaunchSpec], Behaviour] = lambda _: Behaviour(ttft_ms=2.0, itl_ms=1.0),
        die: Callable[[LaunchSpec], Death | None] = lambda _: None,
    ) -> None:
        self._behave = behave
        self._die = die
        self.started: list[LaunchSpec] = []
        self.reaped: list[Handle] = []
        self.servers: list[FakeServer] = []

    @contextmanager
    def start(self, spec: LaunchSpec, folder: Path) -> Iterator[FakeServer]:
        if spec.program[0].startswith("/nowhere"):
            raise EngineError(f"the engine's program {spec.program[0]} is not there")
        self.started.append(spec)
        folder.mkdir(parents=True, exist_ok=True)
        log_path = folder / LOG_FILE
        log_path.write_text("Application startup complete.\n", encoding="utf-8")
        truth = InThread(replace(self._behave(spec), model=spec.served_name))
        truth.__enter__()
        stopped: list[bool] = []

        def stop() -> None:
            if not stopped:
                stopped.append(True)
                truth.__exit__()

        handle = Handle(launcher=self.name, pid=1, created=0.0, host="127.0.0.1", port=truth.server.port)
        server = FakeServer(handle, log_path, self._die(spec))
        server.serve(stop)
        self.servers.append(server)
        (folder / HANDLE_FILE).write_text(handle.model_dump_json(), encoding="utf-8")
        try:
            yield server
        finally:
            server.kill(0)
            (folder / HANDLE_FILE).unlink(missing_ok=True)
            server.teardown = Teardown(engine_s=0.0, check_s=0.0, forced=False, left=(), port_free=True)

    def reap(self, handle: Handle) -> bool:
        self.reaped.append(handle)
        return False
