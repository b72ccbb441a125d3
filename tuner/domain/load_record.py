"""What a load run saw: one record a request, in monotonic nanoseconds, before any arithmetic.

Plain dataclasses, because a run holds thousands of them and nothing here needs checking: the load generator is their
only author.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tuner.domain.workload import Arrivals

INTERRUPTED = "interrupted"
"""Error kind of a request that llmtune itself cut off: says nothing about the server."""

TRUNCATED = "truncated"
"""Error kind of an answer that ended before the asked number of tokens although it was told not to stop."""


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request and its answer. Times are CLOCK_MONOTONIC in ns; None: it did not come that far.

    `start_ns` is where latency counts from: in an open loop the intended send time (no coordinated omission), in a
    closed loop the moment the bytes went to the socket. `chunk_ns` holds one time for each read that brought tokens
    and `chunk_tokens` how many it brought; the counts sum to `output_tokens`.

    `error` is None for a good answer, otherwise its kind: `http_<status>`, `connect`, `reset`, `timeout`,
    `stream_error` (an error event inside a 200 stream), `protocol`, `empty`, `truncated` or `interrupted`.
    """

    id: str
    group: str
    warmup: bool
    asked_input_tokens: int
    asked_output_tokens: int
    scheduled_ns: int
    start_ns: int
    sent_ns: int | None
    end_ns: int
    chunk_ns: Sequence[int]
    chunk_tokens: Sequence[int]
    input_tokens: int | None
    output_tokens: int
    from_usage: bool
    """Whether `output_tokens` is the server's own count; otherwise chunks were counted."""
    count_mismatch: bool
    """Whether the server's count cannot be true (fewer tokens than chunks, or more than asked)."""
    finish_reason: str | None
    status: int | None
    error: str | None
    detail: str = ""
    session: str = ""
    answer_ns: int | None = None
    """First chunk with text of the answer itself, for models that send their reasoning first."""
    retries: int = 0
    """How often a kept-alive connection turned out closed before any byte of the answer came."""

    @property
    def first_ns(self) -> int | None:
        """Arrival of the first token of any kind."""
        return self.chunk_ns[0] if self.chunk_ns else None

    @property
    def last_ns(self) -> int | None:
        """Arrival of the last token."""
        return self.chunk_ns[-1] if self.chunk_ns else None

    @property
    def ok(self) -> bool:
        """Whether the answer came whole."""
        return self.error is None

    @property
    def failed(self) -> bool:
        """Whether the server failed it; a request that llmtune cut off is neither good nor failed."""
        return self.error is not None and self.error != INTERRUPTED


@dataclass(frozen=True, slots=True)
class LoadRun:
    """Everything one run of the load generator saw, warm-up included, and how the generator itself did."""

    arrivals: Arrivals
    records: tuple[RequestRecord, ...]
    started_ns: int
    ended_ns: int
    wall_start: float
    """Unix time of `started_ns`."""
    cpu_s: float
    """CPU seconds that the load generator's processes used."""
    lag_ns: Sequence[int] = field(default_factory=tuple)
    """How late the event loop ran a timer, sampled throughout."""
    reads: int = 0
    """Reads from sockets that brought tokens."""
    multi_event_reads: int = 0
    """Those of them that brought more than one event: the server batches, or the client is behind."""
    stopped: str | None = None
    """Why the run ended before its requests were done, or None."""
    workers: int = 1

    @property
    def duration_s(self) -> float:
        """Wall seconds from the first send to the last byte."""
        return (self.ended_ns - self.started_ns) / 1e9

    @property
    def cpu_share(self) -> float:
        """Busy share of the cores given to the generator, 0..1."""
        return self.cpu_s / max(self.duration_s, 1e-9) / self.workers
