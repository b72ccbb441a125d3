"""What the main process and its load processes say to each other.

A frame is eight bytes of length and a pickle. Both ends are llmtune itself, on one machine, over a private pipe.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from tuner.domain.load_record import LoadRun, RequestRecord
from tuner.domain.workload import Arrivals
from tuner.load.arrivals import Schedule
from tuner.load.driver import Progress
from tuner.load.prompts import Request
from tuner.load.target import Target


@dataclass(frozen=True, slots=True)
class Job:
    """What one worker does."""

    target: Target
    requests: list[Request]
    arrivals: Arrivals
    plan: Schedule
    timeout_s: float
    start_ns: int


@dataclass(frozen=True, slots=True)
class Result:
    """A worker's run without its records, which were sent as they came."""

    run: LoadRun


Frame = Job | Progress | RequestRecord | Result


class Readable(Protocol):
    """A binary stream; it may return less than was asked for."""

    def read(self, size: int, /) -> bytes | None:
        """Return up to `size` bytes, none at the end."""


def write_frame(pipe: BinaryIO, frame: Frame) -> None:
    """Write one frame."""
    data = pickle.dumps(frame, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def read_frames(pipe: Readable) -> Iterator[Frame]:
    """Read frames until the pipe is closed."""
    while len(head := _exactly(pipe, 8)) == 8:
        size = int.from_bytes(head, "little")
        data = _exactly(pipe, size)
        if len(data) < size:
            return
        yield pickle.loads(data)  # noqa: S301  (from a process of ours, over a pipe that nobody else holds)


def _exactly(pipe: Readable, size: int) -> bytes:
    parts = []
    while size > 0 and (part := pipe.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
