"""The guard: a small program between llmtune and the engine, so that no process is ever left behind.

It is run by `python -I -S -c`, so it and what it imports use the standard library only; its environment becomes the
engine's. It starts the engine in a session of its own, reads its output, takes secrets out of it and appends it to the
log. As a child subreaper it inherits every orphan of the tree. It ends the tree (SIGTERM to the engine's group, a
grace, SIGKILL until nothing is left) when it is told to, when llmtune is gone in whatever way, and when the engine's
main process has exited. When the guard itself is killed, the kernel kills the engine's main process.

    stdin   one JSON line {"command": [...], "log": path, "grace_s": s, "secrets": [names], "parent": pid}, then lines
            `stop` (as described) or `kill` (at once); the end of the stream means the same as `stop`
    stdout  JSON lines {"event": "started", "pid", "created"} | {"event": "failed", "reason"} | {"event": "exited",
            "code"} | {"event": "gone", "forced", "left", "lost_bytes"}
    exit    the engine's own code; 128 + N when signal N ended it; 125 when it could not be started

Processes are only ever chosen because they descend from this one, never by name or port.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import time

from tuner.runtime.processes import Process, descendants, open_process, process_table, read_process, send_signal
from tuner.runtime.redact import Redactor

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CANNOT_START = 125
ORPHAN_GRACE_S = 2.0
GIVE_UP_S = 10.0
END_POLL_MS = 50
PARENT_POLL_MS = 1000


class Log:
    """The engine's log file. A full disk must not stop the reading, or the engine would block on its output."""

    def __init__(self, path: str, redactor: Redactor) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._redactor = redactor
        self.lost_bytes = 0

    def feed(self, data: bytes) -> None:
        """Append output of the engine."""
        self._write(self._redactor.feed(data))

    def finish(self) -> None:
        """Append what is still held back."""
        self._write(self._redactor.finish())

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._file, data) :]
            except OSError:
                self.lost_bytes += len(data)
                return


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process; a kernel that refuses is lived with, the other nets still hold."""
    zero = ctypes.c_ulong(0)
    ctypes.CDLL(None).prctl(ctypes.c_int(option), ctypes.c_ulong(value), zero, zero, zero)


def start_engine(command: list[str], output: int) -> int:
    """Fork and execute `command` in a session of its own with `output` as stdout and stderr; return its pid.

    Raises:
        OSError: the program cannot be executed.

    """
    guard = os.getpid()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _become_engine(command, output, guard)
        except OSError as error:
            os.write(writer, str(error.errno or 1).encode())
        finally:
            os._exit(127)
    os.close(writer)
    problem = os.read(reader, 16)
    os.close(reader)
    if problem:
        os.waitpid(pid, 0)
        number = int(problem)
        raise OSError(number, os.strerror(number), command[0])
    return pid


def _become_engine(command: list[str], output: int, guard: int) -> None:
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        os._exit(127)
    # Should memory run out, the kernel is to choose the engine and not llmtune or a neighbour.
    with contextlib.suppress(OSError):
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(descriptor, b"500")
        os.close(descriptor)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.execvp(command[0], command)  # noqa: S606


class Guard:
    """Watches one engine from its start until nothing of its tree is left."""

    def __init__(self, log: Log, grace_s: float, parent: int) -> None:
        self._log = log
        self._grace_s = grace_s
        self._poll = select.poll()
        self._alarm, alarm_writer = os.pipe()
        self._output = -1
        self._parent = parent
        self._commands = b""
        self._engine = 0
        self._code: int | None = None
        self._stage = "run"
        self._deadline = 0.0
        self._warned: set[int] = set()
        self._forced = False
        for descriptor in (self._alarm, alarm_writer):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(alarm_writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._stop())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for descriptor in (0, self._alarm):
            self._poll.register(descriptor, select.POLLIN)
        # The pipe can be held open by a fork of llmtune; its process descriptor cannot.
        self._parent_end = open_process(parent)
        if self._parent_end is not None:
            self._poll.register(self._parent_end, select.POLLIN)

    def start(self, command: list[str]) -> None:
        """Start the engine and report its pid, or the reason why it cannot be started."""
        self._output, writer = os.pipe()
        os.set_blocking(self._output, False)
        self._engine = start_engine(command, writer)
        os.close(writer)
        self._poll.register(self._output, select.POLLIN)
        row = read_process(self._engine)
        report(event="started", pid=self._engine, created=row.created if row else 0.0)

    def watch(self) -> int:
        """Return the engine's exit code (128 + N for signal N) when its whole tree is gone."""
        left: list[int] = []
        while True:
            self._turn()
            self._reap()
            if self._stage == "run" and self._code is None:
                continue
            living = self._tree()
            if self._code is not None and not living:
                break
            if not self._end(living):
                left = sorted(row.pid for row in living)
                break
        self._read_output()
        self._log.finish()
        report(event="gone", forced=self._forced, left=left, lost_bytes=self._log.lost_bytes)
        code = -signal.SIGKILL if self._code is None else self._code
        return 128 - code if code < 0 else code

    def kill(self) -> None:
        """Take everything down at once; the last resort when the guard itself goes wrong."""
        limit = time.monotonic() + GIVE_UP_S
        while (living := self._tree()) and time.monotonic() < limit:
            for row in living:
                send_signal(row, signal.SIGKILL)
            time.sleep(0.02)

    def _turn(self) -> None:
        patience = None if self._parent_end is not None else PARENT_POLL_MS
        for descriptor, _ in self._poll.poll(patience if self._stage == "run" else END_POLL_MS):
            if descriptor == self._output:
                self._read_output()
            elif descriptor == self._alarm:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._alarm, 4096)
            elif descriptor == self._parent_end:
                self._poll.unregister(descriptor)
                self._stop()
            else:
                self._read_command()
        if os.getppid() != self._parent:
            self._stop()

    def _read_output(self) -> None:
        # Bounded, so that a flood of output never keeps the guard from its other duties.
        for _ in range(64):
            try:
                data = os.read(self._output, 65536)
            except BlockingIOError:
                return
            if not data:
                with contextlib.suppress(KeyError):
                    self._poll.unregister(self._output)
                return
            self._log.feed(data)

    def _read_command(self) -> None:
        data = os.read(0, 4096)
        if not data:
            self._poll.unregister(0)
            self._stop()
            return
        *lines, self._commands = (self._commands + data).split(b"\n")
        for line in lines:
            self._stop()
            if line == b"kill" and self._stage == "term":
                self._deadline = 0.0

    def _stop(self) -> None:
        if self._stage == "run":
            self._stage = "term"
            self._deadline = time.monotonic() + self._grace_s

    def _reap(self) -> None:
        """Collect dead orphans. The engine stays a zombie to the very end, which keeps its group's number ours."""
        while self._code is None:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if dead is None:
                return
            if dead.si_pid == self._engine:
                self._engine_exited(dead.si_code, dead.si_status)
            else:
                os.waitpid(dead.si_pid, 0)

    def _engine_exited(self, how: int, status: int) -> None:
        self._code = status if how == os.CLD_EXITED else -status
        self._read_output()
        report(event="exited", code=self._code)
        orphans_until = time.monotonic() + min(self._grace_s, ORPHAN_GRACE_S)
        if self._stage == "run":
            self._stage, self._deadline = "term", orphans_until
        elif self._stage == "term":
            self._deadline = min(self._deadline, orphans_until)

    def _tree(self) -> list[Process]:
        """Everything alive below the guard or in the engine's session; its dead children are collected by the way."""
        table = process_table()
        roots = {os.getpid()} | {row.pid for row in table.values() if row.session == self._engine}
        tree = {**descendants(table, roots), **{pid: table[pid] for pid in roots if pid in table}}
        del tree[os.getpid()]
        for row in tree.values():
            if row.state == "Z" and row.parent == os.getpid() and row.pid != self._engine:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(row.pid, os.WNOHANG)
        return [row for row in tree.values() if row.state not in "ZX"]

    def _end(self, living: list[Process]) -> bool:
        """Push the tree one step nearer to its end; False when even SIGKILL has not worked for long."""
        now = time.monotonic()
        if self._stage == "term" and now >= self._deadline:
            self._stage = "kill"
            self._deadline = now + GIVE_UP_S
        if self._stage == "kill":
            self._forced = self._forced or bool(living)
            for row in living:
                send_signal(row, signal.SIGKILL)
            return now < self._deadline
        if self._engine not in self._warned:
            self._warned.update({self._engine, *(row.pid for row in living if row.group == self._engine)})
            with contextlib.suppress(OSError):
                os.killpg(self._engine, signal.SIGTERM)
        # Those that left the group are asked too, but only once the main process had its chance to end them in order.
        for row in living if self._code is not None else []:
            if row.pid not in self._warned:
                self._warned.add(row.pid)
                send_signal(row, signal.SIGTERM)
        return True


def report(**message: object) -> None:
    """Tell llmtune, if it is still there."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(message).encode() + b"\n")


def read_order() -> dict[str, object] | None:
    """Read the first line of stdin; None when llmtune went away before it was sent."""
    text = b""
    while not text.endswith(b"\n"):
        data = os.read(0, 1)
        if not data:
            return None
        text += data
    order = json.loads(text)
    return order if isinstance(order, dict) else None


def main() -> int:
    """Run one engine; return the exit code that the module describes."""
    order = read_order()
    if order is None:
        return CANNOT_START
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    command, names = order["command"], order["secrets"]
    if not isinstance(command, list) or not isinstance(names, list):
        return CANNOT_START
    secrets = [os.environb[name.encode()] for name in names if name.encode() in os.environb]
    try:
        log = Log(str(order["log"]), Redactor(secrets))
        guard = Guard(log, float(str(order["grace_s"])), int(str(order["parent"])))
        guard.start(command)
    except OSError as error:
        report(event="failed", reason=f"{error.strerror}: {error.filename}")
        return CANNOT_START
    try:
        return guard.watch()
    finally:
        guard.kill()
