"""HTTP/1.1 with kept-alive connections, made for timing streams.

A read is stamped and put aside in `data_received`; parsing happens once the event loop has stamped every socket that
was ready. So a burst of 500 tokens costs the last of them microseconds, not the parsing of the 499 before it.
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
    """Reads that are stamped and not yet parsed."""

    __slots__ = ("_loop", "_waiting", "multi_event_reads", "reads")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[int, Connection, bytes | None]] = []
        self.reads = 0
        self.multi_event_reads = 0

    def put(self, connection: Connection, data: bytes | None) -> None:
        """Stamp a read (None: the connection is gone)."""
        self._waiting.append((monotonic_ns(), connection, data))
        if len(self._waiting) == 1:
            self._loop.call_soon(self.drain)

    def drain(self) -> None:
        """Parse what waits, in order of arrival."""
        waiting, self._waiting = self._waiting, []
        for now_ns, connection, data in waiting:
            if data is None:
                connection.take_end(now_ns)
                continue
            events = connection.take(now_ns, data)
            if events:
                self.reads += 1
                if events > 1:
                    self.multi_event_reads += 1


class Connection(asyncio.Protocol):
    """One connection: at most one exchange at a time."""

    __slots__ = ("_closed", "_complete", "_events", "_framed", "_inbox", "_keep", "_now", "_parser", "_pool",
                 "_touched", "_transport", "exchange", "served")

    def __init__(self, inbox: Inbox, pool: Pool) -> None:
        self._inbox = inbox
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._closed = False
        self.exchange: Exchange | None = None
        self.served = 0
        self._reset()

    def _reset(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._events = 0
        self._now = 0
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
        """Drop the connection at once."""
        self._closed = True
        self.exchange = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (asyncio's callback)."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class does not inherit from it

    def data_received(self, data: bytes) -> None:
        """Stamp the read, nothing else (asyncio's callback)."""
        self._inbox.put(self, data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Note the end, behind the reads that came before it (asyncio's callback)."""
        self._closed = True
        self._inbox.put(self, None)

    def take(self, now_ns: int, data: bytes) -> int:
        """Parse one read; return how many events with tokens it completed."""
        exchange = self.exchange
        if exchange is None:
            self.close()  # a server that speaks unasked, e.g. a 408 on an idle connection
            return 0
        self._now, self._events, self._touched = now_ns, 0, True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            exchange.reply.fail("protocol", f"not HTTP: {error}")
            self.close()
            exchange.finish(now_ns)
            return 0
        events = self._events
        if self._complete:
            self._end(exchange, now_ns)
        return events

    def take_end(self, now_ns: int) -> None:
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
