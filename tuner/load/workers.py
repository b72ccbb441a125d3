"""Load from several processes, for when one core is not enough."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Sequence
from time import monotonic_ns
from typing import BinaryIO, cast

from tuner.domain.load_record import INTERRUPTED, LoadRun, RequestRecord
from tuner.domain.workload import Arrivals
from tuner.errors import LlmtuneError
from tuner.load.arrivals import Schedule, split
from tuner.load.driver import TICK_S, Hooks, Progress
from tuner.load.frames import Frame, Job, Result, read_frames, write_frame
from tuner.load.limits import allow_connections
from tuner.load.prompts import Request
from tuner.load.target import Target

HEAD_START_S = 1.5
"""For the workers to import what they need and to open their connections."""
HEAD_START_S_PER_CONNECTION = 0.002
LAST_WORDS_S = 15.0


def drive_with_workers(
    target: Target,
    requests: Sequence[Request],
    arrivals: Arrivals,
    plan: Schedule,
    *,
    workers: int,
    timeout_s: float,
    hooks: Hooks | None = None,
) -> LoadRun:
    """Do what `driver.drive` does, from `workers` processes that start together.

    Clients and send times are dealt out in turn, so every worker carries the same share of every moment; the records
    are merged as they are (times come from one clock) and percentiles are taken over all of them.

    Raises:
        UsageError: for more connections than this machine allows.
        LlmtuneError: when a worker ends without a result.

    """
    allow_connections(plan.connections)
    start_ns = monotonic_ns() + int((HEAD_START_S + HEAD_START_S_PER_CONNECTION * plan.connections) * 1e9)
    jobs = [
        Job(target, own, arrivals, part, timeout_s, start_ns) for part, own in split(plan, requests, workers)
    ]
    crew = _Crew(jobs, hooks or Hooks(), total=len(requests))
    try:
        crew.wait()
    except KeyboardInterrupt:
        crew.tell_to_end(INTERRUPTED)
        crew.wait()
    finally:
        crew.dismiss()
    place = {request.id: index for index, request in enumerate(requests)}
    return merge(crew.results, sorted(crew.records, key=lambda record: place[record.id]))


def merge(runs: Sequence[LoadRun], records: Sequence[RequestRecord]) -> LoadRun:
    """Put the runs of several workers together: all records, all lag samples, summed CPU."""
    lag = array("q")
    for run in runs:
        lag.extend(run.lag_ns)
    return LoadRun(
        arrivals=runs[0].arrivals, records=tuple(records), started_ns=min(run.started_ns for run in runs),
        ended_ns=max(run.ended_ns for run in runs), wall_start=min(run.wall_start for run in runs),
        cpu_s=sum(run.cpu_s for run in runs), lag_ns=lag, reads=sum(run.reads for run in runs),
        multi_event_reads=sum(run.multi_event_reads for run in runs),
        stopped=next((run.stopped for run in runs if run.stopped is not None), None), workers=len(runs),
    )


class _Crew:
    """The worker processes, and what has come from them."""

    def __init__(self, jobs: Sequence[Job], hooks: Hooks, *, total: int) -> None:
        self.records: list[RequestRecord] = []
        self.results: list[LoadRun] = []
        self._hooks = hooks
        self._total = total
        self._inbox: queue.Queue[tuple[int, Frame | None]] = queue.Queue()
        self._progress: dict[int, Progress] = {}
        self._told = False
        command = [sys.executable, "-m", "tuner.load.worker"]
        # A session of their own, so that Ctrl-C at the terminal reaches the main process alone.
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
                             env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)})
            for _ in jobs
        ]
        self._threads = [
            threading.Thread(target=self._talk, args=(index, process, job), daemon=True)
            for index, (process, job) in enumerate(zip(self._processes, jobs, strict=True))
        ]
        for thread in self._threads:
            thread.start()

    def _talk(self, index: int, process: subprocess.Popen[bytes], job: Job) -> None:
        try:
            write_frame(cast("BinaryIO", process.stdin), job)
            for frame in read_frames(cast("BinaryIO", process.stdout)):
                self._inbox.put((index, frame))
        except OSError:
            pass  # its pipe broke: it is gone, which the next line says
        finally:
            self._inbox.put((index, None))

    def wait(self) -> None:
        """Take in frames until every worker is done."""
        gone: set[int] = set()
        asked_at = time.monotonic()
        while len(gone) < len(self._processes):
            try:
                index, frame = self._inbox.get(timeout=TICK_S)
            except queue.Empty:
                pass
            else:
                if frame is None:
                    gone.add(index)
                else:
                    self._take(index, frame)
            if self._hooks.stop is not None and time.monotonic() - asked_at >= TICK_S:
                asked_at = time.monotonic()
                if why := self._hooks.stop():
                    self.tell_to_end(why)
        if len(self.results) < len(self._processes):
            raise LlmtuneError("a load process ended without a result", hint="look above for what it wrote")

    def _take(self, index: int, frame: Frame) -> None:
        match frame:
            case RequestRecord():
                self.records.append(frame)
                if self._hooks.on_record is not None:
                    self._hooks.on_record(frame)
            case Progress():
                self._progress[index] = frame
                self._report()
            case Result(run=run):
                self.results.append(run)
                if run.stopped is not None:
                    self.tell_to_end(run.stopped)
            case Job():
                raise TypeError("a worker sends no job")

    def _report(self) -> None:
        if self._hooks.on_progress is None:
            return
        seen = self._progress.values()
        self._hooks.on_progress(Progress(
            total=self._total, done=sum(one.done for one in seen), failed=sum(one.failed for one in seen),
            in_flight=sum(one.in_flight for one in seen), output_tokens=sum(one.output_tokens for one in seen),
            elapsed_s=max(one.elapsed_s for one in seen),
        ))

    def tell_to_end(self, why: str) -> None:
        """Tell every worker once to end now."""
        if self._told:
            return
        self._told = True
        for process in self._processes:
            pipe = cast("BinaryIO", process.stdin)
            try:
                pipe.write(why.encode())
                pipe.close()
            except OSError:
                continue  # gone already

    def dismiss(self) -> None:
        """Leave no process behind."""
        self.tell_to_end("the main process ended")
        for process in self._processes:
            try:
                process.wait(LAST_WORDS_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for thread in self._threads:
            thread.join()  # their pipes are at an end now
        for process in self._processes:
            cast("BinaryIO", process.stdout).close()
