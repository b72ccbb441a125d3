"""One of several load processes. Reads its job from stdin, writes frames to stdout, and ends when stdin says so."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from io import FileIO

from tuner.load.driver import Hooks, drive
from tuner.load.frames import Job, Result, read_frames, write_frame


def main() -> None:
    """Run one job."""
    source = FileIO(sys.stdin.fileno(), closefd=False)  # without a buffer, whose lock a waiting thread would hold
    sink = sys.stdout.buffer
    job = next(read_frames(source))
    if not isinstance(job, Job):
        raise TypeError("the first frame is the job")
    ended: list[str] = []

    def wait_for_end() -> None:
        ended.append((source.readall() or b"").decode() or "the main process ended")

    threading.Thread(target=wait_for_end, daemon=True).start()
    hooks = Hooks(
        on_progress=lambda progress: write_frame(sink, progress),
        on_record=lambda record: write_frame(sink, record),
        stop=lambda: ended[0] if ended else None,
    )
    try:
        run = drive(job.target, job.requests, job.arrivals, job.plan, timeout_s=job.timeout_s, hooks=hooks,
                    start_ns=job.start_ns)
        write_frame(sink, Result(replace(run, records=())))
    except BrokenPipeError:  # the main process is gone, and nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
