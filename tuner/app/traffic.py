"""From a workload to the jobs of a simulation: the same lengths, shared beginnings and arrivals as a live run sends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from tuner.capacity.jobs import Job
from tuner.domain.workload import ClosedLoop, OpenLoop, RateProfile, Sessions, Trace, Workload
from tuner.errors import UsageError
from tuner.load.arrivals import client_offsets, open_loop_offsets, profile_offsets
from tuner.load.shapes import Shape, shapes
from tuner.load.traces import read_trace


def at_rate(workload: Workload, rate_per_s: float) -> Workload:
    """Return the workload as an open loop of this rate (Poisson), whatever its own arrivals are."""
    return workload.model_copy(update={"arrivals": OpenLoop(rate_per_s=rate_per_s)})


def jobs_of(workload: Workload, *, seed: int = 0, warmup: bool = False) -> list[Job]:
    """Return the measured requests of a workload as jobs, with `warmup` those before them too.

    Raises:
        UsageError: prompts from a file, whose lengths only a tokenizer knows.
        SpaceError: a trace that cannot be read.

    """
    if workload.prompts_file:
        raise UsageError("prompts from a file cannot be simulated: their lengths in tokens are not known",
                         hint="give the lengths as a workload, e.g. {kind: empirical, values: [...]}")
    arrivals = workload.arrivals
    trace = read_trace(arrivals) if isinstance(arrivals, Trace) else ()
    made = [shape for shape in shapes(workload, seed=seed, trace=trace) if warmup or not shape.warmup]
    names = _shared_names(made)
    match arrivals:
        case OpenLoop():
            times: Sequence[float | None] = open_loop_offsets(arrivals, len(made), seed)
        case RateProfile():
            times = profile_offsets(arrivals, len(made), seed)
        case Trace():
            start = made[0].at_s if made else 0.0
            times = [shape.at_s - start for shape in made]
        case ClosedLoop(concurrency=clients, ramp_s=ramp_s):
            offsets = client_offsets(clients, seed, ramp_s)
            times = [*offsets[: len(made)], *([None] * max(0, len(made) - clients))]
        case Sessions(users=users):
            return _conversations(made, client_offsets(users, seed, None), names)
        case _:
            assert_never(arrivals)
    return [_job(shape, at, names) for shape, at in zip(made, times, strict=True)]


def _conversations(made: list[Shape], offsets: tuple[float, ...], names: frozenset[str]) -> list[Job]:
    jobs: list[Job] = []
    begun = 0
    for number, shape in enumerate(made):
        is_first = number == 0 or made[number - 1].session != shape.session
        goes_on = number + 1 < len(made) and made[number + 1].session == shape.session
        at = offsets[begun] if is_first and begun < len(offsets) else None
        begun += is_first
        jobs.append(_job(shape, at, names, then=number + 1 if goes_on else None))
    return jobs


def _job(shape: Shape, at: float | None, names: frozenset[str], then: int | None = None) -> Job:
    shared = []
    for piece in shape.pieces:
        if piece.name not in names:
            break
        shared.append((piece.name, piece.tokens))
    return Job(prompt=shape.input_tokens, output=shape.output_tokens, at_s=at, shared=tuple(shared),
               wait_s=shape.think_s, then=then, measured=not shape.warmup)


def _shared_names(made: list[Shape]) -> frozenset[str]:
    """Return the pieces that more than one request begins with."""
    seen: set[str] = set()
    twice: set[str] = set()
    for shape in made:
        for piece in shape.pieces:
            (twice if piece.name in seen else seen).add(piece.name)
    return frozenset(twice)
