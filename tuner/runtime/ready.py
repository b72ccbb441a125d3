"""When a started server counts as ready, and how soon it is given up.

Ready means all of it: our own process lives, it or a descendant of it owns the listener, the health check answers 200,
`/v1/models` names the model that was asked for, and one real completion came back with text. A port that merely answers
proves nothing: it may be somebody else's server.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Literal

import httpx

from tuner.domain.engine import LaunchSpec
from tuner.domain.record import Record
from tuner.runtime.base import Server
from tuner.runtime.loopback import loopback_client

POLL_S = 0.1
LAST_WORDS_S = 2.0
FOREIGN_LIMIT = 3
REFUSAL_LIMIT_S = 5.0
PROBE_TOKENS = 4

NotReadyKind = Literal["exited", "fatal_line", "timeout", "wrong_model", "foreign_listener", "no_answer", "machine"]


class Ready(Record):
    """The server answers. `seconds` from the call to the answer; `answer_s` is what the first completion took of it."""

    seconds: float
    answer_s: float


class NotReady(Record):
    """The server will not become ready, and `detail` says what was seen.

    `exited`: the main process ended. `fatal_line`: the log says so, but the process is still there. `timeout`: neither,
    for too long. `wrong_model`: it serves another model. `foreign_listener`: somebody else listens on the port.
    `no_answer`: it is healthy but refuses a plain completion. `machine`: llmtune's own watcher was killed.
    """

    kind: NotReadyKind
    detail: str
    exit_code: int | None
    seconds: float


def wait_ready(
    server: Server,
    spec: LaunchSpec,
    *,
    timeout_s: float,
    probe_prompt: str = "Hello",
    on_phase: Callable[[str], None] | None = None,
    fatal: Callable[[str], str | None],
    phase: Callable[[str], str],
    api_key: str | None = None,
) -> Ready | NotReady:
    """Wait until `server` is ready, has failed, or `timeout_s` is over.

    `fatal` finds the line of a log after which the start cannot succeed, `phase` names where a start stands; both are
    only asked when the log has grown. `on_phase` hears each new phase.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    with loopback_client(server.url, headers=headers) as client:
        waiting = _Waiting(server, spec, client, probe_prompt, time.monotonic() + timeout_s)
        waiting.hear(fatal, phase, on_phase)
        while True:
            result = waiting.look()
            if result is not None:
                return result
            time.sleep(POLL_S)


