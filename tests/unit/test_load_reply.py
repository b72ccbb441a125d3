from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.load.reply import BLANK, CONTENT, FINAL_BLANK, Reply, count_tokens, spread

pytestmark = pytest.mark.unit


def event(payload: dict[str, Any] | str) -> bytes:
    return b"data: " + (payload if isinstance(payload, str) else json.dumps(payload)).encode() + b"\n\n"


def text(content: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "1", "choices": [{"index": 0, "text": content, "finish_reason": finish}], **more}


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": "1", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def usage(completion: int, prompt: int = 5) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def replied(asked: int, *payloads: dict[str, Any] | str, must_fill: bool = True, status: int = 200) -> Reply:
    """A reply whose n-th event arrives at n ms."""
    reply = Reply(asked, must_fill=must_fill)
    reply.status = status
    for index, payload in enumerate(payloads):
        reply.feed(index * 1_000_000, event(payload))
    reply.finish(len(payloads) * 1_000_000)
    return reply


def kind(reply: Reply) -> str | None:
    found = reply.error(reply.tokens())
    return None if found is None else found[0]


def test_one_token_a_chunk() -> None:
    reply = replied(3, text("a"), text("b"), text("c", "length"), {"choices": [], "usage": usage(3)}, "[DONE]")
    tokens = reply.tokens()
    assert list(tokens.at_ns) == [0, 1_000_000, 2_000_000]
    assert list(tokens.counts) == [1, 1, 1]
    assert (tokens.total, tokens.mismatch, reply.input_tokens, kind(reply)) == (3, False, 5, None)


def test_role_only_and_empty_chunks_are_no_token() -> None:
    reply = replied(2, delta(role="assistant", content=""), delta(content=""), delta(content="a"),
                    delta("length", content="b"), {"choices": [], "usage": usage(2)})
    assert list(reply.tokens().at_ns) == [2_000_000, 3_000_000]


def test_a_role_beside_text_is_a_token() -> None:
    reply = replied(2, delta(role="assistant", content="a"), delta("length", content="b"))
    assert list(reply.tokens().at_ns) == [0, 1_000_000]


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_is_the_first_token_and_the_answer_comes_later(key: str) -> None:
    reply = replied(3, delta(**{key: "hm"}), delta(**{key: "so"}), delta("length", content="a"))
    assert reply.tokens().at_ns[0] == 0
    assert reply.answer_ns == 2_000_000


def test_tool_calls_are_tokens() -> None:
    reply = replied(2, delta(tool_calls=[{"index": 0}]), delta("tool_calls", content="a"), must_fill=False)
    assert reply.tokens().total == 2
    assert kind(reply) is None


def test_several_tokens_a_chunk_are_spread_by_usage() -> None:
    reply = replied(10, text("a b c d"), text("e f g h"), text("i j", "length"), {"choices": [], "usage": usage(10)})
    assert list(reply.tokens().counts) == [4, 3, 3]
    assert kind(reply) is None


def test_several_tokens_a_chunk_without_usage_are_known_from_the_length_limit() -> None:
    reply = replied(8, text("a b c d"), text("e f g h", "length"))
    assert list(reply.tokens().counts) == [4, 4]
    assert kind(reply) is None


def test_running_usage_gives_each_chunk_its_count() -> None:
    reply = replied(6, text("a", usage=usage(1)), text("b c d e", usage=usage(5)), text("f", "length", usage=usage(6)),
                    {"choices": [], "usage": usage(6)})
    assert list(reply.tokens().counts) == [1, 4, 1]


def test_token_ids_give_each_chunk_its_count() -> None:
    chunks = [text("a"), text(""), text("d", "length")]
    for chunk, ids in zip(chunks, ([1], [2, 3], [4]), strict=True):
        chunk["choices"][0]["token_ids"] = ids
    reply = replied(4, *chunks)
    assert list(reply.tokens().counts) == [1, 2, 1]


def test_events_of_one_read_are_one_arrival() -> None:
    reply = Reply(4, must_fill=True)
    reply.status = 200
    assert reply.feed(1, event(text("a")) + event(text("b"))) == 2
    assert reply.feed(2, event(text("c")) + event(text("d", "length"))) == 2
    tokens = reply.tokens()
    assert (list(tokens.at_ns), list(tokens.counts)) == ([1, 2], [2, 2])


