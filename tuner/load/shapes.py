"""The shape of every request: lengths, what it shares, when it comes. Pure, and fixed by the seed alone.

A prompt is a row of named pieces. Pieces of the same name have the same tokens within a run, so sharing (a group's
prefix, the blocks of a trace, the history of a conversation) is nothing but using a name twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, assert_never

import numpy as np
from numpy.typing import NDArray

from tuner.domain.workload import (
    Empirical,
    Fixed,
    Lengths,
    Lognormal,
    Normal,
    Sessions,
    TrafficClass,
    Uniform,
    Workload,
)
from tuner.load.traces import BLOCK_TOKENS, TracePoint

WARMUP_SPACING_S = 0.1
Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some tokens of a prompt, by name."""

    name: str
    tokens: int
    role: Role = "user"


@dataclass(frozen=True, slots=True)
class Shape:
    """One request before it has contents."""

    id: str
    pieces: tuple[Piece, ...]
    output_tokens: int
    group: str = ""
    warmup: bool = False
    session: str = ""
    think_s: float = 0.0
    at_s: float = 0.0
    model: str | None = None

    @property
    def input_tokens(self) -> int:
        """Tokens of the prompt."""
        return sum(piece.tokens for piece in self.pieces)


def shapes(workload: Workload, *, seed: int, trace: Sequence[TracePoint] = ()) -> list[Shape]:
    """Return the shapes of the warm-up requests and of the measured ones, in the order of sending.

    With a trace its points give times and lengths; they are gone through once, or as often as there are requests.
    """
    made = [*_some(workload, workload.warmup_requests, seed, warmup=True)]
    if trace:
        made += _from_trace(workload, trace, start_s=_warmup_s(len(made)))
        made = [replace(shape, at_s=index * WARMUP_SPACING_S) if shape.warmup else shape
                for index, shape in enumerate(made)]
    elif isinstance(workload.arrivals, Sessions):
        made += _sessions(workload, workload.arrivals, seed)
    else:
        made += _some(workload, workload.requests, seed, warmup=False)
    return _with_models(workload, made, seed)


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
        case Normal(mean=mean, sd=sd, low=low, high=high):
            return np.clip(np.rint(rng.normal(mean, sd, size=count)), low, high).astype(np.int64)
        case Empirical(values=values, weights=weights):
            shares = np.array(weights) / sum(weights) if weights else None
            return rng.choice(np.array(values, dtype=np.int64), size=count, p=shares)
        case _:
            assert_never(lengths)


def _warmup_s(count: int) -> float:
    return count * WARMUP_SPACING_S + 1.0 if count else 0.0


def _some(workload: Workload, count: int, seed: int, *, warmup: bool) -> Iterator[Shape]:
    rng = np.random.default_rng([seed, int(warmup), 0x1E46])
    mix = workload.mix
    weights = np.array([one.weight for one in mix])
    chosen = rng.choice(len(mix), size=count, p=weights / weights.sum()) if len(mix) > 1 else np.zeros(count, dtype=int)
    drawn = [_draw(one, int((chosen == index).sum()), rng) for index, one in enumerate(mix)]
    taken = [0] * len(mix)
    for number in range(count):
        index = int(chosen[number])
        one, (inputs, outputs, groups) = mix[index], drawn[index]
        place, taken[index] = taken[index], taken[index] + 1
        name = f"{'w' if warmup else 'r'}{number}"
        pieces, group = _prompt(one, name, int(inputs[place]), int(groups[place]), shares=not warmup)
        yield Shape(id=name, pieces=pieces, output_tokens=int(outputs[place]), group=group, warmup=warmup)


def _draw(
    one: TrafficClass, count: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    return (draw_lengths(one.input_tokens, count, rng), draw_lengths(one.output_tokens, count, rng),
            rng.integers(0, one.prefix_groups, size=count))


def _prompt(one: TrafficClass, name: str, length: int, group: int, *, shares: bool) -> tuple[tuple[Piece, ...], str]:
    """Return the pieces and the group's label. Warm-up prompts share nothing with the measured ones."""
    shared = round(one.shared_prefix * length) if shares else 0
    if not shared:
        return (Piece(name, length),), one.name
    prefix = f"{one.name}prefix{group}"
    own = (Piece(name, length - shared),) if length > shared else ()
    return (Piece(prefix, shared, "system"), *own), one.name or prefix


def _sessions(workload: Workload, arrivals: Sessions, seed: int) -> Iterator[Shape]:
    rng = np.random.default_rng([seed, 0x5E55])
    one = workload.mix[0]
    number = session = 0
    while number < workload.requests:
        turns = int(draw_lengths(arrivals.turns, 1, rng)[0])
        inputs, outputs, groups = _draw(one, turns, rng)
        thinking = rng.exponential(arrivals.think_s, size=turns) if arrivals.think_s else np.zeros(turns)
        history: tuple[Piece, ...] = ()
        for turn in range(min(turns, workload.requests - number)):
            name = f"s{session}t{turn}"
            if turn == 0:
                own, _ = _prompt(one, name, int(inputs[turn]), int(groups[0]), shares=True)
            else:
                own = (Piece(name, int(inputs[turn])),)
            pieces = (*history, *own)
            yield Shape(id=name, pieces=pieces, output_tokens=int(outputs[turn]), group=one.name,
                        session=f"s{session}", think_s=float(thinking[turn]) if turn else 0.0)
            history = (*pieces, Piece(f"{name}answer", int(outputs[turn]), "assistant"))
            number += 1
        session += 1


def _from_trace(workload: Workload, trace: Sequence[TracePoint], *, start_s: float) -> Iterator[Shape]:
    lap_s = trace[-1].at_s + trace[-1].at_s / max(1, len(trace) - 1)
    for number in range(workload.requests):
        lap, index = divmod(number, len(trace))
        point = trace[index]
        pieces = []
        left = point.input_tokens
        for block in point.hash_ids:
            if left <= 0:
                break
            pieces.append(Piece(f"block{lap}.{block}", min(left, BLOCK_TOKENS)))
            left -= BLOCK_TOKENS
        if left > 0:
            pieces.append(Piece(f"r{number}", left))
        yield Shape(id=f"r{number}", pieces=tuple(pieces), output_tokens=point.output_tokens,
                    at_s=start_s + lap * lap_s + point.at_s)


def _with_models(workload: Workload, made: list[Shape], seed: int) -> list[Shape]:
    if not workload.adapters:
        return made
    rng = np.random.default_rng([seed, 0xADA9])
    weights = np.array([adapter.weight for adapter in workload.adapters])
    chosen = rng.choice(len(weights), size=len(made), p=weights / weights.sum())
    names = [workload.adapters[int(index)].model for index in chosen]
    return [replace(shape, model=name, group=shape.group or name) for shape, name in zip(made, names, strict=True)]