class _Probe(threading.Thread):
    """One completion, streamed as the load will be.

    A thread, because the first answer may take minutes (kernels are compiled), in which the engine's end must still be
    seen. It ends with the connection at the latest, which the teardown of the server cuts.
    """

    def __init__(self, client: httpx.Client, model: str, prompt: str, deadline: float) -> None:
        super().__init__(name="llmtune-probe", daemon=True)
        self.tokens = 0
        self.status = 0
        self.text = ""
        self.seconds = 0.0
        self._url = client.base_url
        self._headers = client.headers
        self._timeout = httpx.Timeout(max(1.0, deadline - time.monotonic()), connect=1.0)
        self._body = {
            "model": model,
            "prompt": prompt,
            "max_tokens": PROBE_TOKENS,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        self.start()

    def run(self) -> None:
        """Ask, and keep what came back: tokens, or a status with its text, or what went wrong."""
        started = time.monotonic()
        try:
            with loopback_client(self._url, timeout=self._timeout, headers=self._headers) as client:
                answer = client.post("/v1/completions", json=self._body)
            self.text = answer.text
            self.tokens = sum(_tokens_of(line) for line in answer.text.splitlines()) if answer.status_code == 200 else 0
            self.status = answer.status_code
        except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
            self.text = f"{type(error).__name__}: {error}"
        self.seconds = time.monotonic() - started


def _tokens_of(line: str) -> int:
    """Tokens that one line of the event stream speaks of: its usage, or at least one if it carries text."""
    if not line.startswith("data:") or line.endswith("[DONE]"):
        return 0
    event = json.loads(line.removeprefix("data:"))
    usage = event.get("usage") or {}
    return int(usage.get("completion_tokens") or any(choice.get("text") for choice in event.get("choices") or []))


class _Waiting:
    """The state of one wait."""

    def __init__(self, server: Server, spec: LaunchSpec, client: httpx.Client, prompt: str, deadline: float) -> None:
        self._server = server
        self._spec = spec
        self._client = client
        self._prompt = prompt
        self._started = time.monotonic()
        self._deadline = deadline
        self._log_size = -1
        self._fatal_line: str | None = None
        self._fatal_since = 0.0
        self._foreign = 0
        self._refused_since: float | None = None
        self._phase = ""
        self._probing: _Probe | None = None
        self._seen = "nothing listens on the port yet"

    def hear(
        self, fatal: Callable[[str], str | None], phase: Callable[[str], str], on_phase: Callable[[str], None] | None
    ) -> None:
        """Say how the log is to be read, and who wants to know."""
        self._fatal = fatal
        self._name_phase = phase
        self._on_phase = on_phase or (lambda _: None)

    def look(self) -> Ready | NotReady | None:
        """Look once; None when it is still undecided."""
        self._read_log()
        code = self._server.exit_code()
        if code is not None:
            return self._exited(code)
        now = time.monotonic()
        if self._fatal_line is not None:
            # A dying engine still writes its root cause and takes its workers down; its exit code is worth a moment.
            return self._fail("fatal_line", self._fatal_line) if now - self._fatal_since > LAST_WORDS_S else None
        if now > self._deadline:
            return self._fail("timeout", f"not ready in time: {self._seen}")
        return self._probe()

    def _read_log(self) -> None:
        size = self._server.log_path.stat().st_size
        if size == self._log_size:
            return
        self._log_size = size
        text = self._server.log_text()
        name = self._name_phase(text)
        if name != self._phase:
            self._phase = name
            self._on_phase(name)
        if self._fatal_line is None:
            self._fatal_line = self._fatal(text)
            self._fatal_since = time.monotonic()

    def _exited(self, code: int) -> NotReady:
        fault = self._server.fault()
        if fault is not None:
            return self._fail("machine", fault)
        # Output of the last moment and of dying descendants is still on its way into the log.
        limit = time.monotonic() + LAST_WORDS_S
        while not self._server.log_complete() and time.monotonic() < limit:
            time.sleep(POLL_S)
        self._read_log()
        return self._fail("exited", self._fatal_line or f"the engine ended with exit code {code}")

    def _probe(self) -> Ready | NotReady | None:
        if self._probing is not None and self._probing.is_alive():
            return None
        listener = self._server.listener()
        self._foreign = self._foreign + 1 if listener == "foreign" else 0
        if self._foreign >= FOREIGN_LIMIT:
            port = self._server.handle.port
            return self._fail("foreign_listener", f"another program listens on port {port}")
        if listener != "ours":
            return None
        try:
            return self._ask() if self._probing is None else self._complete()
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            self._seen = f"{type(error).__name__}: {error}"
            return None

    def _ask(self) -> Ready | NotReady | None:
        health = self._client.get(self._spec.health_path)
        if health.status_code != 200:
            self._seen = f"{self._spec.health_path} answers {health.status_code}"
            return None
        answer = self._client.get("/v1/models")
        if answer.status_code != 200:
            return self._refused("/v1/models", answer.status_code, answer.text)
        names = [str(model["id"]) for model in answer.json()["data"]]
        if self._spec.served_name not in names:
            return self._fail("wrong_model", f"the server names {', '.join(names)}, not {self._spec.served_name}")
        return self._complete()

    def _complete(self) -> Ready | NotReady | None:
        if self._probing is None:
            self._probing = _Probe(self._client, self._spec.served_name, self._prompt, self._deadline)
            self._seen = "no completion has come back yet"
            return None
        probe, self._probing = self._probing, None
        if probe.tokens > 0:
            return Ready(seconds=time.monotonic() - self._started, answer_s=probe.seconds)
        if probe.status:
            return self._refused("/v1/completions", probe.status, probe.text)
        self._seen = probe.text
        return None

    def _refused(self, path: str, status: int, text: str) -> NotReady | None:
        self._seen = f"{path} answers {status}: {text[:300]}"
        now = time.monotonic()
        if self._refused_since is None:
            self._refused_since = now
        return self._fail("no_answer", self._seen) if now - self._refused_since >= REFUSAL_LIMIT_S else None

    def _fail(self, kind: NotReadyKind, detail: str) -> NotReady:
        seconds = time.monotonic() - self._started
        return NotReady(kind=kind, detail=detail, exit_code=self._server.exit_code(), seconds=seconds)
