"""What is sent: pure and seeded. Lengths come from the seed, contents from the salt.

Every trial of a study sends the same list of lengths (common random numbers: the ratio of two configurations then
varies far less than with independent lists), but never the same tokens, because a warm prefix cache falsifies a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tuner.domain.workload import Workload
from tuner.errors import UsageError
from tuner.load.shapes import Piece, Role, Shape, shapes
from tuner.load.traces import TracePoint

SKIPPED_IDS = 100
SKIPPED_SHARE = 0.05
SMALLEST_VOCABULARY = 64
WORDS = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state",
    "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company",
    "system", "program", "question", "work", "number", "night", "point", "home", "water", "room", "mother", "area",
    "money", "story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word", "business", "issue",
    "side", "kind", "head", "house", "service", "friend", "father", "power", "hour", "game", "line", "end",
    "member", "law", "car", "city", "name", "president", "team", "minute", "idea", "kid", "body", "information",
    "back", "parent", "face", "others", "level", "office", "door", "health", "person", "art", "war", "history",
    "party", "result", "change", "morning", "reason", "research", "girl",
)


class Message(NamedTuple):
    """One message of a chat."""

    role: Role
    text: str


Prompt = tuple[int, ...] | str | tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """One request to send: token ids, text, or the messages of a chat."""

    id: str
    prompt: Prompt
    input_tokens: int
    """Tokens that the prompt is meant to have; exact for ids, approximate for text."""
    output_tokens: int
    group: str = ""
    warmup: bool = False
    session: str = ""
    """Requests of one session are sent one after the other by the same client."""
    think_s: float = 0.0
    """How long the client waits after the answer before."""
    at_s: float = 0.0
    """When it is sent, for traces."""
    model: str | None = None
    """Asks for this model instead of the target's, e.g. a LoRA adapter."""


@dataclass(frozen=True, slots=True)
class TextScale:
    """How words become tokens on one server, so that text prompts have the asked length (see `load.probe`)."""

    tokens_per_word: float = 1.0
    overhead: float = 0.0
    """Tokens that the chat template adds to a prompt."""


def build_requests(
    workload: Workload,
    *,
    vocab_size: int | None,
    seed: int,
    salt: str,
    as_text: bool = False,
    scale: TextScale | None = None,
    trace: Sequence[TracePoint] = (),
) -> list[Request]:
    """Return the workload's requests, the warm-up ones first.

    `seed` fixes lengths, groups and sessions, `salt` the contents; use a new salt for every run. Token ids keep away
    from both ends of the vocabulary, where special tokens lie. With `as_text` prompts are words (for chat: messages),
    as many as `scale` says; `trace` holds the points of a workload whose arrivals are a trace.

    Raises:
        UsageError: when ids are asked for without a usable vocabulary.

    """
    if not as_text and (vocab_size is None or vocab_size < SMALLEST_VOCABULARY):
        raise UsageError(
            f"prompts of token ids need a vocabulary of at least {SMALLEST_VOCABULARY} ids, not {vocab_size}",
            hint="give the model's vocab_size, or send text",
        )
    made = shapes(workload, seed=seed, trace=trace)
    contents = _Contents(salt, id_range(vocab_size or 0), shared_lengths(made))
    words = _Words(contents, scale or TextScale()) if as_text else None
    return [_request(shape, contents, words) for shape in made]


def id_range(vocab_size: int) -> tuple[int, int]:
    """Return the ids [low, high) that prompts use: 100 (5 % of a small vocabulary) are left out at each end."""
    skipped = min(SKIPPED_IDS, int(vocab_size * SKIPPED_SHARE))
    top = max(skipped, int(vocab_size * 0.01))
    return skipped, vocab_size - top


def shared_lengths(made: Sequence[Shape]) -> dict[str, int]:
    """Return the longest use of every piece that more than one request holds."""
    seen: set[str] = set()
    longest: dict[str, int] = {}
    shared: set[str] = set()
    for shape in made:
        for piece in shape.pieces:
            if piece.name in seen:
                shared.add(piece.name)
            seen.add(piece.name)
            longest[piece.name] = max(longest.get(piece.name, 0), piece.tokens)
    return {name: longest[name] for name in shared}


def _request(shape: Shape, contents: _Contents, words: _Words | None) -> Request:
    prompt: Prompt
    if words is None:
        prompt = tuple(token for piece in shape.pieces for token in contents.tokens(piece))
    else:
        prompt = words.messages(shape.pieces)
    return Request(
        id=shape.id, prompt=prompt, input_tokens=shape.input_tokens, output_tokens=shape.output_tokens,
        group=shape.group, warmup=shape.warmup, session=shape.session, think_s=shape.think_s, at_s=shape.at_s,
        model=shape.model,
    )


class _Contents:
    """Draws contents: one generator for each (salt, name), so that no piece depends on the order of drawing."""

    def __init__(self, salt: str, ids: tuple[int, int], shared: dict[str, int]) -> None:
        self._salt = salt
        self._ids = ids
        self._shared = shared
        self._kept: dict[str, list[int]] = {}

    def tokens(self, piece: Piece) -> list[int]:
        return self._draw(piece.name, piece.tokens, *self._ids)

    def words(self, name: str, count: int) -> list[str]:
        return [WORDS[index] for index in self._draw(name, count, 0, len(WORDS))]

    def _draw(self, name: str, count: int, low: int, high: int) -> list[int]:
        if name not in self._shared:
            return self._fresh(name, count, low, high)
        kept = self._kept.get(name)
        if kept is None or len(kept) < count:
            kept = self._kept[name] = self._fresh(name, max(count, self._shared[name]), low, high)
        return kept[:count]

    def _fresh(self, name: str, count: int, low: int, high: int) -> list[int]:
        digest = hashlib.sha256(f"{self._salt}\0{name}".encode()).digest()
        rng = np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))
        drawn: list[int] = rng.integers(low, high, size=count).tolist()
        return drawn


class _Words:
    """Turns pieces into the messages of a chat, as many words as give the asked tokens."""

    def __init__(self, contents: _Contents, scale: TextScale) -> None:
        self._contents = contents
        self._scale = scale

    def messages(self, pieces: Sequence[Piece]) -> tuple[Message, ...]:
        left = self._scale.overhead
        made: list[Message] = []
        for piece in reversed(pieces):  # the template's own tokens are taken from the newest pieces
            taken = min(left, piece.tokens - 1) if piece.role == "user" else 0.0
            left -= taken
            count = max(1, round((piece.tokens - taken) / self._scale.tokens_per_word))
            made.append(Message(piece.role, " ".join(self._contents.words(piece.name, count))))
        return tuple(reversed(made))
