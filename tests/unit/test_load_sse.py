from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.load import sse
from tuner.load.sse import EventTooLongError, SseParser

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("stream", "events"), [
    (b"data: a\n\n", [b"a"]),
    (b"data:a\n\n", [b"a"]),
    (b"data:  a\n\n", [b" a"]),
    (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
    (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
    (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
    (b": ping\n\ndata: a\n\n", [b"a"]),
    (b": ping\ndata: a\n\n", [b"a"]),
    (b":\n\n\n\ndata: a\n\n", [b"a"]),
    (b"id: 7\nevent: message\ndata: a\n\n", [b"a"]),
    (b"data: a\ndata: b\n\n", [b"a\nb"]),
    (b"retry: 10\n\n", []),
    (b"data\n\n", []),
    (b"data: \n\n", []),
    (b"database: x\n\n", []),
    (b"\n\n\ndata: a\n\n", [b"a"]),
])
def test_what_an_event_is(stream: bytes, events: list[bytes]) -> None:
    parser = SseParser()
    assert parser.feed(stream) + parser.flush() == events


def test_the_end_of_the_stream_closes_the_last_event() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\n\ndata: b") == [b"a"]
    assert parser.flush() == [b"b"]
    assert parser.flush() == []


def test_a_named_error_is_kept_and_passed_on() -> None:
    parser = SseParser()
    assert parser.feed(b"event: error\ndata: {}\n\nevent: error\ndata: later\n\n") == [b"{}", b"later"]
    assert parser.error == b"{}"


def test_a_stream_that_never_ends_an_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "LONGEST_EVENT", 10)
    parser = SseParser()
    assert parser.feed(b"data: 1234") == []
    with pytest.raises(EventTooLongError):
        parser.feed(b"5")


@given(
    texts=st.lists(st.binary(min_size=1, max_size=20).filter(lambda b: not set(b) & set(b"\r\n")), max_size=6),
    ending=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    cuts=st.lists(st.integers(0, 200), max_size=8),
    ping=st.booleans(),
)
def test_how_reads_are_cut_changes_nothing(texts: list[bytes], ending: bytes, cuts: list[int], ping: bool) -> None:
    pieces = [b"data:" + b" " + text + ending * 2 for text in texts]
    if ping:
        pieces = [b": ping" + ending * 2 + piece for piece in pieces]
    stream = b"".join(pieces)
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    parser = SseParser()
    seen: list[bytes] = []
    for start, end in itertools.pairwise(places):
        seen.extend(parser.feed(stream[start:end]))
    seen.extend(parser.flush())
    assert seen == texts
