"""Count on simulated streams when runs are cut off, and write `racing.json`, which the worlds draw from.

    .venv/bin/python benchmarks/search/count_racing.py

A minute of a closed loop of 32 clients. The server's speed wanders by 7.5 % with a memory of two seconds, which leaves
the mean of the minute uncertain by 2 %. `OutOfReach` gets the runs that are `ahead` times as good as its target,
`Hopeless` the ones whose p95 TTFT misses the limit by `excess`; both look every half second.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.search.racing import TABLE
from tuner.domain.load_record import RequestRecord
from tuner.domain.slo import Slo, parse_slo
from tuner.measure.sequential import Hopeless, OutOfReach

AHEAD = (0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.84, 0.88, 0.9, 0.92, 0.94, 0.96, 0.98, 1.0, 1.05)
EXCESS = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0, 5.0)
STREAMS = 30
FULL_S, STEP_S, LOOK_S = 60.0, 0.1, 0.5
CLIENTS = 32
TOKENS_PER_S = 1000.0
SPREAD, MEMORY_S = 0.075, 2.0
LIMIT = parse_slo("p95 ttft<=500ms")


def main() -> None:
    """Count, and write the table."""
    rng = np.random.default_rng(7)
    table: dict[str, Any] = {
        "ahead": AHEAD,
        "dropped_at": [[_dropped(ahead, rng) for _ in range(STREAMS)] for ahead in AHEAD],
        "excess": EXCESS,
        "lost_at": [[_lost(excess, rng) for _ in range(STREAMS)] for excess in EXCESS],
    }
    TABLE.write_text(json.dumps(table) + "\n", encoding="utf-8")
    for name, rows in (("ahead", "dropped_at"), ("excess", "lost_at")):
        for place, shares in zip(table[name], table[rows], strict=True):
            when = np.array(shares)
            print(f"{name} {place}: cut off {np.mean(when < 1):.0%}, after {np.mean(when):.0%} of the run")


def _dropped(ahead: float, rng: np.random.Generator) -> float:
    now = [0]
    watch = OutOfReach("output_tokens_per_s", TOKENS_PER_S / ahead, Slo(limits=()), clock=lambda: now[0])
    records, place = list(_stream(rng)), 0
    for at in np.arange(LOOK_S, FULL_S, LOOK_S):
        now[0] = int(at * 1e9)
        while place < len(records) and records[place].end_ns <= now[0]:
            watch.add(records[place])
            place += 1
        if watch.reason() is not None:
            return round(float(at) / FULL_S, 4)
    return 1.0


def _lost(excess: float, rng: np.random.Generator) -> float:
    watch = Hopeless(LIMIT)
    middle = 0.5 * (1 + excess) * math.exp(-1.645 * 0.35)
    for record in _stream(rng, first_s=middle):
        watch.add(record)
        if watch.reason() is not None:
            return round(min(1.0, record.end_ns / 1e9 / FULL_S), 4)
    return 1.0


def _stream(rng: np.random.Generator, first_s: float | None = None) -> Iterator[RequestRecord]:
    """Yield the requests of a minute as they end; with `first_s` their first tokens come after about that time."""
    steps = int(FULL_S / STEP_S)
    keep = math.exp(-STEP_S / MEMORY_S)
    speed = np.empty(steps)
    speed[0] = SPREAD * rng.standard_normal()
    for step in range(1, steps):
        speed[step] = keep * speed[step - 1] + SPREAD * math.sqrt(1 - keep * keep) * rng.standard_normal()
    given = np.cumsum(TOKENS_PER_S / CLIENTS * STEP_S * (1 + speed))
    ended: list[RequestRecord] = []
    for client in range(CLIENTS):
        start, done = 0, rng.random() * 90
        while start < steps:
            wanted = max(8, int(90 * math.exp(0.3 * rng.standard_normal())))
            stop = int(np.searchsorted(given, done + wanted))
            if stop >= steps:
                break
            places = np.arange(start, stop + 1)
            counts = np.diff(np.floor(np.minimum(given[places], done + wanted)), prepend=math.floor(done))
            ended.append(_record(f"{client}-{start}", places, counts.astype(int), rng, first_s))
            start, done = stop, done + wanted
    yield from sorted(ended, key=lambda record: record.end_ns)


def _record(name: str, places: np.ndarray, counts: np.ndarray, rng: np.random.Generator,
            first_s: float | None) -> RequestRecord:
    times = ((places + 1) * STEP_S * 1e9).astype(np.int64)
    came = counts > 0
    start_ns = int(places[0] * STEP_S * 1e9)
    chunks = times[came]
    if first_s is not None:
        chunks = np.maximum(chunks, start_ns + int(first_s * math.exp(0.35 * rng.standard_normal()) * 1e9))
    tokens = int(counts.sum())
    return RequestRecord(
        id=name, group="", warmup=False, asked_input_tokens=256, asked_output_tokens=tokens, scheduled_ns=start_ns,
        start_ns=start_ns, sent_ns=start_ns, end_ns=int(max(times[-1], chunks[-1])), chunk_ns=chunks.tolist(),
        chunk_tokens=counts[came].tolist(), input_tokens=256, output_tokens=tokens, from_usage=True,
        count_mismatch=False, finish_reason="length", status=200, error=None,
    )


if __name__ == "__main__":
    main()
