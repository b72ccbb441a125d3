"""HTTP/1.1 with kept-alive connections, made for timing streams.

A read is stamped and put aside in `data_received`; parsing happens once the event loop has stamped every socket that
was ready. So a burst of 500 tokens costs the last of them microseconds, not the parsing of the 499 before it.

Reads in the middle of a steady stream wait a little longer: up to `BACKLOG` of one connection are parsed together, in
one pass over bytes instead of a walk through HTTP, events and JSON for each. What may end an answer is never put off:
every message ends in CR LF CR LF, or its last read is shorter than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import monotonic_ns
from typing import cast

import httptools

from tuner.load.prompts import Request
from tuner.load.reply import Reply
from tuner.load.target import Target

BACKLOG = 32
"""Most reads of one connection that wait to be parsed; it also bounds the memory that they take."""
LONGEST_WAIT_NS = 1_000_000_000


@dataclass(slots=True, eq=False)
class Exchange:
    """One request on its way: what was asked, when, and what has come so far."""

    request: Request
    data: bytes
    scheduled_ns: int
    deadline_ns: int
    reply: Reply
    done: Callable[[Exchange, int], None]
    """Called once, with the time of the end."""
    sent_ns: int | None = None
    retries: int = 0
    connection: Connection | None = None
    finished: bool = False

    def finish(self, now_ns: int) -> None:
        """Report the end, whichever comes first."""
        if not self.finished:
            self.finished = True
            self.connection = None
            self.done(self, now_ns)


class Inbox:
    """Connections with reads that are stamped and not yet parsed."""

    __slots__ = ("_loop", "_waiting", "multi_event_reads", "reads")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[Connection] = []
        self.reads = 0
        self.multi_event_reads = 0

    def put(self, connection: Connection) -> None:
        """Parse what this connection holds once every socket that is ready has been read."""
        self._waiting.append(connection)
        if len(self._waiting) == 1:
            self._loop.call_soon(self.drain)

    def drain(self) -> None:
        """Parse what waits."""
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            connection.drain()


class Connection(asyncio.Protocol):
    """One connection: at most one exchange at a time."""

    __slots__ = ("_aligned", "_chunked", "_chunks", "_closed", "_complete", "_eager", "_events", "_framed", "_held",
                 "_inbox", "_keep", "_lost_ns", "_now", "_parser", "_pool", "_queued", "_touched", "_transport",
                 "exchange", "served")

    def __init__(self, inbox: Inbox, pool: Pool) -> None:
        self._inbox = inbox
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._closed = False
        self._lost_ns: int | None = None
        self._queued = False
        self._held: list[tuple[int, bytes]] = []
        self.exchange: Exchange | None = None
        self.served = 0
        self._reset()

    def _reset(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._events = 0
        self._now = 0
        self._chunked = False
        self._chunks = 0
        self._aligned = False
        self._eager = True
        self._touched = False
        self._complete = False
        self._framed = False
        self._keep = False

    @property
    def usable(self) -> bool:
        """Whether a request can be sent on it now."""
        return not self._closed and self.exchange is None

    def send(self, exchange: Exchange) -> None:
        """Hand the request to the socket."""
        transport = self._transport
        if transport is None:
            raise RuntimeError("the connection is not made")
        self.exchange = exchange
        exchange.connection = self
        if exchange.sent_ns is None:
            exchange.sent_ns = monotonic_ns()
        transport.write(exchange.data)

    def close(self) -> None:
        """Drop the connection at once; what had come of its answer is that answer's."""
        self.read_rest()
        self._closed = True
        self.exchange = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (asyncio's callback)."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class does not inherit from it

    def data_received(self, data: bytes) -> None:
        """Stamp the read; have it parsed soon if it may say more than one more token (asyncio's callback)."""
        held = self._held
        held.append((monotonic_ns(), data))
        if (
            self._eager or data[-4:] == b"\r\n\r\n" or len(held) >= BACKLOG or len(data) < 4
        ) and not self._queued:
            self._queued = True
            self._inbox.put(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Note the end, behind the reads that came before it (asyncio's callback)."""
        self._closed = True
        self._lost_ns = monotonic_ns()
        self._inbox.put(self)

    def drain(self) -> None:
        """Parse what has come, in order of arrival."""
        self._queued = False
        if self._held:
            stamps, reads = self._take_held()
            place = 0
            while (place := self._skim(stamps, reads, place)) < len(reads):
                self._take(stamps[place], reads[place])
                place += 1
        if self._lost_ns is not None:
            lost_ns, self._lost_ns = self._lost_ns, None
            self._take_end(lost_ns)

    def drain_old(self, now_ns: int) -> bool:
        """Parse what has waited for more than `LONGEST_WAIT_NS`; return whether there was something."""
        if not self._held or now_ns - self._held[0][0] < LONGEST_WAIT_NS:
            return False
        self.drain()
        return True

    def read_rest(self) -> None:
        """Parse what has come of an answer that is given up, and do nothing more."""
        stamps, reads = self._take_held()
        place = 0
        while self.exchange is not None and (place := self._skim(stamps, reads, place)) < len(reads):
            self._feed(self.exchange.reply, stamps[place], reads[place])
            place += 1

    def _take_held(self) -> tuple[list[int], list[bytes]]:
        held, self._held = self._held, []
        return [stamp for stamp, _ in held], [data for _, data in held]

    def _skim(self, stamps: list[int], reads: list[bytes], place: int) -> int:
        """Take the reads that are one whole chunk with one plain event, which the HTTP parser need not see.

        Between two chunks of a body its state is the same before and after a whole one.
        """
        if not self._aligned or self.exchange is None:
            return place
        after = self.exchange.reply.skim(stamps, reads, place)
        self._inbox.reads += after - place
        return after

    def _take(self, now_ns: int, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            self.close()  # a server that speaks unasked, e.g. a 408 on an idle connection
        elif not self._feed(exchange.reply, now_ns, data):
            self.close()
            exchange.finish(now_ns)
        elif self._complete:
            self._end(exchange, now_ns)

    def _feed(self, reply: Reply, now_ns: int, data: bytes) -> bool:
        """Parse one read; return whether it was HTTP."""
        self._now, self._events, self._touched = now_ns, 0, True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            reply.fail("protocol", f"not HTTP: {error}")
            return False
        if self._events:
            self._inbox.reads += 1
            if self._events > 1:
                self._inbox.multi_event_reads += 1
        # The size line of a chunk that is begun and not ended does not end in CR LF.
        self._aligned = self._chunked and self._chunks == 0 and data.endswith(b"\r\n") and reply.learn_chunk(data)
        self._eager = not self._aligned
        return True

    def _take_end(self, now_ns: int) -> None:
        """Handle a closed connection."""
        exchange = self.exchange
        self._pool.forget(self)
        if exchange is None:
            return
        self.exchange = None
        if not self._touched and self.served and not exchange.retries:
            exchange.retries += 1
            self._pool.start(exchange)
            return
        reply = exchange.reply
        if self._touched and (not self._framed or reply.ended) and reply.status is not None:
            reply.finish(now_ns)  # an answer without a length ends with its connection
        else:
            reply.fail("reset", "the connection was closed before the end of the answer")
        exchange.finish(now_ns)

    def _end(self, exchange: Exchange, now_ns: int) -> None:
        exchange.reply.finish(now_ns)
        keep = self._keep and not self._closed
        self.exchange = None
        self.served += 1
        self._reset()
        if keep:
            self._pool.give(self)
        else:
            self.close()
        exchange.finish(now_ns)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Look for how the body ends and whether it is a stream (httptools' callback)."""
        lower = name.lower()
        if lower in (b"content-length", b"transfer-encoding"):
            self._framed = True
        elif lower == b"content-type" and self.exchange is not None:
            self.exchange.reply.streamed = value.lower().startswith(b"text/event-stream")

    def on_chunk_header(self) -> None:
        """Note that a chunk of the body has begun (httptools' callback)."""
        self._chunked = True
        self._chunks += 1

    def on_chunk_complete(self) -> None:
        """Note that it has ended (httptools' callback)."""
        self._chunks -= 1

    def on_headers_complete(self) -> None:
        """Take the status (httptools' callback)."""
        if self.exchange is not None:
            self.exchange.reply.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body (httptools' callback)."""
        if self.exchange is not None:
            self._events += self.exchange.reply.feed(self._now, body)

    def on_message_complete(self) -> None:
        """Note the end of the answer (httptools' callback)."""
        if self._parser.get_status_code() >= 200:
            self._complete = True
            self._keep = self._parser.should_keep_alive()


class Pool:
    """Connections to one target: idle ones are used again, the latest first; there is no upper limit."""

    def __init__(self, target: Target, loop: asyncio.AbstractEventLoop) -> None:
        self.inbox = Inbox(loop)
        self._target = target
        self._loop = loop
        self._tls = target.ssl_context()
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, count: int, timeout_s: float) -> int:
        """Open idle connections beforehand; return how many could be."""
        opened = 0
        for start in range(0, count, 64):
            made = await asyncio.gather(
                *(self._connect(timeout_s) for _ in range(min(64, count - start))), return_exceptions=True
            )
            good = [connection for connection in made if isinstance(connection, Connection)]
            self._idle.extend(good)
            opened += len(good)
            if len(good) < len(made):
                break
        return opened

    @property
    def idle(self) -> int:
        """How many connections wait for a request."""
        return len(self._idle)

    def start(self, exchange: Exchange) -> None:
        """Send now on an idle connection, or as soon as a new one is open."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                connection.send(exchange)
                return
        self._spawn(self._connect_and_send(exchange))

    def spare(self) -> None:
        """Open one more idle connection in the background."""
        self._spawn(self._connect_idle())

    def give(self, connection: Connection) -> None:
        """Take back a connection that is free again."""
        self._idle.append(connection)

    def forget(self, connection: Connection) -> None:
        """Drop a connection that is closed."""
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def close(self) -> None:
        """Abort every connection and attempt."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in list(self._all):
            connection.close()
        self._idle.clear()
        await asyncio.sleep(0)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, timeout_s: float) -> Connection:
        async with asyncio.timeout(timeout_s):
            _, connection = await self._loop.create_connection(
                lambda: Connection(self.inbox, self), self._target.host, self._target.port, ssl=self._tls,
            )
        self._all.add(connection)
        return connection

    async def _connect_idle(self) -> None:
        try:
            self._idle.append(await self._connect(30.0))
        except (OSError, TimeoutError):
            return  # the request that needs it will say why

    async def _connect_and_send(self, exchange: Exchange) -> None:
        left = (exchange.deadline_ns - monotonic_ns()) / 1e9
        try:
            connection = await self._connect(max(0.01, min(30.0, left)))
        except TimeoutError:
            exchange.reply.fail("connect", f"no connection within {min(30.0, left):.0f} s")
        except OSError as error:
            exchange.reply.fail("connect", str(error) or type(error).__name__)
        else:
            if exchange.finished:
                self._idle.append(connection)
            else:
                connection.send(exchange)
            return
        exchange.finish(monotonic_ns())
