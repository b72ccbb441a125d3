"""Sends requests on schedule over one event loop, and returns what came back."""

from __future__ import annotations

import asyncio
import ssl
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any

from tuner.domain.load_record import INTERRUPTED, LoadRun, RequestRecord
from tuner.domain.workload import Arrivals
from tuner.load.arrivals import Schedule, by_session
from tuner.load.client import Exchange, Pool
from tuner.load.clock import Alarm
from tuner.load.limits import allow_connections
from tuner.load.loop import loop_factory, without_collector
from tuner.load.prompts import Request
from tuner.load.records import to_record
from tuner.load.reply import Reply
from tuner.load.target import Target

TICK_S = 0.1
LAG_SAMPLE_S = 0.02
CONNECT_TIMEOUT_S = 30.0
SPARE_CONNECTIONS = 4
HOPELESS_FAILURES = 20
BOOKED_AT_ONCE = 4
OLD_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, warm-up included."""

    total: int
    done: int
    failed: int
    in_flight: int
    output_tokens: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Hooks:
    """What is told and asked during a run. All are called in the loop that measures, so they must be quick."""

    on_progress: Callable[[Progress], None] | None = None
    on_record: Callable[[RequestRecord], None] | None = None
    """Each request as it ends; those that are cut off come last."""
    stop: Callable[[], str | None] | None = None
    """Asked ten times a second; a text ends the run at once and becomes `LoadRun.stopped`."""


def drive(
    target: Target,
    requests: Sequence[Request],
    arrivals: Arrivals,
    plan: Schedule,
    *,
    timeout_s: float,
    hooks: Hooks | None = None,
    start_ns: int | None = None,
) -> LoadRun:
    """Send `requests` as `plan` says, from `start_ns` (CLOCK_MONOTONIC) or from when the connections are open.

    Ctrl-C ends the run like `Hooks.stop`, with `stopped` "interrupted".

    Raises:
        UsageError: for more connections than this process may open.

    """
    allow_connections(plan.connections)
    driver = _Driver(target, requests, arrivals, plan, hooks=hooks or Hooks(), timeout_s=timeout_s, start_ns=start_ns)
    with without_collector():
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(driver.run())
        except KeyboardInterrupt:  # a signal handler of the program's own raises it in the middle of the loop
            driver.interrupt()
    return driver.conclude()


class _Driver:
    def __init__(
        self,
        target: Target,
        requests: Sequence[Request],
        arrivals: Arrivals,
        plan: Schedule,
        *,
        hooks: Hooks,
        timeout_s: float,
        start_ns: int | None,
    ) -> None:
        self._target = target
        self._requests = requests
        self._arrivals = arrivals
        self._plan = plan
        self._hooks = hooks
        self._timeout_ns = int(timeout_s * 1e9)
        self._start_ns = start_ns
        self._data = {request.id: target.encode(request) for request in requests}
        self._sessions = by_session(requests)[::-1]
        self._left = len(requests)
        self._flying: dict[Exchange, list[Request]] = {}
        self._unbooked: list[tuple[Exchange, int]] = []
        self._records: list[RequestRecord] = []
        self._failed = 0
        self._failed_in_a_row = 0
        self._tokens = 0
        self._lag = array("q")
        self._stopped: str | None = None
        self._over = asyncio.Event()
        self._defect: BaseException | None = None
        self._started_ns, self._wall, self._cpu = monotonic_ns(), time.time(), time.process_time()
        self._ended_ns: int | None = None

    async def run(self) -> None:
        """Send everything; `conclude` has the result, whichever way this ends."""
        loop = self._loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._broken)
        self._pool = Pool(self._target, loop)
        self._alarm = Alarm(loop, self._send_due)
        side = [asyncio.ensure_future(self._tick()), asyncio.ensure_future(self._watch_lag())]
        try:
            await self._pool.open(self._plan.connections, CONNECT_TIMEOUT_S)
            if self._start_ns is not None:
                await asyncio.sleep((self._start_ns - monotonic_ns()) / 1e9)
            self._started_ns, self._wall, self._cpu = monotonic_ns(), time.time(), time.process_time()
            if self._requests:
                self._begin(self._start_ns or self._started_ns)
                await self._over.wait()
        except asyncio.CancelledError:
            self.interrupt()
        self._over.set()
        self._end_clock()
        for task in side:
            task.cancel()
        await asyncio.gather(*side, return_exceptions=True)
        self._alarm.close()
        await self._pool.close()

    def interrupt(self) -> None:
        """Note that the user stopped the run."""
        self._stopped = INTERRUPTED

    def conclude(self) -> LoadRun:
        """Return what the run saw; requests still under way count as interrupted."""
        ended_ns = self._end_clock()
        if self._defect is not None:
            raise self._defect
        self._book_all()
        for exchange in list(self._flying):
            if exchange.connection is not None:
                exchange.connection.read_rest()
            exchange.reply.fail(INTERRUPTED, self._stopped or "")
            del self._flying[exchange]
            self._record(exchange, ended_ns)
        self._report()
        place = {request.id: index for index, request in enumerate(self._requests)}
        return LoadRun(
            arrivals=self._arrivals, records=tuple(sorted(self._records, key=lambda record: place[record.id])),
            started_ns=self._started_ns, ended_ns=ended_ns, wall_start=self._wall, cpu_s=self._cpu_s,
            lag_ns=self._lag, reads=self._pool.inbox.reads, multi_event_reads=self._pool.inbox.multi_event_reads,
            stopped=self._stopped,
        )

    def _end_clock(self) -> int:
        if self._ended_ns is None:
            self._ended_ns, self._cpu_s = monotonic_ns(), time.process_time() - self._cpu
        return self._ended_ns

    def _begin(self, origin_ns: int) -> None:
        origin = self._loop.time() + (origin_ns - monotonic_ns()) / 1e9
        if self._plan.open_loop:
            self._due = sorted(zip(self._plan.times, self._requests, strict=True), key=lambda due: due[0])[::-1]
            self._sessions.clear()
            self._origin_ns = origin_ns
            self._send_due()
            return
        for offset in self._plan.clients:
            self._loop.call_at(origin + offset, self._client_is_free, origin_ns + int(offset * 1e9))

    def _send_due(self) -> None:
        """Send what is due by the clock, and come back for the next."""
        while self._due and not self._over.is_set():
            due_ns = self._origin_ns + int(self._due[-1][0] * 1e9)
            if due_ns > monotonic_ns():
                self._alarm.set(due_ns)
                return
            self._send(self._due.pop()[1], due_ns, [])
            if self._pool.idle < SPARE_CONNECTIONS:
                self._pool.spare()

    def _client_is_free(self, now_ns: int) -> None:
        """Let a client begin its next session, if there is one left."""
        if self._sessions and not self._over.is_set():
            first, *later = self._sessions.pop()
            self._send(first, now_ns, later)

    def _send(self, request: Request, scheduled_ns: int, later: list[Request]) -> None:
        if self._over.is_set():
            return
        exchange = Exchange(
            request=request, data=self._data.pop(request.id), scheduled_ns=scheduled_ns,
            deadline_ns=monotonic_ns() + self._timeout_ns,
            reply=Reply(request.output_tokens, must_fill=self._target.ignore_eos), done=self._finished,
        )
        self._flying[exchange] = later
        self._pool.start(exchange)

    def _finished(self, exchange: Exchange, now_ns: int) -> None:
        """Let the client go on; what the answer was is written down when there is time."""
        if exchange not in self._flying:
            return
        later = self._flying.pop(exchange)
        if later:
            after_ns = now_ns + int(later[0].think_s * 1e9)
            self._loop.call_later(later[0].think_s, self._send, later[0], after_ns, later[1:])
        elif not self._plan.open_loop:
            self._client_is_free(now_ns)
        self._unbooked.append((exchange, now_ns))
        if len(self._unbooked) == 1:
            self._loop.call_soon(self._book)

    def _book(self) -> None:
        """Write down some of the answers that have ended, and let the event loop look at its sockets in between."""
        for exchange, now_ns in self._unbooked[:BOOKED_AT_ONCE]:
            self._note(exchange, now_ns)
        del self._unbooked[:BOOKED_AT_ONCE]
        if self._unbooked:
            self._loop.call_soon(self._book)
        elif not self._left:
            self._over.set()

    def _book_all(self) -> None:
        for exchange, now_ns in self._unbooked:
            self._note(exchange, now_ns)
        self._unbooked.clear()

    def _note(self, exchange: Exchange, now_ns: int) -> None:
        record = self._record(exchange, now_ns)
        if not record.failed:
            self._failed_in_a_row = 0
            return
        self._failed += 1
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= max(HOPELESS_FAILURES, 2 * len(self._plan.clients)):
            self._end(f"every request fails: {record.error}: {record.detail}")

    def _record(self, exchange: Exchange, now_ns: int) -> RequestRecord:
        self._left -= 1
        record = to_record(exchange, now_ns, open_loop=self._plan.open_loop)
        self._tokens += record.output_tokens
        self._records.append(record)
        if self._hooks.on_record is not None:
            self._hooks.on_record(record)
        return record

    def _end(self, why: str) -> None:
        if self._stopped is None:
            self._stopped = why
        self._over.set()

    def _broken(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """End the run when a callback raises, so that a defect of ours is an error and not a wait without end."""
        defect = context.get("exception")
        if isinstance(defect, (OSError, ssl.SSLError)) or defect is None:
            loop.default_exception_handler(context)
            return
        self._defect = self._defect or defect
        self._end(f"defect: {defect}")

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = monotonic_ns()
            old = 0
            for exchange in list(self._flying):
                if now > exchange.deadline_ns:
                    self._give_up(exchange, now)
                elif old < OLD_AT_ONCE and exchange.connection is not None:
                    old += exchange.connection.drain_old(now)
            self._report()
            if self._hooks.stop is not None and (why := self._hooks.stop()):
                self._end(why)

    def _give_up(self, exchange: Exchange, now_ns: int) -> None:
        connection = exchange.connection
        if connection is not None:
            connection.drain()
        if exchange.finished:
            return
        exchange.reply.fail("timeout", f"no complete answer within {self._timeout_ns / 1e9:g} s")
        exchange.finish(now_ns)
        if connection is not None:
            connection.close()

    async def _watch_lag(self) -> None:
        while True:
            due = self._loop.time() + LAG_SAMPLE_S
            await asyncio.sleep(LAG_SAMPLE_S)
            self._lag.append(max(0, int((self._loop.time() - due) * 1e9)))

    def _report(self) -> None:
        if self._hooks.on_progress is not None and self._records:
            self._hooks.on_progress(Progress(
                total=len(self._requests), done=len(self._records), failed=self._failed,
                in_flight=len(self._flying), output_tokens=self._tokens,
                elapsed_s=(monotonic_ns() - self._started_ns) / 1e9,
            ))
