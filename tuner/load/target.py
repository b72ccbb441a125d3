"""Where a load goes and how its requests are written: one URL, one model, one API."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from tuner.errors import UsageError
from tuner.load.dialects import DIALECTS
from tuner.load.prompts import Message, Prompt, Request

Api = Literal["completions", "chat"]


@dataclass(frozen=True, slots=True)
class Target:
    """One endpoint that streams OpenAI-style completions.

    `ignore_eos` says that the server was told not to stop early, so a shorter answer is a failure ("truncated").
    `extra_body` joins every request's JSON. The key is sent as a bearer token and appears in no record.
    """

    host: str
    port: int
    tls: bool
    prefix: str
    model: str
    api: Api = "completions"
    api_key: str | None = field(default=None, repr=False)
    ignore_eos: bool = True
    usage: bool = True
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    verify_tls: bool = True

    @property
    def path(self) -> str:
        """The path that requests are posted to."""
        return self.prefix + ("/v1/completions" if self.api == "completions" else "/v1/chat/completions")

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings, or None for plain HTTP."""
        if not self.tls:
            return None
        context = ssl.create_default_context()
        if not self.verify_tls:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def encode(self, request: Request) -> bytes:
        """Return the whole HTTP/1.1 request: head and JSON body."""
        body = json.dumps(self._body(request), separators=(",", ":")).encode()
        host = f"[{self.host}]" if ":" in self.host else self.host
        head = [
            f"POST {self.path} HTTP/1.1",
            f"Host: {host}:{self.port}",
            "Content-Type: application/json",
            "Accept: text/event-stream",
            "User-Agent: llmtune",
            f"Content-Length: {len(body)}",
        ]
        if self.api_key:
            head.append(f"Authorization: Bearer {self.api_key}")
        return ("\r\n".join(head) + "\r\n\r\n").encode("latin-1") + body

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": request.model or self.model,
            "max_tokens": request.output_tokens,
            "temperature": 0,
            "stream": True,
        }
        if self.usage:
            body["stream_options"] = {"include_usage": True}
        if self.ignore_eos:
            body["ignore_eos"] = True
        if self.api == "completions":
            body["prompt"] = _plain(request.prompt)
        else:
            body["messages"] = _messages(request.prompt)
        return body | dict(self.extra_body)


def _plain(prompt: Prompt) -> str | list[int]:
    if isinstance(prompt, str):
        return prompt
    ids = [part for part in prompt if isinstance(part, int)]
    return ids or " ".join(part.text for part in prompt if isinstance(part, Message))


def _messages(prompt: Prompt) -> list[dict[str, str]]:
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    made = [{"role": part.role, "content": part.text} for part in prompt if isinstance(part, Message)]
    if not made:
        raise UsageError("chat completions take text, not token ids", hint="build the requests with as_text=True")
    return made


def parse_target(
    url: str,
    model: str,
    *,
    api: Api = "completions",
    api_key: str | None = None,
    dialect: str = "vllm",
    ignore_eos: bool | None = None,
    extra_body: Mapping[str, Any] | None = None,
    verify_tls: bool = True,
) -> Target:
    """Read `http://host:port[/prefix]`; a trailing `/v1` or full path of the API is taken off.

    `ignore_eos` None is what the dialect can do.

    Raises:
        UsageError: when the URL has no http(s) scheme or no host, or the key could not stand in a header.

    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"the URL {url!r} has no valid port", hint="write http://host:8000") from error
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"{url!r} is not an http URL", hint="write http://host:8000")
    if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
        raise UsageError("the API key holds characters that a header cannot carry", hint="check for a line break in it")
    prefix = parts.path.rstrip("/")
    for tail in ("/completions", "/chat", "/v1"):
        prefix = prefix.removesuffix(tail)
    if dialect not in DIALECTS:
        raise UsageError(f"no dialect {dialect!r}", hint=f"known are {', '.join(DIALECTS)}")
    speech = DIALECTS[dialect]
    tls = parts.scheme == "https"
    return Target(
        host=host, port=port or (443 if tls else 80), tls=tls, prefix=prefix, model=model, api=api, api_key=api_key,
        ignore_eos=speech.ignore_eos if ignore_eos is None else ignore_eos, usage=speech.usage,
        extra_body={**speech.extra_body, **(extra_body or {})}, verify_tls=verify_tls,
    )
