"""Sends the requests of a workload as its arrivals ask, and returns what came back."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import math
import ssl
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any, assert_never

from tuner.domain.load_record import INTERRUPTED, LoadRun, RequestRecord
from tuner.domain.workload import Arrivals, ClosedLoop, OpenLoop, Workload
from tuner.load.arrivals import closed_loop_offsets, open_loop_offsets
from tuner.load.client import Exchange, Pool
from tuner.load.prompts import Request
from tuner.load.reply import Reply
from tuner.load.target import Api, Target, parse_target

TICK_S = 0.1
LAG_SAMPLE_S = 0.02
CONNECT_TIMEOUT_S = 30.0
SPARE_CONNECTIONS = 4
HOPELESS_FAILURES = 20


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, warm-up included."""

    total: int
    done: int
    failed: int
    in_flight: int
    output_tokens: int
    elapsed_s: float


OnProgress = Callable[[Progress], None]
Stop = Callable[[], str | None]


def run_load(
    url: str,
    model: str,
    requests: Sequence[Request],
    workload: Workload,
    *,
    api: Api = "completions",
    api_key: str | None = None,
    ignore_eos: bool = True,
    seed: int = 0,
    on_progress: OnProgress | None = None,
    stop: Stop | None = None,
    keep_on_interrupt: bool = False,
) -> LoadRun:
    """Send `requests` to the server at `url` with the workload's arrivals and time limit.

    `stop` is asked about every 0.1 s; a text that it returns ends the run at once. So does a server that fails
    everything. The requests that were under way then count as interrupted, and `LoadRun.stopped` says why. With
    `keep_on_interrupt` Ctrl-C does the same, otherwise it is raised on.

    Raises:
        UsageError: for a URL that is none.
        KeyboardInterrupt: on Ctrl-C, unless `keep_on_interrupt`.

    """
    target = parse_target(url, model, api=api, api_key=api_key, ignore_eos=ignore_eos)
    return drive(target, requests, workload.arrivals, timeout_s=workload.timeout_s, seed=seed,
                 on_progress=on_progress, stop=stop, keep_on_interrupt=keep_on_interrupt)


