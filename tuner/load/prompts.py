"""What is sent: pure and seeded. Lengths come from the seed, contents from the salt.

Every trial of a study sends the same list of lengths (common random numbers: the ratio of two configurations then
varies far less than with independent lists), but never the same tokens, because a warm prefix cache falsifies a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from tuner.domain.workload import Fixed, Lengths, Lognormal, Uniform, Workload
from tuner.errors import UsageError

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


@dataclass(frozen=True, slots=True)
class Request:
    """One request to send: token ids, or text where the endpoint takes no ids."""

    id: str
    prompt: tuple[int, ...] | str
    input_tokens: int
    """Tokens that the prompt is meant to have; exact for ids, approximate for text."""
    output_tokens: int
    group: str = ""
    warmup: bool = False


def build_requests(
    workload: Workload, *, vocab_size: int | None, seed: int, salt: str, as_text: bool = False
) -> list[Request]:
    """Return the workload's requests, the warm-up ones first.

    `seed` fixes lengths and prefix groups, `salt` the contents; use a new salt for every run. Token ids keep away
    from both ends of the vocabulary, where special tokens lie. Groups share their prefix within a run only.

    Raises:
        UsageError: when ids are asked for without a usable vocabulary.

    """
    if not as_text and (vocab_size is None or vocab_size < SMALLEST_VOCABULARY):
        raise UsageError(
            f"prompts of token ids need a vocabulary of at least {SMALLEST_VOCABULARY} ids, not {vocab_size}",
            hint="give the model's vocab_size, or send text",
        )
    contents = _Contents(workload, vocab_size, salt, as_text=as_text)
    warm = _build(workload, workload.warmup_requests, contents, seed=seed, warmup=True)
    measured = _build(workload, workload.requests, contents, seed=seed, warmup=False)
    return [*warm, *measured]


def draw_lengths(lengths: Lengths, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `count` lengths in tokens, each at least 1."""
    match lengths:
        case Fixed(tokens=tokens):
            return np.full(count, tokens, dtype=np.int64)
        case Uniform(low=low, high=high):
            return rng.integers(low, high, size=count, endpoint=True, dtype=np.int64)
        case Lognormal(median=median, sigma=sigma, low=low, high=high):
            drawn = np.rint(rng.lognormal(np.log(median), sigma, size=count))
            return np.clip(drawn, low, high).astype(np.int64)
        case _:
            assert_never(lengths)


def id_range(vocab_size: int) -> tuple[int, int]:
    """Return the ids [low, high) that prompts use: 100 (5 % of a small vocabulary) are left out at each end."""
    skipped = min(SKIPPED_IDS, int(vocab_size * SKIPPED_SHARE))
    top = max(skipped, int(vocab_size * 0.01))
    return skipped, vocab_size - top


def _build(
    workload: Workload, count: int, contents: _Contents, *, seed: int, warmup: bool
) -> Iterator[Request]:
    kind = "w" if warmup else "r"
    rng = np.random.default_rng([seed, int(warmup), 0x1E46])
    inputs = draw_lengths(workload.input_tokens, count, rng)
    outputs = draw_lengths(workload.output_tokens, count, rng)
    groups = rng.integers(0, workload.prefix_groups, size=count)
    for index in range(count):
        length, group = int(inputs[index]), int(groups[index])
        shared = 0 if warmup else round(workload.shared_prefix * length)
        own = contents.fresh(f"{kind}{index}", length - shared)
        words = [*contents.of_group(group)[:shared], *own]
        yield Request(
            id=f"{kind}{index}",
            prompt=contents.join(words),
            input_tokens=length,
            output_tokens=int(outputs[index]),
            group=f"prefix{group}" if shared else "",
            warmup=warmup,
        )


class _Contents:
    """Draws contents. One generator per (salt, name), so that no prompt depends on the order of drawing."""

    def __init__(self, workload: Workload, vocab_size: int | None, salt: str, *, as_text: bool) -> None:
        self._salt = salt
        self._as_text = as_text
        self._low, self._high = (0, len(WORDS)) if as_text else id_range(vocab_size or 0)
        self._longest = round(workload.shared_prefix * workload.input_tokens.longest)
        self._groups: dict[int, list[int]] = {}

    def of_group(self, group: int) -> list[int]:
        if group not in self._groups:
            self._groups[group] = self.fresh(f"prefix{group}", self._longest)
        return self._groups[group]

    def fresh(self, name: str, count: int) -> list[int]:
        digest = hashlib.sha256(f"{self._salt}\0{name}".encode()).digest()
        rng = np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))
        drawn: list[int] = rng.integers(self._low, self._high, size=count).tolist()
        return drawn

    def join(self, drawn: list[int]) -> tuple[int, ...] | str:
        return " ".join(WORDS[index] for index in drawn) if self._as_text else tuple(drawn)
