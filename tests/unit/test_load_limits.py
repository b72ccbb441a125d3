from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tuner.errors import UsageError
from tuner.load import limits
from tuner.load.dialects import DIALECTS, dialect_of
from tuner.load.target import parse_target

pytestmark = pytest.mark.unit


def pretend(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> list[tuple[int, int]]:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(limits.resource, "setrlimit", lambda _, pair: raised.append(pair))
    return raised


def test_enough_room_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    raised = pretend(monkeypatch, 4096, 4096)
    limits.allow_connections(1000)
    assert raised == []


def test_the_soft_limit_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    raised = pretend(monkeypatch, 1024, 1 << 20)
    limits.allow_connections(10_000)
    assert raised == [(10_000 + limits.OTHER_FILES, 1 << 20)]
    raised = pretend(monkeypatch, 1024, resource.RLIM_INFINITY)
    limits.allow_connections(10_000)
    assert raised == [(10_000 + limits.OTHER_FILES, resource.RLIM_INFINITY)]


def test_more_than_the_hard_limit_is_refused_before_anything_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    raised = pretend(monkeypatch, 1024, 4096)
    with pytest.raises(UsageError, match="10000 connections need"):
        limits.allow_connections(10_000)
    assert raised == []


def test_ports_run_out_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, 1 << 20, 1 << 20)
    ports = tmp_path / "range"
    ports.write_text("32768\t33767\n")
    monkeypatch.setattr(limits, "PORT_RANGE", ports)
    limits.allow_connections(1000)
    with pytest.raises(UsageError, match="local ports"):
        limits.allow_connections(1001)
    monkeypatch.setattr(limits, "PORT_RANGE", tmp_path / "none")
    limits.allow_connections(100_000)


@pytest.mark.parametrize(("owned_by", "name"), [
    ("vllm", "vllm"), ("sglang", "sglang"), ("tensorrt_llm", "trtllm"), ("llamacpp", "llamacpp"), ("library", "ollama"),
    ("somebody", "openai"), (None, "openai"),
])
def test_a_server_is_known_by_what_it_calls_itself(owned_by: str | None, name: str) -> None:
    assert dialect_of(owned_by).name == name


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_shapes_the_request(name: str) -> None:
    target = parse_target("h:1", "m", dialect=name)
    assert target.ignore_eos is DIALECTS[name].ignore_eos
    assert parse_target("h:1", "m", dialect=name, ignore_eos=True).ignore_eos
    assert dict(target.extra_body) == dict(DIALECTS[name].extra_body)


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(UsageError, match="no dialect"):
        parse_target("h:1", "m", dialect="klingon")
