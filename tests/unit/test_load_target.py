from __future__ import annotations

import json
from typing import Literal

import pytest

from tuner.errors import UsageError
from tuner.load.dialects import DIALECTS, Dialect
from tuner.load.prompts import Request
from tuner.load.target import Target, parse_target

pytestmark = pytest.mark.unit

IDS = Request(id="r0", prompt=(101, 102), input_tokens=2, output_tokens=7)
TEXT = Request(id="r0", prompt="hello", input_tokens=1, output_tokens=7)


def parts(target: Target, request: Request) -> tuple[list[str], dict[str, object]]:
    head, _, body = target.encode(request).partition(b"\r\n\r\n")
    return head.decode().split("\r\n"), json.loads(body)


@pytest.mark.parametrize(("url", "host", "port", "tls", "path"), [
    ("http://localhost:8000", "localhost", 8000, False, "/v1/completions"),
    ("localhost:8000", "localhost", 8000, False, "/v1/completions"),
    ("http://h/", "h", 80, False, "/v1/completions"),
    ("https://h", "h", 443, True, "/v1/completions"),
    ("https://h/api/v1", "h", 443, True, "/api/v1/completions"),
    ("http://h:1/v1/completions", "h", 1, False, "/v1/completions"),
    ("http://h:1/v1/chat/completions", "h", 1, False, "/v1/completions"),
    ("http://[::1]:9", "::1", 9, False, "/v1/completions"),
])
def test_urls(url: str, host: str, port: int, tls: bool, path: str) -> None:
    target = parse_target(url, "m")
    assert (target.host, target.port, target.tls, target.path) == (host, port, tls, path)
    assert (target.ssl_context() is not None) is tls


@pytest.mark.parametrize("url", ["ftp://h", "http://", "http://h:99999", "http://h:x", ""])
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(UsageError):
        parse_target(url, "m")


def test_a_completion_request() -> None:
    head, body = parts(parse_target("http://[::1]:9", "m"), IDS)
    assert head[0] == "POST /v1/completions HTTP/1.1"
    assert "Host: [::1]:9" in head
    assert body == {"model": "m", "prompt": [101, 102], "max_tokens": 7, "temperature": 0, "stream": True,
                    "stream_options": {"include_usage": True}, "ignore_eos": True}


def test_the_stated_length_is_the_body_s() -> None:
    head, _, body = parse_target("h:1", "m", api="chat").encode(Request("r", "héllo", 1, 1)).partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head


def test_a_chat_request() -> None:
    head, body = parts(parse_target("h:1", "m", api="chat", ignore_eos=False, extra_body={"top_k": 1}), TEXT)
    assert head[0] == "POST /v1/chat/completions HTTP/1.1"
    assert body["messages"] == [{"role": "user", "content": "hello"}]
    assert "ignore_eos" not in body
    assert body["top_k"] == 1


def test_chat_takes_no_ids() -> None:
    with pytest.raises(UsageError, match="text"):
        parse_target("h:1", "m", api="chat").encode(IDS)


def test_the_key_is_sent_and_never_shown() -> None:
    target = parse_target("h:1", "m", api_key="sk-secret")
    assert b"Authorization: Bearer sk-secret\r\n" in target.encode(IDS)
    assert "sk-secret" not in repr(target)


@pytest.mark.parametrize("key", ["a\nb", "schlüssel"])
def test_a_key_that_no_header_can_carry(key: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target("h:1", "m", api_key=key)
    assert key not in str(caught.value)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
@pytest.mark.parametrize("api", ["completions", "chat"])
def test_up_e15_other_engines_get_nothing_that_only_vllm_takes(dialect: Dialect, api: Literal["completions", "chat"]) -> None:
    """TensorRT-LLM dies of vLLM's default top_k=-1; the common part and what the dialect knows is all that is sent."""
    target = parse_target("h:1", "m", api=api, ignore_eos=dialect.ignore_eos, extra_body=dialect.extra_body)
    _, body = parts(target, TEXT)
    common = {"model", "prompt", "messages", "max_tokens", "temperature", "stream", "stream_options", "ignore_eos"}
    assert set(body) - common == set(dialect.extra_body)
    assert ("ignore_eos" in body) is dialect.ignore_eos
