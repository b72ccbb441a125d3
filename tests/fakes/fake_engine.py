"""A program that plays vLLM, for the faults and the speed that the real one does not give on demand.

    fake_engine.py serve MODEL --host H --port N --served-model-name X [--fault FAULT ...] [any flag of the real engine]

Standard library only. A fault is NAME[:ARGUMENT][@SECONDS after the start]:

    exit:CODE            end with this code
    say:TEXT             log a line
    killed               end by SIGKILL, as the kernel's out-of-memory killer does
    oom                  log a GPU out-of-memory error as vLLM does, end with 1
    refuse:TEXT          log `ValueError: TEXT` and the engine core's last words, end with 1
    argparse-error       usage and error of the argument parser, end with 2
    fatal-line-but-alive log that the engine core failed, and stay
    hang                 never listen
    slow-start:SECONDS   listen only then (0.05 by default)
    die-after-requests:N end with 1 when the N-th completion is asked for
    wrong-model          /v1/models names another model
    unhealthy            /health answers 503
    early-health:SECONDS /health answers at once, completions only so long after the start
    no-answer            completions answer 500
    stall                completions never answer
    empty-answer         completions answer without a token
    ignore-sigterm       SIGTERM is ignored, by the children too
    spawn-children:N     children in the same process group
    spawn-nameless:N     children without an environment, as it looks after a program has set its title
    spawn-orphans:N      grandchildren in sessions of their own whose parents are gone
    print-token          print tokens of known shapes and the values of HF_TOKEN and MY_SECRET, in pieces
    flood                print as fast as possible
    claim-and-leave      a child listens on the port and the main process exits with 0

The variable FAKE_ENGINE_RULES makes faults depend on settings: `kv-cache-dtype=fp8 oom; block-size=16 exit:1@0.1`; a
rule may also say `itl*0.5` or `ttft*2`. `--itl-ms` and `--ttft-ms` set the speed; `--max-num-seqs` limits how many
requests run at once, and every running request makes a step slower by `--step-cost` (a share, 0.02 by default).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

STARTED = time.monotonic()
HF_SHAPED = "hf_" + "aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vW"
SK_SHAPED = "sk-proj-aB3dE5fG7hI9jK1lM2nO4pQ6"


def log(text: str) -> None:
    print(f"INFO 01-01 00:00:00 [fake.py:1] {text}", flush=True)


def log_error(text: str) -> None:
    print(f"(EngineCore pid=1) ERROR 01-01 00:00:00 [core.py:1] {text}", file=sys.stderr, flush=True)


class Faults(dict[str, tuple[str, float]]):
    """Fault name to its argument and the second it strikes."""

    @classmethod
    def read(cls, texts: list[str]) -> Faults:
        faults = cls()
        for text in texts:
            what, _, at = text.partition("@")
            name, _, argument = what.partition(":")
            faults[name] = (argument, float(at or 0))
        return faults

    def number(self, name: str, otherwise: float = 0.0) -> float:
        return float(self[name][0]) if name in self else otherwise


class Engine:
    def __init__(self, options: argparse.Namespace, settings: dict[str, str]) -> None:
        self.options = options
        self.settings = settings
        self.itl_s = options.itl_ms / 1000
        self.ttft_s = options.ttft_ms / 1000
        faults = list(options.fault) + self.apply_rules(os.environ.get("FAKE_ENGINE_RULES", ""))
        self.faults = Faults.read(faults)
        self.slots = asyncio.Semaphore(int(settings.get("max-num-seqs", "256")))
        self.running = self.waiting = self.asked = self.finished = 0
        self.prompt_tokens = self.generation_tokens = 0

    def apply_rules(self, text: str) -> list[str]:
        faults = []
        for rule in filter(None, (part.strip() for part in text.split(";"))):
            condition, effect = rule.split(None, 1)
            flag, _, value = condition.partition("=")
            if self.settings.get(flag) != value:
                continue
            if effect.startswith("itl*"):
                self.itl_s *= float(effect[4:])
            elif effect.startswith("ttft*"):
                self.ttft_s *= float(effect[5:])
            else:
                faults.append(effect)
        return faults

    async def misbehave(self, name: str, at: float) -> None:
        await asyncio.sleep(max(0.0, at - (time.monotonic() - STARTED)))
        argument = self.faults[name][0]
        if name == "exit":
            leave(int(argument or 1))
        elif name == "say":
            log(argument)
        elif name == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif name == "oom":
            log_error("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 1.00 GiB free.")
            log_error("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}")
            leave(1)
        elif name == "refuse":
            log_error(f"ValueError: {argument}")
            log_error("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}")
            leave(1)
        elif name == "fatal-line-but-alive":
            log_error("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}")
        elif name == "flood":
            while True:
                print("x" * 4000, flush=True)
                await asyncio.sleep(0)

    async def start(self) -> None:
        log("vLLM API server version 0.32.0")
        tasks = {
            asyncio.create_task(self.misbehave(name, at))
            for name, (_, at) in self.faults.items()
            if name in ("exit", "say", "killed", "oom", "refuse", "fatal-line-but-alive", "flood")
        }
        log("Starting to load model " + self.options.model)
        await asyncio.sleep(self.faults.number("slow-start", 0.05))
        if "hang" in self.faults:
            await asyncio.sleep(1e6)
        log("Model loading took 0.01 GiB and 0.1 seconds")
        log("CPU KV cache size: 149,760 tokens, Maximum concurrency for 2,048 tokens per request: 73.12x")
        log("init engine (profile, create kv cache, warmup model) took 0.10 s")
        try:
            server = await asyncio.start_server(self.serve, self.options.host, self.options.port)
        except OSError as error:
            log_error(str(error))
            leave(1)
        log(f"Starting vLLM server on http://{self.options.host}:{self.options.port}")
        log("Application startup complete.")
        async with server:
            await server.serve_forever()
        await asyncio.gather(*tasks)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while request := await reader.readline():
                method, path, _ = request.decode().split()
                length = 0
                while (header := (await reader.readline()).strip()):
                    name, _, value = header.decode().partition(":")
                    if name.lower() == "content-length":
                        length = int(value)
                body = json.loads(await reader.readexactly(length) or b"{}")
                await self.route(method, path.split("?")[0], body, writer)
        writer.close()

    async def route(self, method: str, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if path == "/health":
            await answer(writer, 503 if "unhealthy" in self.faults else 200, "")
        elif path == "/metrics":
            await answer(writer, 200, self.metrics(), kind="text/plain")
        elif path == "/v1/models":
            name = "somebody-elses-model" if "wrong-model" in self.faults else self.options.served_model_name
            await answer(writer, 200, {"object": "list", "data": [{"id": name, "object": "model"}]})
        elif path in ("/v1/completions", "/v1/chat/completions") and method == "POST":
            await self.complete(body, writer, chat="chat" in path)
        elif path == "/settings":
            await answer(writer, 200, self.settings)
        else:
            await answer(writer, 404, {"error": {"message": f"no {path} here"}})

    async def complete(self, body: dict[str, Any], writer: asyncio.StreamWriter, *, chat: bool) -> None:
        self.asked += 1
        if self.asked >= self.faults.number("die-after-requests", float("inf")):
            log_error("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.")
            leave(1)
        if time.monotonic() - STARTED < self.faults.number("early-health"):
            await answer(writer, 503, {"error": {"message": "the model is loading"}})
            return
        if "stall" in self.faults:
            await asyncio.sleep(1e6)
        if "no-answer" in self.faults:
            await answer(writer, 500, {"error": {"message": "EngineCore encountered an issue."}})
            return
        if body.get("model") != self.options.served_model_name:
            await answer(writer, 404, {"error": {"message": f"The model `{body.get('model')}` does not exist."}})
            return
        prompt = body.get("prompt") or " ".join(str(turn.get("content")) for turn in body.get("messages", []))
        known = len(prompt.split()) if isinstance(prompt, str) else len(prompt)
        tokens = 0 if "empty-answer" in self.faults else int(body.get("max_tokens") or 16)
        usage = {"prompt_tokens": known, "completion_tokens": tokens, "total_tokens": known + tokens}
        self.waiting += 1
        async with self.slots:
            self.waiting -= 1
            self.running += 1
            try:
                await asyncio.sleep(self.ttft_s)
                if body.get("stream"):
                    await self.stream(writer, tokens, usage, body, chat=chat)
                else:
                    await asyncio.sleep(self.step() * max(0, tokens - 1))
                    await answer(writer, 200, {"id": "cmpl-1", "choices": [choice(" w" * tokens, chat, "length")], "usage": usage})
            finally:
                self.running -= 1
        self.finished += 1
        self.prompt_tokens += known
        self.generation_tokens += tokens

    def step(self) -> float:
        return self.itl_s * (1 + self.options.step_cost * max(0, self.running - 1))

    async def stream(
        self, writer: asyncio.StreamWriter, tokens: int, usage: dict[str, int], body: dict[str, Any], *, chat: bool
    ) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for index in range(tokens):
            if index:
                await asyncio.sleep(self.step())
            finish = "length" if index == tokens - 1 else None
            await event(writer, json.dumps({"id": "cmpl-1", "choices": [choice(" w", chat, finish, delta=True)]}))
        if (body.get("stream_options") or {}).get("include_usage"):
            await event(writer, json.dumps({"id": "cmpl-1", "choices": [], "usage": usage}))
        await event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def metrics(self) -> str:
        model = f'{{model_name="{self.options.served_model_name}"}}'
        values = {
            "num_requests_running": self.running,
            "num_requests_waiting": self.waiting,
            "kv_cache_usage_perc": min(1.0, self.running / 100),
            "prompt_tokens_total": self.prompt_tokens,
            "generation_tokens_total": self.generation_tokens,
            "num_preemptions_total": 0,
            "prefix_cache_queries_total": self.prompt_tokens,
            "prefix_cache_hits_total": 0,
            "request_success_total": self.finished,
        }
        lines = [f"vllm:{name}{model} {float(value)}" for name, value in values.items()]
        info = 'block_size="16",cache_dtype="auto",num_gpu_blocks="9360",kv_cache_size_tokens="149760"'
        return "\n".join([*lines, f"vllm:cache_config_info{{{info}}} 1.0", ""])


def choice(text: str, chat: bool, finish: str | None, *, delta: bool = False) -> dict[str, Any]:
    content: dict[str, Any] = {"delta" if delta else "message": {"role": "assistant", "content": text}} if chat else {"text": text}
    return {"index": 0, "finish_reason": finish, **content}


async def answer(writer: asyncio.StreamWriter, status: int, body: Any, *, kind: str = "application/json") -> None:
    data = (body if isinstance(body, str) else json.dumps(body)).encode()
    head = f"HTTP/1.1 {status} Status\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    await writer.drain()


async def event(writer: asyncio.StreamWriter, data: str) -> None:
    text = f"data: {data}\n\n".encode()
    writer.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
    await writer.drain()


def leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def prepare(faults: Faults) -> None:
    """What happens before the engine is there."""
    if "ignore-sigterm" in faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: leave(0))
    for _ in range(int(faults.number("spawn-children"))):
        subprocess.Popen(["sleep", "600"])
    for _ in range(int(faults.number("spawn-nameless"))):
        subprocess.Popen(["/bin/sleep", "600"], env={})
    for _ in range(int(faults.number("spawn-orphans"))):
        # The shell in between is gone at once, so nobody above knows the sleeper.
        subprocess.run(["sh", "-c", "setsid sleep 600 &"], check=True)
    if "print-token" in faults:
        print_tokens()
    if "argparse-error" in faults:
        print("usage: vllm serve [model_tag] [options]\nvllm serve: error: unrecognized arguments: --nonsense", file=sys.stderr)
        leave(2)


def print_tokens() -> None:
    values = [HF_SHAPED, SK_SHAPED, *(os.environ[name] for name in ("HF_TOKEN", "MY_SECRET") if name in os.environ)]
    print("tokens: " + " ".join(values), flush=True)
    for value in values:
        for piece in ("token=", value[:5], value[5:12], value[12:], "\n"):
            sys.stdout.write(piece)
            sys.stdout.flush()
            time.sleep(0.01)
        print(f"Bearer {value}", file=sys.stderr, flush=True)
    print(f"[{','.join(values)}]", end="", flush=True)


def read_settings(words: list[str]) -> dict[str, str]:
    """Flag to value of everything that the parser does not know, as the real engine would read it."""
    settings: dict[str, str] = {}
    flag = ""
    for word in words:
        if word.startswith("--"):
            flag, _, value = word[2:].partition("=")
            settings[flag] = value or "true"
            if flag.startswith("no-"):
                settings[flag[3:]] = "false"
        elif flag:
            settings[flag] = word
    return settings


def claim_and_leave(options: argparse.Namespace) -> None:
    if os.fork():
        time.sleep(1.0)
        leave(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name")
    parser.add_argument("--fault", action="append", default=[])
    parser.add_argument("--itl-ms", type=float, default=2.0)
    parser.add_argument("--ttft-ms", type=float, default=5.0)
    parser.add_argument("--step-cost", type=float, default=0.02)
    options, rest = parser.parse_known_args()
    options.served_model_name = options.served_model_name or options.model
    faults = Faults.read(options.fault)
    prepare(faults)
    if "claim-and-leave" in faults:
        claim_and_leave(options)
    asyncio.run(Engine(options, read_settings(rest)).start())


if __name__ == "__main__":
    main()
