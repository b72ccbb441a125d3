"""The pool of KV cache blocks in a simulation: what is free, and which beginnings of prompts still lie in idle blocks.

Freed blocks go to the end of a queue and new ones come from its head (vllm/v1/core/block_pool.py), so the content of an
idle block is there until as many blocks were taken as were free when it became idle.
"""

from __future__ import annotations

from collections.abc import Sequence


class Kept:
    """A named beginning in the cache: who uses it, how long it is, and where it stands among the idle blocks."""

    __slots__ = ("claimed", "free", "tokens", "users")

    def __init__(self, tokens: int) -> None:
        self.users, self.tokens, self.claimed, self.free = 1, tokens, 0.0, 0.0


class Pool:
    """The blocks: how many are free, and which named beginnings still lie in idle ones."""

    __slots__ = ("block", "claimed", "free", "kept", "total")

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.total, self.block = float(blocks), block_tokens
        self.free, self.claimed = float(blocks), 0.0
        self.kept: dict[str, Kept] = {}

    def find(self, pieces: Sequence[tuple[str, int]]) -> tuple[int, list[str]]:
        """Return how many tokens at the start are there, in whole blocks, and under which names."""
        found, names = 0, []
        for name, tokens in pieces:
            entry = self.kept.get(name)
            if entry is None:
                break
            if not entry.users and self.claimed - entry.claimed >= entry.free:
                del self.kept[name]  # the idle blocks have gone round once, and these were given away
                break
            found += min(tokens, entry.tokens)
            names.append(name)
            if tokens > entry.tokens:
                break
        return found // self.block * self.block, names

    def hold(self, name: str) -> None:
        """Count one more user of a beginning; its blocks leave the idle ones with the first."""
        entry = self.kept[name]
        if not entry.users:
            self.free -= entry.tokens / self.block
        entry.users += 1

    def drop(self, name: str) -> None:
        """Count one user less."""
        entry = self.kept[name]
        entry.users -= 1
        if not entry.users:
            self.free += entry.tokens / self.block
            entry.claimed, entry.free = self.claimed, self.free
