"""A model of continuous batching with known true rates, for judging statistics without a server.

All requests of a batch advance by one token a step; a step takes longer with more sequences and with prompts to read,
and its speed wanders slowly (a first-order process), as machines do. Latencies of requests that overlap in time are
therefore alike, which is what makes naive intervals too narrow.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.domain.load_record import LoadRun, RequestRecord
from tuner.domain.workload import ClosedLoop


@dataclass(frozen=True, slots=True)
class Engine:
    """Step time in ms: base + per_sequence * sequences + per_prompt_token * new prompt tokens, times the wander."""

    base: float = 12.0
    per_sequence: float = 0.12
    per_prompt_token: float = 0.02
    wander: float = 0.08
    """Standard deviation of the logarithm of the speed."""
    memory: float = 0.97
    """Correlation of the speed from step to step."""


def simulate(
    engine: Engine, lengths: Sequence[tuple[int, int]], clients: int, rng: np.random.Generator
) -> LoadRun:
    """Serve requests of these (input, output) lengths to a closed loop of clients; two rounds are warm-up."""
    inputs = np.array([one[0] for one in lengths])
    outputs = np.array([one[1] for one in lengths])
    waiting = iter(range(len(lengths)))
    active: list[int] = [index for _, index in zip(range(clients), waiting, strict=False)]
    left = {index: int(outputs[index]) for index in active}
    start: dict[int, float] = dict.fromkeys(active, 0.0)
    times: dict[int, list[float]] = {index: [] for index in active}
    fresh = list(active)
    now, speed = 0.0, float(rng.normal())
    noise = rng.normal(size=int(outputs.sum()) + clients)
    step = 0
    ended: dict[int, float] = {}
    while active:
        speed = engine.memory * speed + np.sqrt(1 - engine.memory**2) * noise[step]
        step += 1
        cost = engine.base + engine.per_sequence * len(active) + engine.per_prompt_token * inputs[fresh].sum()
        now += cost * float(np.exp(engine.wander * speed))
        fresh, still = [], []
        for index in active:
            times[index].append(now)
            left[index] -= 1
            if left[index]:
                still.append(index)
                continue
            ended[index] = now
            new = next(waiting, None)
            if new is not None:
                left[new], start[new], times[new] = int(outputs[new]), now, []
                fresh.append(new)
                still.append(new)
        active = still
    records = [
        _record(index, lengths[index], start[index], times[index], warmup=index < 2 * clients)
        for index in range(len(lengths))
    ]
    return LoadRun(arrivals=ClosedLoop(concurrency=clients), records=tuple(records), started_ns=0,
                   ended_ns=int(now * 1e6), wall_start=0.0, cpu_s=0.0)


def _record(index: int, lengths: tuple[int, int], start: float, times: list[float], *, warmup: bool) -> RequestRecord:
    at = array("q", [int(one * 1e6) for one in times])
    start_ns = int(start * 1e6)
    return RequestRecord(
        id=f"r{index}", group="", warmup=warmup, asked_input_tokens=lengths[0], asked_output_tokens=lengths[1],
        scheduled_ns=start_ns, start_ns=start_ns, sent_ns=start_ns, end_ns=at[-1], chunk_ns=at,
        chunk_tokens=array("q", [1]) * len(at), input_tokens=lengths[0], output_tokens=lengths[1],
        from_usage=True, count_mismatch=False, finish_reason="length", status=200, error=None,
    )


def draw(
    count: int, rng: np.random.Generator, *, inputs_median: float = 100, outputs_median: float = 24
) -> list[tuple[int, int]]:
    """Draw lognormal lengths with sigma 0.8; the default is short, so that thousands of runs take minutes."""
    inputs = np.rint(rng.lognormal(np.log(inputs_median), 0.8, size=count)).clip(8, 10 * inputs_median).astype(int)
    outputs = np.rint(rng.lognormal(np.log(outputs_median), 0.8, size=count)).clip(2, 8 * outputs_median).astype(int)
    return list(zip(inputs.tolist(), outputs.tolist(), strict=True))