def drive(
    target: Target,
    requests: Sequence[Request],
    arrivals: Arrivals,
    *,
    timeout_s: float,
    seed: int = 0,
    on_progress: OnProgress | None = None,
    stop: Stop | None = None,
    keep_on_interrupt: bool = False,
) -> LoadRun:
    """Do the work of `run_load` against a target that is already read."""
    driver = _Driver(target, requests, arrivals, timeout_s=timeout_s, seed=seed, on_progress=on_progress, stop=stop)
    with _without_collector():
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(driver.run())
        except KeyboardInterrupt:  # a signal handler of the program's own raises it in the middle of the loop
            driver.interrupt()
    run = driver.conclude()
    if run.stopped == INTERRUPTED and not keep_on_interrupt:
        raise KeyboardInterrupt
    return run


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's event loop where it is installed (it halves the CPU per token), else asyncio's."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop
    import uvloop  # noqa: PLC0415

    return uvloop.new_event_loop


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Keep the garbage collector from pausing the timing loop."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Driver:
    def __init__(
        self,
        target: Target,
        requests: Sequence[Request],
        arrivals: Arrivals,
        *,
        timeout_s: float,
        seed: int,
        on_progress: OnProgress | None,
        stop: Stop | None,
    ) -> None:
        self._target = target
        self._requests = requests
        self._queue = list(zip(requests, [target.encode(request) for request in requests], strict=True))[::-1]
        self._arrivals = arrivals
        self._timeout_ns = int(timeout_s * 1e9)
        self._seed = seed
        self._on_progress = on_progress
        self._stop = stop
        self._flying: set[Exchange] = set()
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
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._broken)
        self._pool = Pool(self._target, loop)
        side = [asyncio.ensure_future(self._tick()), asyncio.ensure_future(self._watch_lag())]
        try:
            await self._pool.open(self._first_connections(), CONNECT_TIMEOUT_S)
            self._started_ns, self._wall, self._cpu = monotonic_ns(), time.time(), time.process_time()
            await self._send_all(self._started_ns)
        except asyncio.CancelledError:
            self.interrupt()
        self._end_clock()
        for task in side:
            task.cancel()
        await asyncio.gather(*side, return_exceptions=True)
        await self._pool.close()

    def interrupt(self) -> None:
        """Note that the user stopped the run."""
        self._stopped = INTERRUPTED

    def conclude(self) -> LoadRun:
        """Return what the run saw; requests still under way count as interrupted."""
        ended_ns = self._end_clock()
        if self._defect is not None:
            raise self._defect
        for exchange in list(self._flying):
            exchange.reply.fail(INTERRUPTED, self._stopped or "")
            self._record(exchange, ended_ns)
        self._report()
        return LoadRun(
            arrivals=self._arrivals, records=self._in_order(), started_ns=self._started_ns, ended_ns=ended_ns,
            wall_start=self._wall, cpu_s=self._cpu_s, lag_ns=self._lag, reads=self._pool.inbox.reads,
            multi_event_reads=self._pool.inbox.multi_event_reads, stopped=self._stopped,
        )

    def _end_clock(self) -> int:
        if self._ended_ns is None:
            self._ended_ns, self._cpu_s = monotonic_ns(), time.process_time() - self._cpu
        return self._ended_ns

    def _first_connections(self) -> int:
        match self._arrivals:
            case ClosedLoop(concurrency=clients):
                return min(clients, len(self._requests))
            case OpenLoop(rate_per_s=rate):
                return min(len(self._requests), max(16, math.ceil(4 * rate)))
            case _:
                assert_never(self._arrivals)

    async def _send_all(self, started_ns: int) -> None:
        if not self._queue:
            return
        loop = asyncio.get_running_loop()
        match self._arrivals:
            case ClosedLoop():
                origin = loop.time()
                for offset in closed_loop_offsets(self._arrivals, self._seed):
                    loop.call_at(origin + offset, self._next, started_ns + int(offset * 1e9))
            case OpenLoop():
                offsets = open_loop_offsets(self._arrivals, len(self._requests), self._seed)
                sender = asyncio.ensure_future(self._send_on_time(started_ns, offsets))
                await asyncio.wait([sender, over := asyncio.ensure_future(self._over.wait())],
                                   return_when=asyncio.FIRST_COMPLETED)
                over.cancel()
                if not sender.done():
                    sender.cancel()
            case _:
                assert_never(self._arrivals)
        await self._over.wait()

    async def _send_on_time(self, started_ns: int, offsets: Sequence[float]) -> None:
        for offset in offsets:
            due_ns = started_ns + int(offset * 1e9)
            while (left := due_ns - monotonic_ns()) > 0:  # noqa: ASYNC110  (timers may fire up to 0.5 ms early)
                await asyncio.sleep(left / 1e9)
            self._next(due_ns)
            if self._pool.idle < SPARE_CONNECTIONS:
                self._pool.spare()

    def _next(self, scheduled_ns: int) -> None:
        if not self._queue or self._over.is_set():
            return
        request, data = self._queue.pop()
        exchange = Exchange(
            request=request, data=data, scheduled_ns=scheduled_ns, deadline_ns=monotonic_ns() + self._timeout_ns,
            reply=Reply(request.output_tokens, must_fill=self._target.ignore_eos), done=self._finished,
        )
        self._flying.add(exchange)
        self._pool.start(exchange)

    def _finished(self, exchange: Exchange, now_ns: int) -> None:
        record = self._record(exchange, now_ns)
        if record is None:
            return
        self._tokens += record.output_tokens
        if record.failed:
            self._failed += 1
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= max(HOPELESS_FAILURES, 2 * self._first_connections()):
                self._end(f"every request fails: {record.error}: {record.detail}")
        else:
            self._failed_in_a_row = 0
        if isinstance(self._arrivals, ClosedLoop):
            self._next(now_ns)
        if not self._flying and not self._queue:
            self._over.set()

    def _record(self, exchange: Exchange, now_ns: int) -> RequestRecord | None:
        if exchange not in self._flying:
            return None
        self._flying.remove(exchange)
        record = to_record(exchange, now_ns, open_loop=isinstance(self._arrivals, OpenLoop))
        self._records.append(record)
        return record

    def _in_order(self) -> tuple[RequestRecord, ...]:
        place = {request.id: index for index, request in enumerate(self._requests)}
        return tuple(sorted(self._records, key=lambda record: place[record.id]))

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
            for exchange in [late for late in self._flying if now > late.deadline_ns]:
                exchange.reply.fail("timeout", f"no complete answer within {self._timeout_ns / 1e9:g} s")
                connection = exchange.connection
                exchange.finish(now)
                if connection is not None:
                    connection.close()
            self._report()
            if self._stop is not None and (why := self._stop()):
                self._end(why)

    async def _watch_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_SAMPLE_S
            await asyncio.sleep(LAG_SAMPLE_S)
            self._lag.append(max(0, int((loop.time() - due) * 1e9)))

    def _report(self) -> None:
        if self._on_progress is not None and self._records:
            self._on_progress(Progress(
                total=len(self._requests), done=len(self._records), failed=self._failed,
                in_flight=len(self._flying), output_tokens=self._tokens,
                elapsed_s=(monotonic_ns() - self._started_ns) / 1e9,
            ))


def to_record(exchange: Exchange, now_ns: int, *, open_loop: bool) -> RequestRecord:
    """Turn a finished exchange into its record."""
    request, reply = exchange.request, exchange.reply
    tokens = reply.tokens()
    error = reply.error(tokens)
    sent = exchange.sent_ns
    return RequestRecord(
        id=request.id, group=request.group, warmup=request.warmup, asked_input_tokens=request.input_tokens,
        asked_output_tokens=request.output_tokens, scheduled_ns=exchange.scheduled_ns,
        start_ns=exchange.scheduled_ns if open_loop or sent is None else sent, sent_ns=sent, end_ns=now_ns,
        chunk_ns=tokens.at_ns, chunk_tokens=tokens.counts, input_tokens=reply.input_tokens,
        output_tokens=tokens.total, from_usage=reply.last_usage is not None and not tokens.mismatch,
        count_mismatch=tokens.mismatch, finish_reason=reply.finish_reason, status=reply.status,
        error=None if error is None else error[0], detail="" if error is None else error[1],
        answer_ns=reply.answer_ns, retries=exchange.retries,
    )
