"""What one streamed answer said: which reads brought tokens, how many, and how it ended."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner.domain.load_record import TRUNCATED
from tuner.load.sse import EventTooLongError, SseParser

CONTENT, BLANK, FINAL_BLANK = 1, 2, 3
DETAIL_LENGTH = 500
LONGEST_SIZE_LINE = 10
BROKEN_FINISH = ("error", "abort")
ANSWER_KEYS = ("content", "tool_calls", "refusal")
REASONING_KEYS = ("reasoning_content", "reasoning")
# Head NUL tail, then any number of: NUL, a chunk's size line, the head, a piece of a JSON string, the tail.
_match_plain = re.compile(
    rb'([^\0]*+)\0([^\0]*+)(?:\0[0-9a-fA-F]{1,8}\r\n\1(?!")[^"\\\n\0]*+(?:\\[^\n\0][^"\\\n\0]*+)*+\2)++'
).fullmatch
_scan = json.JSONDecoder().decode


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token arrivals of one answer: one entry for each read that brought tokens."""

    at_ns: Sequence[int]
    counts: Sequence[int]
    total: int
    mismatch: bool


class Reply:
    """Collects the events of one answer. Feed it the body as it comes, then ask for `tokens` and `error`."""

    __slots__ = ("_at", "_counts", "_done", "_error", "_frame", "_kinds", "_lane", "_sse", "answer_ns", "asked", "body",
                 "finish_reason", "input_tokens", "last_usage", "must_fill", "status", "streamed")

    def __init__(self, asked: int, *, must_fill: bool) -> None:
        self.asked = asked
        self.must_fill = must_fill
        self.status: int | None = None
        self.streamed = True
        self.body = b""
        self.finish_reason: str | None = None
        self.input_tokens: int | None = None
        self.last_usage: int | None = None
        self.answer_ns: int | None = None
        self._sse = SseParser()
        self._at = array("q")
        self._kinds = bytearray()
        self._counts: list[int] = []
        self._done = False
        self._error: tuple[str, str] | None = None
        self._frame: tuple[bytes, bytes] | None = None
        self._lane: bytes | None = None

    def feed(self, now_ns: int, data: bytes) -> int:
        """Take body bytes that arrived at `now_ns`; return how many events with content they completed."""
        if self.status != 200 or not self.streamed:
            if len(self.body) < 64 * 1024:
                self.body += data
            return 0
        try:
            events = self._sse.feed(data)
        except EventTooLongError:
            self.fail("protocol", "an event of more than 16 MiB")
            return 0
        return self._take(now_ns, events)

    def finish(self, now_ns: int) -> None:
        """Take the end of the body."""
        if self.status == 200 and self.streamed:
            self._take(now_ns, self._sse.flush())

    def fail(self, kind: str, detail: str) -> None:
        """Note a failure; the first one counts."""
        if self._error is None:
            self._error = (kind, detail[:DETAIL_LENGTH])

    @property
    def ended(self) -> bool:
        """Whether the server said that the answer is complete."""
        return self._done

    def error(self, tokens: Tokens) -> tuple[str, str] | None:
        """Return the kind and detail of what is wrong with the whole answer, or None."""
        if self._error is not None:
            return self._error
        if self.status != 200:
            return f"http_{self.status}", _excerpt(self.body)
        if not self.streamed:
            return "protocol", f"the answer is not an event stream: {_excerpt(self.body)}"
        return self._stream_error() or self._shortfall(tokens)

    def _stream_error(self) -> tuple[str, str] | None:
        if self._sse.error is not None:
            return "stream_error", _excerpt(self._sse.error)
        if self.finish_reason in BROKEN_FINISH:
            return "stream_error", f"finish_reason {self.finish_reason}"
        return None

    def _shortfall(self, tokens: Tokens) -> tuple[str, str] | None:
        if tokens.total == 0:
            return "empty", "the answer holds no token"
        if self.must_fill and tokens.total < self.asked:
            return TRUNCATED, f"{tokens.total} of {self.asked} tokens, finish_reason {self.finish_reason}"
        if not self._done and self.finish_reason is None and tokens.total < self.asked:
            return TRUNCATED, f"the stream ended after {tokens.total} tokens without saying why"
        return None

    def tokens(self) -> Tokens:
        """Return the arrivals, once the answer has ended.

        A server that sends no usage but stopped at the length limit made exactly as many tokens as were asked for.
        """
        total = self.last_usage
        if total is None and self.finish_reason == "length" and self._error is None:
            total = self.asked
        return count_tokens(self._at, self._kinds, self._counts, total, self.asked)

    def _take(self, now_ns: int, events: list[bytes]) -> int:
        content = 0
        for payload in events:
            frame = self._frame
            if frame is not None and payload.startswith(frame[0]) and payload.endswith(frame[1]):
                text = payload[len(frame[0]):len(payload) - len(frame[1])]
                if text and b'"' not in text and not text.endswith(b"\\"):
                    self._note(now_ns, CONTENT, 0)
                    content += 1
                    continue
            content += self._read(now_ns, payload)
        return content

    def learn_chunk(self, data: bytes) -> bool:
        """Look at a read that ends where a chunk ends; return whether `skim` may take those that follow."""
        if self._frame is None or self._sse.open:
            return False
        head, tail = self._frame
        tail += b"\n\n\r\n"
        start = data.find(b"\r\n", 1, LONGEST_SIZE_LINE) + 2
        for opening in (b"data: ", b"data:"):
            if data.startswith(opening + head, start) and data.endswith(tail) and b"\0" not in data:
                self._lane = opening + head + b"\0" + tail
        return self._lane is not None

    def skim(self, stamps: Sequence[int], reads: Sequence[bytes], place: int) -> int:
        """Take reads from `place` on as long as each is one whole HTTP chunk that holds one event with text.

        Such a read differs in its text alone from one that was fully parsed before: the same bytes surround what is,
        by the grammar of JSON, one string. Returns the place of the first other read.
        """
        if self._lane is None or place == len(reads):
            return place
        rest = reads[place:]
        count = len(rest)
        if not self._all_plain(rest):
            count -= 1  # often only the last read is another
            if not count or not self._all_plain(rest[:-1]):
                count = next((index for index, one in enumerate(rest) if not self._all_plain([one])), count)
        if count:
            self._at.extend(stamps[place:place + count])
            self._kinds.extend(bytes((CONTENT,)) * count)
            self._counts.extend([0] * count)
        return place + count

    def _all_plain(self, reads: Sequence[bytes]) -> bool:
        return _match_plain(b"\0".join((self._lane or b"", *reads))) is not None

    def _note(self, now_ns: int, kind: int, count: int) -> None:
        self._at.append(now_ns)
        self._kinds.append(kind)
        self._counts.append(count)

    def _read(self, now_ns: int, payload: bytes) -> int:
        if payload.strip() == b"[DONE]":
            self._done = True
            return 0
        try:
            chunk = _scan(payload.decode())
        except ValueError:
            self.fail("protocol", f"an event that is not JSON: {_excerpt(payload)}")
            return 0
        if not isinstance(chunk, dict):
            self.fail("protocol", f"an event that is no object: {_excerpt(payload)}")
            return 0
        if chunk.get("error") or chunk.get("object") == "error":
            self.fail("stream_error", _excerpt(payload))
            return 0
        before = self.last_usage or 0
        counted = self._read_usage(chunk.get("usage"))
        content = 0
        for choice in chunk.get("choices") or ():
            content += self._read_choice(now_ns, choice, max(0, (self.last_usage or 0) - before) if counted else 0)
        if content and not counted:
            self._learn(payload, chunk)
        return content

    def _read_usage(self, usage: object) -> bool:
        if not isinstance(usage, dict):
            return False
        if isinstance(usage.get("prompt_tokens"), int):
            self.input_tokens = usage["prompt_tokens"]
        if isinstance(usage.get("completion_tokens"), int):
            self.last_usage = usage["completion_tokens"]
            return True
        return False

    def _read_choice(self, now_ns: int, choice: dict[str, Any], counted: int) -> int:
        finish = choice.get("finish_reason")
        if isinstance(finish, str):
            self.finish_reason = finish
        delta = choice.get("delta")
        if isinstance(delta, dict):
            answer = any(delta.get(key) for key in ANSWER_KEYS)
            has_text = answer or any(delta.get(key) for key in REASONING_KEYS)
            opening = "role" in delta and delta["role"] is not None
        else:
            answer = has_text = bool(choice.get("text"))
            opening = False
        ids = choice.get("token_ids")
        if isinstance(ids, list) and ids:
            counted, has_text = len(ids), True
        if answer and self.answer_ns is None:
            self.answer_ns = now_ns
        if has_text:
            self._note(now_ns, CONTENT, counted)
            return 1
        if not opening:
            self._note(now_ns, FINAL_BLANK if finish else BLANK, counted)
        return 0

    def _learn(self, payload: bytes, chunk: dict[str, Any]) -> None:
        """Remember what surrounds the text, so that further chunks of this stream need no JSON parser.

        A chunk with the same surroundings and no quote inside differs in the text alone.
        """
        choices = chunk["choices"]
        if len(choices) != 1 or "token_ids" in choices[0] or choices[0].get("finish_reason"):
            self._frame = None
            return
        delta = choices[0].get("delta")
        fields = delta if isinstance(delta, dict) else {"text": choices[0].get("text")}
        texts = [(key, value) for key, value in fields.items() if isinstance(value, str) and value and key != "role"]
        self._frame = None
        if len(texts) != 1:
            return
        for written in (json.dumps(texts[0][1]), json.dumps(texts[0][1], ensure_ascii=False)):
            for colon in (":", ": "):
                needle = f'"{texts[0][0]}"{colon}{written}'.encode()
                if payload.count(needle) == 1:
                    start = payload.index(needle) + len(needle) - len(written.encode()) + 1
                    self._frame = payload[:start], payload[start + len(written.encode()) - 2:]
                    return