def test_tokens_without_text_count_when_usage_says_so() -> None:
    reply = replied(4, text("a"), text(""), text("b"), text("", "length"), {"choices": [], "usage": usage(4)})
    assert list(reply.tokens().at_ns) == [0, 1_000_000, 2_000_000, 3_000_000]
    reply = replied(3, text("a"), text(""), text("b"), text("", "length"), {"choices": [], "usage": usage(3)})
    assert list(reply.tokens().at_ns) == [0, 1_000_000, 2_000_000]


def test_an_answer_of_tokens_without_any_text_has_times() -> None:
    reply = replied(3, text(""), text(""), text("", "length"), {"choices": [], "usage": usage(3)})
    assert list(reply.tokens().at_ns) == [0, 1_000_000, 2_000_000]
    assert kind(reply) is None


@pytest.mark.parametrize("said", [1, 9])
def test_a_count_that_cannot_be_true_is_not_used(said: int) -> None:
    reply = replied(3, text("a"), text("b"), text("c", "length"), {"choices": [], "usage": usage(said)})
    tokens = reply.tokens()
    assert (tokens.total, tokens.mismatch) == (3, True)


@pytest.mark.parametrize(("payloads", "expected"), [
    ([text("a"), {"error": {"message": "engine died"}}, "[DONE]"], "stream_error"),
    ([text("a"), {"object": "error", "message": "engine died"}], "stream_error"),
    ([text("a"), text("", "abort")], "stream_error"),
    ([text("a"), text("", "error")], "stream_error"),
    ([text("a"), "{oops"], "protocol"),
    ([text("a"), "[1]"], "protocol"),
    (["[DONE]"], "empty"),
    ([{"choices": [], "usage": usage(0)}, "[DONE]"], "empty"),
    ([text("a"), text("b", "stop"), {"choices": [], "usage": usage(2)}, "[DONE]"], "truncated"),
    ([text("a"), text("b", "length"), {"choices": [], "usage": usage(2)}, "[DONE]"], "truncated"),
])
def test_what_is_wrong_with_a_200(payloads: list[Any], expected: str) -> None:
    assert kind(replied(4, *payloads)) == expected


def test_an_early_stop_is_fine_where_it_was_allowed() -> None:
    chunks = (text("a"), text("b", "stop"), {"choices": [], "usage": usage(2)})
    assert kind(replied(4, *chunks, must_fill=False)) is None


def test_a_stream_that_just_ends_is_truncated_even_where_stopping_was_allowed() -> None:
    assert kind(replied(4, text("a"), text("b"), must_fill=False)) == "truncated"


def test_a_named_error_event_is_a_failure() -> None:
    reply = Reply(4, must_fill=False)
    reply.status = 200
    reply.feed(1, event(text("a")) + b"event: error\n" + event({"message": "engine died"}) + event("[DONE]"))
    assert kind(reply) == "stream_error"


def test_a_refusal_keeps_its_text() -> None:
    reply = Reply(4, must_fill=True)
    reply.status = 429
    reply.feed(1, b'{"error": "slow down"}')
    assert reply.error(reply.tokens()) == ("http_429", '{"error": "slow down"}')


def test_an_answer_that_is_no_stream_is_a_failure() -> None:
    reply = Reply(4, must_fill=True)
    reply.status, reply.streamed = 200, False
    reply.feed(1, b'{"choices": []}')
    assert kind(reply) == "protocol"


def test_the_first_failure_counts() -> None:
    reply = replied(4, text("a"), {"error": "first"})
    reply.fail("reset", "second")
    assert kind(reply) == "stream_error"


TRICKY = ['"', "\\", 'say "hi"', '\\"', "a\\", "\n", "é", "\u2028", "", " ", '","finish_reason":"stop","x":"', "tab\t"]


@given(texts=st.lists(st.one_of(st.sampled_from(TRICKY), st.text(max_size=6)), min_size=1, max_size=12),
       chat=st.booleans(), ascii_only=st.booleans(), tight=st.booleans())
