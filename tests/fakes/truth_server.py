"""A streaming server whose token counts and send times are known by construction.

Every token is written at a planned moment, and the moment it really went to the kernel is recorded, so a client is
compared with what happened and not with a plan. Runs in process (`TruthServer`) or as a program:

    python tests/fakes/truth_server.py --port 0 --ttft-ms 50 --itl-ms 20

which prints its port. `GET /truth` gives the records, `POST /truth/reset` forgets them.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import importlib.util
import json
import os
import socket
import sys
import threading
import zlib
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any, Literal, get_args

import httptools

Usage = Literal["right", "low", "high", "none", "continuous"]
Fault = Literal[
    "stall", "reset", "http_429", "http_503", "error_event", "named_error", "truncate", "cut", "no_answer", "not_json",
    "not_stream", "empty", "abort", "no_done", "close_after_done",
]


@dataclass
class Behaviour:
    """How answers are paced and written, and which of them go wrong and how."""

    ttft_ms: float = 50.0
    itl_ms: float = 20.0
    tokens_per_chunk: int = 1
    events_per_packet: int = 1
    split_events: bool = False
    usage: Usage = "right"
    crlf: bool = False
    blank: bool = True
    ping: bool = False
    role_chunk: bool = False
    empty_first: bool = False
    blank_tokens_every: int = 0
    finish_chunk: bool = False
    reasoning: int = 0
    quotes: bool = False
    framing: Literal["chunked", "close"] = "chunked"
    close_each: bool = False
    slow_accept_ms: float = 0.0
    fault: Fault | None = None
    fault_every: int = 1
    fault_after: int = 4
    model: str = "truth"
    max_running: int = 0


@dataclass
class Truth:
    """What really happened to one request."""

    key: str
    received_ns: int
    asked: int
    input_tokens: int
    sent_ns: list[int] = field(default_factory=list)
    sent_tokens: list[int] = field(default_factory=list)
    ended_ns: int = 0
    fault: str | None = None

    @property
    def tokens(self) -> int:
        return sum(self.sent_tokens)


def prompt_key(prompt: object) -> str:
    """The name under which a request's truth is found: a checksum of its prompt."""
    return f"{zlib.crc32(json.dumps(prompt).encode()):08x}"


class TruthServer:
    """The server's state: behaviour, records, counters."""

    def __init__(self, behaviour: Behaviour | None = None) -> None:
        self.behaviour = behaviour or Behaviour()
        self.records: list[Truth] = []
        self.bodies: list[dict[str, Any]] = []
        self.connections = 0
        self.open = 0
        self.running = 0
        self.most_running = 0
        self.generated = 0
        self.prompted = 0
        self.port = 0
        self._count = 0
        self._server: asyncio.Server | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        loop = asyncio.get_running_loop()
        listener = socket.create_server((host, port), backlog=4096)
        self._server = await loop.create_server(lambda: _Wire(self, loop), sock=listener)
        self.port = listener.getsockname()[1]
        return self.port

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    def fault_of_next(self) -> Fault | None:
        self._count += 1
        wanted = self.behaviour.fault
        return wanted if wanted and self._count % self.behaviour.fault_every == 0 else None

    def reset(self) -> None:
        self.records.clear()
        self.bodies.clear()
        self.most_running = 0
        self._count = 0

    def truth_of(self, key: str) -> Truth:
        return next(record for record in self.records if record.key == key)

    def metrics(self) -> str:
        return (
            f'vllm:prompt_tokens_total{{model_name="{self.behaviour.model}"}} {self.prompted}\n'
            f'vllm:generation_tokens_total{{model_name="{self.behaviour.model}"}} {self.generated}\n'
            f'vllm:num_requests_running{{model_name="{self.behaviour.model}"}} {self.running}\n'
        )


