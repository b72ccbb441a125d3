"""Runs made by hand, with every time known."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.domain.load_record import LoadRun, RequestRecord
from tuner.domain.workload import Arrivals, ClosedLoop

MS = 1_000_000


def record(
    number: int,
    *,
    start_ms: float = 0.0,
    chunks_ms: Sequence[float] = (50, 70, 90),
    tokens: Sequence[int] | None = None,
    error: str | None = None,
    warmup: bool = False,
    sent_late_ms: float = 0.0,
    end_ms: float | None = None,
    **changes: object,
) -> RequestRecord:
    """One request; `chunks_ms` and `end_ms` count from its start."""
    counts = list(tokens) if tokens is not None else [1] * len(chunks_ms)
    start = int(start_ms * MS)
    end = int((end_ms if end_ms is not None else chunks_ms[-1] if chunks_ms else 0.0) * MS) + start
    fields: dict[str, object] = {
        "id": f"r{number}", "group": "", "warmup": warmup, "asked_input_tokens": 10, "asked_output_tokens": sum(counts),
        "scheduled_ns": start, "start_ns": start, "sent_ns": start + int(sent_late_ms * MS), "end_ns": end,
        "chunk_ns": [start + int(at * MS) for at in chunks_ms], "chunk_tokens": counts, "input_tokens": 10,
        "output_tokens": sum(counts), "from_usage": True, "count_mismatch": False, "finish_reason": "length",
        "status": 200, "error": error,
    }
    return RequestRecord(**(fields | changes))  # type: ignore[arg-type]


def run(
    records: Sequence[RequestRecord], arrivals: Arrivals | None = None, *, cpu_s: float = 0.1,
    lag_ms: Sequence[float] = (0.5,), **changes: object,
) -> LoadRun:
    """A run of these records, from time zero to the last end."""
    fields: dict[str, object] = {
        "arrivals": arrivals or ClosedLoop(concurrency=1), "records": tuple(records), "started_ns": 0,
        "ended_ns": max((one.end_ns for one in records), default=MS), "wall_start": 0.0, "cpu_s": cpu_s,
        "lag_ns": [int(lag * MS) for lag in lag_ms],
    }
    return LoadRun(**(fields | changes))  # type: ignore[arg-type]


def lane(
    count: int, *, first_ms: float = 0.0, number: int = 0, every_ms: float = 100.0, tokens: int = 5, gap_ms: float = 20.0
) -> list[RequestRecord]:
    """Requests one after the other, as one client of a closed loop sends them: `gap_ms` before each token."""
    chunks = [gap_ms * (index + 1) for index in range(tokens)]
    return [record(number + index, start_ms=first_ms + index * every_ms, chunks_ms=chunks) for index in range(count)]