def test_the_short_cut_sees_what_the_json_parser_sees(
    texts: list[str], chat: bool, ascii_only: bool, tight: bool
) -> None:
    separators = (",", ":") if tight else None
    plain = Reply(1000, must_fill=False)
    quick = Reply(1000, must_fill=False)
    for reply in (plain, quick):
        reply.status = 200
        for at, content in enumerate(texts):
            payload = delta(content=content) if chat else text(content)
            written = json.dumps(payload, ensure_ascii=ascii_only, separators=separators).encode()
            if reply is plain:
                reply._frame = None
            reply.feed(at, b"data: " + written + b"\n\n")
    assert (quick._at, quick._kinds) == (plain._at, plain._kinds)


def test_the_short_cut_is_taken() -> None:
    reply = replied(5, text("a"), text("b"))
    assert reply._frame is not None
    assert reply._frame[0].endswith(b'"text": "')


@given(st.integers(0, 5000), st.integers(1, 200))
def test_spread_sums_and_is_even(total: int, parts: int) -> None:
    counts = spread(total, parts)
    assert (sum(counts), len(counts)) == (total, parts)
    assert max(counts) - min(counts) <= 1


@given(
    kinds=st.lists(st.sampled_from([CONTENT, BLANK, FINAL_BLANK]), max_size=12),
    total=st.one_of(st.none(), st.integers(0, 60)), asked=st.integers(1, 40), same=st.booleans(),
)
def test_counts_always_sum_to_the_total(kinds: list[int], total: int | None, asked: int, same: bool) -> None:
    at = [0 if same else index for index in range(len(kinds))]
    tokens = count_tokens(at, kinds, [0] * len(kinds), total, asked)
    assert sum(tokens.counts) == tokens.total
    assert all(count > 0 for count in tokens.counts)
    assert len(set(tokens.at_ns)) == len(tokens.at_ns)
    content = kinds.count(CONTENT)
    if total is not None and kinds and content <= total <= asked and total > 0:
        assert tokens.total == total
        assert not tokens.mismatch


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def skimming(first: dict[str, Any]) -> Reply:
    """A reply that has learned from its first chunk what surrounds the text."""
    reply = Reply(100, must_fill=False)
    reply.status = 200
    reply.feed(0, event(first))
    assert reply.learn_chunk(chunk(event(first)))
    return reply


@given(st.lists(st.text(min_size=1), min_size=1, max_size=8), st.booleans())
def test_skimmed_chunks_are_those_that_were_parsed_in_full(words: list[str], ascii_only: bool) -> None:
    reads = [
        chunk(b"data: " + json.dumps(text(word), ensure_ascii=ascii_only).encode() + b"\n\n")
        for word in words
    ]
    skimmed = skimming(text("a"))
    after = skimmed.skim(list(range(1, len(reads) + 1)), reads, 0)
    assert after == next((index for index, read in enumerate(reads) if b"\0" in read), len(reads))
    assert list(skimmed.tokens().at_ns) == list(range(after + 1))


@pytest.mark.parametrize("other", [
    chunk(event(text(""))), chunk(event(text("b", "length"))), chunk(event(text("b"))) * 2,
    chunk(event(text("b")) + event({"error": {"message": "died"}})), chunk(event(text("b"))[:-5]), b"0\r\n\r\n",
    chunk(b": ping\n\n" + event(text("b"))), chunk(event("[DONE]")), chunk(event(text("b", usage=usage(2)))), b"x\r\n",
])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_another_read_ends_the_skimming_where_it_is(other: bytes, place: int) -> None:
    reads = [chunk(event(text("b"))) for _ in range(3)]
    reads[place] = other
    reply = skimming(text("a"))
    assert reply.skim([1, 2, 3], reads, 0) == place
    assert list(reply.tokens().at_ns) == list(range(place + 1))


def test_an_open_event_is_not_skimmed_over() -> None:
    reply = Reply(100, must_fill=False)
    reply.status = 200
    reply.feed(0, event(text("a")) + b"data: {")
    assert not reply.learn_chunk(chunk(event(text("a"))))
    assert reply.skim([1], [chunk(event(text("b")))], 0) == 0