class _Wire(asyncio.Protocol):
    def __init__(self, server: TruthServer, loop: asyncio.AbstractEventLoop) -> None:
        self.server, self.loop = server, loop
        self.parser = httptools.HttpRequestParser(self)
        self.body, self.url = b"", b""
        self.answer: _Answer | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.server.connections += 1
        self.server.open += 1
        if self.server.behaviour.slow_accept_ms:
            self.transport.pause_reading()
            self.loop.call_later(self.server.behaviour.slow_accept_ms / 1000, self._resume)

    def _resume(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.open -= 1
        if self.answer is not None:
            self.answer.stop()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        url, body = self.url.decode(), self.body
        self.url, self.body = b"", b""
        behaviour = self.server.behaviour
        if url.endswith("/completions"):
            asked = json.loads(body)
            self.server.bodies.append(asked)
            self.answer = _Answer(self, asked, chat="chat" in url)
            self.answer.begin()
        elif url.endswith("/v1/models"):
            self.reply(200, json.dumps({"object": "list", "data": [{"id": behaviour.model, "object": "model"}]}))
        elif url.endswith("/metrics"):
            self.reply(200, self.server.metrics(), "text/plain")
        elif url.endswith("/health"):
            self.reply(200, "")
        elif url.endswith("/truth/reset"):
            self.server.reset()
            self.reply(200, "{}")
        elif url.endswith("/truth/behaviour"):
            self.server.behaviour = dataclasses.replace(behaviour, **json.loads(body))
            self.reply(200, "{}")
        elif url.endswith("/truth"):
            self.reply(200, json.dumps({
                "records": [dataclasses.asdict(record) for record in self.server.records],
                "connections": self.server.connections, "most_running": self.server.most_running,
            }))
        else:
            self.reply(404, json.dumps({"error": {"message": f"no {url}"}}))

    def reply(self, status: int, text: str, kind: str = "application/json") -> None:
        data = text.encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
        self.transport.write(head.encode() + data)


class _Answer:
    """One answer being written."""

    def __init__(self, wire: _Wire, asked: dict[str, Any], *, chat: bool) -> None:
        self.wire, self.server, self.chat = wire, wire.server, chat
        self.behaviour = self.server.behaviour
        prompt = asked.get("prompt", asked.get("messages"))
        words = len(prompt) if isinstance(prompt, list) and not chat else len(str(prompt).split())
        self.truth = Truth(prompt_key(prompt), monotonic_ns(), int(asked.get("max_tokens", 16)), words)
        self.want = self.truth.asked
        self.fault = self.server.fault_of_next()
        self.truth.fault = self.fault
        self.with_usage = bool(asked.get("stream_options", {}).get("include_usage"))
        self.model = asked.get("model", "")
        self.sent = 0
        self.timer: asyncio.TimerHandle | None = None
        self.over = False
        self.newline = b"\r\n" if self.behaviour.crlf else b"\n"
        self.plain: bytes | None = None
        self.held = b""

    def begin(self) -> None:
        server, now = self.server, self.wire.loop.time()
        server.records.append(self.truth)
        if self.model != self.behaviour.model:
            self.refuse(404, f"The model `{self.model}` does not exist.")
        elif self.behaviour.max_running and server.running >= self.behaviour.max_running:
            self.refuse(429, "too many requests")
        elif self.fault in ("http_429", "http_503"):
            self.refuse(int(self.fault[5:]), "busy")
        elif self.fault == "not_stream":
            self.refuse(200, "not a stream")
        elif self.fault != "no_answer":
            server.running += 1
            server.most_running = max(server.most_running, server.running)
            server.prompted += self.truth.input_tokens
            length = "Transfer-Encoding: chunked\r\n" if self.behaviour.framing == "chunked" else ""
            close = "Connection: close\r\n" if self.behaviour.close_each or not length else ""
            self.head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n{length}{close}\r\n".encode()
            self.due = now + self.behaviour.ttft_ms / 1000
            if self.behaviour.role_chunk or self.behaviour.empty_first:
                self.write(self.opening())
            self.timer = self.wire.loop.call_at(self.due, self.step)
        else:
            server.running += 1

    def refuse(self, status: int, why: str) -> None:
        self.over = True
        self.truth.ended_ns = monotonic_ns()
        self.wire.reply(status, json.dumps({"error": {"message": why, "code": status}}))

    def opening(self) -> bytes:
        delta = {"role": "assistant", "content": ""} if self.behaviour.role_chunk else {"content": ""}
        return self.event(self.choice(None, delta=delta if self.chat else None, text=""))

    def choice(self, finish: str | None, *, text: str, delta: dict[str, Any] | None = None) -> dict[str, Any]:
        one: dict[str, Any] = {"index": 0, "finish_reason": finish, "logprobs": None}
        if self.chat:
            key = "reasoning_content" if self.sent < self.behaviour.reasoning else "content"
            one["delta"] = {key: text} if delta is None else delta
        else:
            one["text"] = text
        return {"id": "cmpl-1", "object": "text_completion", "model": self.model, "choices": [one]}

    def event(self, payload: dict[str, Any] | str) -> bytes:
        text = payload if isinstance(payload, str) else json.dumps(payload)
        blank = b" " if self.behaviour.blank else b""
        return b"data:" + blank + text.encode() + self.newline + self.newline

    def frame(self, data: bytes) -> bytes:
        if self.behaviour.framing == "close":
            return data
        return b"%x\r\n%b\r\n" % (len(data), data)

    def write(self, data: bytes, *, last: bool = False) -> None:
        head, self.head = self.head, b""
        if self.behaviour.split_events and not last:  # the end of each event comes with the next one
            data, self.held = self.held + data[:-10], data[-10:]
        elif self.behaviour.split_events:
            data = self.held + data
        self.wire.transport.write(head + self.frame(data))

    def step(self) -> None:
        behaviour = self.behaviour
        if self.fault and self.fault not in ("no_done", "close_after_done") and self.sent >= self.fault_at():
            self.break_off()
            return
        parts = [self.tokens_event() for _ in range(behaviour.events_per_packet) if self.sent < self.want]
        if behaviour.ping:
            parts.insert(0, b": ping" + self.newline + self.newline)
        last = self.sent >= self.want
        data = b"".join(parts)
        if not last:
            self.write(data)
        self.truth.sent_ns.append(monotonic_ns())
        self.truth.sent_tokens.append(self.sent - self.truth.tokens)
        if last:
            self.end(data)
        else:
            self.due += behaviour.itl_ms / 1000
            self.timer = self.wire.loop.call_at(self.due, self.step)

    def fault_at(self) -> int:
        if self.fault == "empty":
            return 0
        return self.want // 2 if self.fault in ("truncate", "cut") else self.behaviour.fault_after

    def tokens_event(self) -> bytes:
        behaviour = self.behaviour
        count = min(behaviour.tokens_per_chunk, self.want - self.sent)
        before, self.sent = self.sent, self.sent + count
        self.server.generated += count
        finish = "length" if self.sent >= self.want and not behaviour.finish_chunk else None
        every = behaviour.blank_tokens_every
        text = "" if every and before and before % every == 0 else ' "q\\' if behaviour.quotes else " tok" * count
        simple = finish is None and text and behaviour.usage != "continuous" and before >= behaviour.reasoning
        if simple and count == behaviour.tokens_per_chunk and self.plain is not None:
            return self.plain
        self.sent = before
        payload = self.choice(finish, text=text)
        self.sent = before + count
        if behaviour.usage == "continuous" and self.with_usage:
            payload["usage"] = self.usage()
        data = self.event(payload)
        if simple and count == behaviour.tokens_per_chunk:
            self.plain = data
        return data

    def usage(self) -> dict[str, int]:
        shift = {"low": -(self.sent // 2), "high": 7}.get(self.behaviour.usage, 0)
        done = self.sent + shift
        return {"prompt_tokens": self.truth.input_tokens, "completion_tokens": done,
                "total_tokens": self.truth.input_tokens + done}

    def end(self, data: bytes, *, finish: str = "length", done: bool = True) -> None:
        if self.behaviour.finish_chunk or finish != "length":
            data += self.event(self.choice(finish, text="", delta={}))
        if self.with_usage and self.behaviour.usage != "none":
            data += self.event({"id": "cmpl-1", "choices": [], "usage": self.usage()})
        if done and self.fault != "no_done":
            data += self.event("[DONE]")
        self.write(data, last=True)
        if self.behaviour.framing == "chunked" and self.fault != "close_after_done":
            self.wire.transport.write(b"0\r\n\r\n")
        self.stop()
        if self.behaviour.close_each or self.behaviour.framing == "close" or self.fault == "close_after_done":
            self.wire.transport.close()

    def break_off(self) -> None:
        fault, wire = self.fault, self.wire
        if fault == "stall":
            return
        if fault == "reset":
            self.stop()
            raw = wire.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            wire.transport.abort()
        elif fault == "error_event":
            self.end(self.event({"error": {"message": "engine died", "code": 500}}))
        elif fault == "named_error":
            self.end(b"event: error" + self.newline + self.event({"message": "engine died"}))
        elif fault == "not_json":
            self.end(self.event("{oops"))
        elif fault == "cut":
            self.stop()
            wire.transport.close()
        else:
            self.end(b"", finish="abort" if fault == "abort" else "stop")

    def stop(self) -> None:
        if not self.over:
            self.over = True
            self.server.running -= 1
            self.truth.ended_ns = monotonic_ns()
        if self.timer is not None:
            self.timer.cancel()


class InThread:
    """A truth server on its own thread, for tests whose client runs a loop of its own."""

    def __init__(self, behaviour: Behaviour | None = None) -> None:
        self.server = TruthServer(behaviour)
        self._loop = _new_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> TruthServer:
        self._thread.start()
        self._ready.wait(10)
        return self.server

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self.server.start())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self.server.stop())
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"


def _new_loop() -> asyncio.AbstractEventLoop:
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--core", type=int, help="pin to this core")
    for item in dataclasses.fields(Behaviour):
        option = "--" + item.name.replace("_", "-")
        if isinstance(item.default, bool):
            parser.add_argument(option, action=argparse.BooleanOptionalAction, default=item.default)
        elif item.name in ("usage", "fault"):
            parser.add_argument(option, choices=get_args(Usage if item.name == "usage" else Fault), default=item.default)
        else:
            parser.add_argument(option, type=type(item.default), default=item.default)
    return parser


def main() -> None:
    options = vars(_parser().parse_args())
    host, port, core = options.pop("host"), options.pop("port"), options.pop("core")
    if core is not None:
        os.sched_setaffinity(0, {core})
    server = TruthServer(Behaviour(**options))
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    print(loop.run_until_complete(server.start(host, port)), flush=True)
    try:
        loop.run_forever()
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
