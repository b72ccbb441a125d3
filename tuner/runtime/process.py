"""The launcher that runs engines as processes of this host, each under a guard of its own."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from tuner.domain.engine import LaunchSpec
from tuner.errors import EngineError, OutputError
from tuner.runtime import ports, tree
from tuner.runtime.base import HANDLE_FILE, LOG_FILE, Handle, Listener, Teardown
from tuner.runtime.environment import engine_environment
from tuner.runtime.guard import GIVE_UP_S, ORPHAN_GRACE_S
from tuner.runtime.processes import Process, read_process

START_LIMIT_S = 60.0
PORT_LIMIT_S = 5.0
# Appended, never put in front: the standard library must keep its names. Imported, so that its byte code is cached.
_HOME = str(Path(__file__).parents[2])
_GUARD = f"import sys; sys.path.append({_HOME!r}); from tuner.runtime.guard import main; sys.exit(main())"


class ProcessServer:
    """One engine process tree. Made by `ProcessLauncher.start`, ended by `close`."""

    def __init__(self, guard: subprocess.Popen[bytes], folder: Path, grace_s: float) -> None:
        self.log_path = folder / LOG_FILE
        self.launch_s = 0.0
        self.teardown: Teardown | None = None
        self.handle = Handle(launcher=ProcessLauncher.name, pid=0, created=0, host="", port=0)
        self._guard = guard
        self._grace_s = grace_s
        self._log_start = self.log_path.stat().st_size
        self._unread = b""
        self._code: int | None = None
        self._gone: dict[str, object] | None = None
        self._reading = threading.Lock()

    @property
    def url(self) -> str:
        """Base URL on loopback, without a slash at the end."""
        return f"http://{self.handle.host}:{self.handle.port}"

    def exit_code(self) -> int | None:
        """Exit code of the engine's main process, or None while it runs; -N when signal N ended it."""
        self._listen(0)
        ended = self._guard.poll() is not None
        if ended:
            self._listen(0)
        # A guard that died without a word: the kernel has killed the engine's main process with it.
        return -signal.SIGKILL if ended and self._code is None else self._code

    def listener(self) -> Listener:
        """Who listens on our port."""
        if ports.refuses(self.handle.host, self.handle.port):
            return "none"
        return tree.who_listens(self.handle.port, self._rows())

    def owns_listener(self) -> bool:
        """Whether every process that listens on our port is this engine or one of its descendants."""
        return self.listener() == "ours"

    def log_text(self) -> str:
        """Everything that this engine has logged so far, without secrets; not what an earlier try left in the file."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def log_complete(self) -> bool:
        """Whether the whole process tree is gone and its last words are in the log."""
        self._listen(0)
        return self._gone is not None or self._guard.poll() is not None

    def fault(self) -> str | None:
        """Say so when the guard was killed: the engine's end is then not its own doing."""
        self.exit_code()
        if self._code is None and self._guard.poll() is not None:
            return f"the guard of the engine ended by itself (exit code {self._guard.returncode})"
        return None

    def memory_bytes(self) -> int | None:
        """Proportional memory of the engine's tree, in bytes."""
        return tree.memory_bytes(row for row in self._rows() if row.pid != self.handle.guard_pid)

    def cpu_seconds(self) -> float | None:
        """CPU time of the engine's tree so far, its dead processes included."""
        return tree.cpu_seconds(self._rows(), self.handle.guard_pid)

    def _rows(self) -> list[Process]:
        handle = self.handle
        return tree.tree_of((handle.guard_pid, handle.guard_created), (handle.pid, handle.created))

    def send(self, line: str) -> None:
        """Send one line to the guard; a guard that is gone has done its work already."""
        pipe = self._guard.stdin
        if pipe is not None and not pipe.closed:
            with contextlib.suppress(OSError):
                pipe.write(f"{line}\n".encode())
                pipe.flush()

    def await_start(self) -> tuple[int, float]:
        """Wait for the guard's word that the engine runs; return pid and start time.

        Raises:
            EngineError: the program cannot be executed.

        """
        limit = time.monotonic() + START_LIMIT_S
        while time.monotonic() < limit:
            for message in self._listen(0.5):
                if message["event"] == "started":
                    return int(str(message["pid"])), float(str(message["created"]))
                if message["event"] == "failed":
                    raise EngineError(f"the engine cannot be started: {message['reason']}")
            if self._guard.poll() is not None:
                break
        raise EngineError(f"the engine's guard did not start; see {self.log_path}")

    def _listen(self, timeout_s: float) -> list[dict[str, object]]:
        """Read what the guard has to say, waiting up to `timeout_s` for something to come."""
        pipe = self._guard.stdout
        messages: list[dict[str, object]] = []
        with self._reading:
            while pipe is not None and not pipe.closed and _readable(pipe.fileno(), timeout_s):
                data = os.read(pipe.fileno(), 65536)
                if not data:
                    pipe.close()
                    break
                *lines, self._unread = (self._unread + data).split(b"\n")
                messages += [json.loads(line) for line in lines]
                timeout_s = 0
            for message in messages:
                if message["event"] == "exited":
                    self._code = int(str(message["code"]))
                elif message["event"] == "gone":
                    self._gone = message
        return messages

    def close(self) -> None:
        """Take the tree down and wait until it is gone and the port is free; `teardown` then says how it went.

        Ctrl-C meanwhile ends the engine at once instead of gently, and is raised again when all is done.
        """
        if self.teardown is not None:
            return
        started = time.monotonic()
        interrupted = False
        try:
            self._end("stop")
        except KeyboardInterrupt:
            interrupted = True
            self._end("kill")
        ended = time.monotonic()
        left = tree.take_down(self.handle, grace_s=0.0 if self._gone else ORPHAN_GRACE_S)
        free = not self.handle.port or ports.wait_free(self.handle.host, self.handle.port, PORT_LIMIT_S)
        self.exit_code()
        self.teardown = Teardown(
            engine_s=ended - started,
            check_s=time.monotonic() - ended,
            forced=self._gone is None or bool(self._gone["forced"]),
            left=tuple(left),
            port_free=free,
            lost_log_bytes=int(str(self._gone["lost_bytes"])) if self._gone else 0,
        )
        if self.teardown.clean:
            with contextlib.suppress(OSError):
                self.log_path.with_name(HANDLE_FILE).unlink(missing_ok=True)
        if interrupted:
            raise KeyboardInterrupt

    def _end(self, word: str) -> None:
        guard = self._guard
        self.send(word)
        limit = time.monotonic() + self._grace_s + ORPHAN_GRACE_S + GIVE_UP_S
        while time.monotonic() < limit and self._gone is None and not self._silent():
            self._listen(0.05)
        try:
            guard.wait(GIVE_UP_S if self._gone else ORPHAN_GRACE_S)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
        for pipe in (guard.stdin, guard.stdout):
            if pipe is not None and not pipe.closed:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _silent(self) -> bool:
        return self._guard.stdout is None or self._guard.stdout.closed