def count_tokens(
    at_ns: Sequence[int], kinds: Sequence[int], counts: Sequence[int], usage: int | None, asked: int
) -> Tokens:
    """Decide which events carried tokens and how many, and merge the events of one read.

    Without the server's total every event with text is one token. With it, blank events count when the total says so
    (a token that is half of a character has no text), and when there are more tokens than events the total is
    spread evenly, unless the events brought their own counts. A total below the number of events with text, or above
    what was asked for, cannot be true and is not used.
    """
    count = len(kinds)
    alike = usage in (None, count) and count <= asked and kinds.count(CONTENT) == count and not any(counts)
    if alike and len(set(at_ns)) == count:  # the common case: one token an event, one event a read
        return Tokens(at_ns, array("q", [1]) * count, count, mismatch=False)
    content = [index for index, kind in enumerate(kinds) if kind == CONTENT]
    own = [counts[index] for index in content]
    if usage is None:
        return _merge(at_ns, content, [count or 1 for count in own], mismatch=False)
    if own and all(own) and sum(own) == usage <= asked:
        return _merge(at_ns, content, own, mismatch=False)
    if usage > asked or usage < len(content):
        return _merge(at_ns, content, [1] * len(content), mismatch=True)
    chosen = content
    if usage != len(content):
        inner = [index for index, kind in enumerate(kinds) if kind != FINAL_BLANK]
        everything = list(range(len(kinds)))
        chosen = next((some for some in (inner, everything) if len(some) == usage), content or inner or everything)
    if not chosen:
        return Tokens(array("q"), array("q"), 0, mismatch=usage > 0)
    return _merge(at_ns, chosen, spread(usage, len(chosen)), mismatch=False)


def spread(total: int, parts: int) -> list[int]:
    """Split `total` into `parts` whole numbers that differ by at most one and sum to it, the larger ones first."""
    each, left = divmod(total, parts)
    return [each + 1] * left + [each] * (parts - left)


def _merge(at_ns: Sequence[int], chosen: Sequence[int], counts: Sequence[int], *, mismatch: bool) -> Tokens:
    times, merged = array("q"), array("q")
    for index, count in zip(chosen, counts, strict=True):
        if count == 0:
            continue
        if times and times[-1] == at_ns[index]:
            merged[-1] += count
        else:
            times.append(at_ns[index])
            merged.append(count)
    return Tokens(times, merged, sum(merged), mismatch)


def _excerpt(data: bytes) -> str:
    return " ".join(data.decode(errors="replace").split())[:DETAIL_LENGTH]