class ProcessLauncher:
    """Runs engines on this host (Linux). `program` replaces the first words of every spec, e.g. by a stand-in.

    `environment` is what engines inherit from (default: this process's), `ports` the ports to choose from, `grace_s`
    the seconds between SIGTERM and SIGKILL.
    """

    name = "process"

    def __init__(
        self,
        *,
        program: tuple[str, ...] | None = None,
        environment: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        ports: Sequence[int] | None = None,
        grace_s: float = 10.0,
    ) -> None:
        self._program = program
        self._environment = environment
        self._host = host
        self._ports = ports
        self._grace_s = grace_s

    @contextlib.contextmanager
    def start(self, spec: LaunchSpec, folder: Path) -> Iterator[ProcessServer]:
        """Start `spec` on a free loopback port with `engine.log` and `handle.json` in `folder`.

        Raises:
            EngineError: the program cannot be started at all.
            PortError: no port is free.
            OutputError: `folder` cannot be written.

        """
        started = time.monotonic()
        if sys.platform != "linux":
            raise EngineError(
                f"engines are started on Linux only, not on {sys.platform}",
                hint="run llmtune where the engine is to run",
            )
        if self._program is not None:
            spec = spec.model_copy(update={"program": self._program})
        spec = spec.model_copy(update={"program": (_find(spec.program[0]), *spec.program[1:])})
        port = ports.free_port(self._host, self._ports)
        server = self._start_guard(spec, folder)
        try:
            _write_files(spec, folder)
            self._start_engine(server, spec, port, folder)
            server.launch_s = time.monotonic() - started
            yield server
        finally:
            server.close()

    def reap(self, handle: Handle) -> bool:
        """Take down what is left of a server of an earlier, dead llmtune. True if there was something left."""
        owner_lives = tree.lives(handle.owner_pid, handle.owner_created) and handle.boot == tree.boot_id()
        if owner_lives and handle.owner_pid != os.getpid():
            return False
        if not tree.leftovers(handle):
            return False
        tree.take_down(handle, grace_s=self._grace_s)
        return True

    def _start_guard(self, spec: LaunchSpec, folder: Path) -> ProcessServer:
        ambient = os.environ if self._environment is None else self._environment
        mark = secrets.token_hex(8)
        env = {**engine_environment(spec, ambient), tree.MARK: mark}
        with _open_log(folder) as log:
            guard = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _GUARD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
                start_new_session=True,
            )
        server = ProcessServer(guard, folder, self._grace_s)
        row, owner = read_process(guard.pid), read_process(os.getpid())
        server.handle = Handle(
            launcher=self.name,
            pid=0,
            created=row.created if row else 0.0,
            host=self._host,
            port=0,
            guard_pid=guard.pid,
            guard_created=row.created if row else None,
            owner_pid=os.getpid(),
            owner_created=owner.created if owner else None,
            boot=tree.boot_id(),
            mark=mark,
        )
        return server

    def _start_engine(self, server: ProcessServer, spec: LaunchSpec, port: int, folder: Path) -> None:
        order = {
            "command": spec.command(self._host, port, str(folder.absolute())),
            "log": str(server.log_path),
            "grace_s": self._grace_s,
            "secrets": spec.secret_env,
            "parent": os.getpid(),
        }
        server.send(json.dumps(order))
        pid, created = server.await_start()
        server.handle = server.handle.model_copy(update={"pid": pid, "created": created, "port": port})
        write_handle(server.handle, folder)


def _write_files(spec: LaunchSpec, folder: Path) -> None:
    for file in spec.files:
        path = folder / file.name
        try:
            path.write_text(file.text, encoding="utf-8")
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror}") from error


def write_handle(handle: Handle, folder: Path) -> None:
    """Write `handle.json` whole or not at all.

    Raises:
        OutputError: `folder` cannot be written.

    """
    path = folder / HANDLE_FILE
    draft = folder / f"{HANDLE_FILE}.new"
    try:
        draft.write_text(handle.model_dump_json(indent=2) + "\n", encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


def _readable(descriptor: int, timeout_s: float) -> bool:
    # select() fails on descriptors above 1023, which a load with many connections reaches.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _open_log(folder: Path) -> BinaryIO:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / LOG_FILE).open("ab")
    except OSError as error:
        raise OutputError(f"cannot write the trial's folder {folder}: {error.strerror}") from error


def _find(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise EngineError(
            f"the engine's program {program} is not there or cannot be executed",
            hint="check --engine-command",
        )
    return str(Path(found).absolute())
