"""`bench`: load one running server, at one level or over a sweep, and say what it can do."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tuner import __version__
from tuner.app.events import Listener, LoadProgress, Note
from tuner.app.requests import requests_of
from tuner.app.scrape import scrape
from tuner.app.served import Found, calibrated, find_server
from tuner.app.watch import Watch
from tuner.domain.bench import BenchResult, Level
from tuner.domain.engine import ServerMetrics
from tuner.domain.load_record import INTERRUPTED, LoadRun
from tuner.domain.slo import Slo
from tuner.domain.trial import Warn
from tuner.domain.workload import ClosedLoop, OpenLoop, Workload
from tuner.errors import InterruptedStudyError, UsageError
from tuner.load.driver import Progress
from tuner.load.run import run_load
from tuner.load.target import Api
from tuner.measure.objective import meets
from tuner.measure.requests import measure
from tuner.measure.sequential import UntilPrecise
from tuner.measure.server import with_server
from tuner.output.bench_page import bench_page
from tuner.output.evidence import TrialFolder, check_writable
from tuner.output.files import write_text
from tuner.output.quoting import dump_json
from tuner.output.tables import can_write_parquet, write_parquet
from tuner.runtime.host import HostWatch
from tuner.runtime.redact import Redactor

_SAFE_VOCABULARY = 1000
_CAP_S = 300.0
_TIME_IS_OVER = "the duration is over"
_GAIN = 1.05
_MOST_CLIENTS = 1024
_BISECTIONS = 3
_RESULT, _PAGE = "bench.json", "bench.html"


@dataclass(frozen=True)
class BenchAsk:
    """What the user asked for. `sweep` doubles the clients from one level to the next."""

    url: str
    workload: Workload
    slo: Slo
    model: str | None = None
    api: Api = "completions"
    api_key: str | None = None
    duration_s: float | None = None
    precision: float | None = None
    """Half width of the throughput's interval, as a share, at which a level may end."""
    sweep: bool = False
    seed: int = 0
    out: Path | None = None
    force: bool = False
    """Whether an earlier result in `out` may be replaced."""


def bench(ask: BenchAsk, tell: Listener) -> BenchResult:
    """Load the server and return the result, which is also written to `ask.out`. Ctrl-C keeps the finished part.

    Raises:
        ServerError: the server cannot be reached or used.
        NothingMeasuredError: no request was answered.
        UsageError: `ask.out` holds an earlier result, and it is not said that it may be replaced.

    """
    if ask.out is not None:
        check_writable(ask.out)
        if (ask.out / _RESULT).exists() and not ask.force:
            raise UsageError(
                f"{ask.out} holds the result of an earlier bench",
                hint="name another directory, or replace it with --force",
            )
    found = find_server(ask.url, ask.model, ask.api_key)
    if ask.api == "chat" or not found.dialect.token_ids:
        found = calibrated(found, ask.api, ask.api_key, tell)
    if ask.out is not None:
        _clear(ask.out)
    tell(Note(f"server {found.url}: model {found.model}, spoken to as {found.dialect.name}"))
    levels: list[Level] = []
    interrupted = False
    try:
        for workload in _levels(ask, levels):
            levels.append(_level(ask, found, workload, tell))
            if levels[-1].stopped == INTERRUPTED:
                interrupted = True
                break
    except KeyboardInterrupt:
        interrupted = True
    if not levels:
        raise InterruptedStudyError("stopped before anything was measured", hint="nothing was written")
    knee: str | None = None
    if ask.sweep and ask.slo.limits:
        kept = [level for level in levels if level.meets_slo]
        knee = max(kept, key=lambda level: level.concurrency or 0).label if kept else None
    result = BenchResult(
        tool_version=__version__,
        url=found.url,
        model=found.model,
        dialect=found.dialect.name,
        api=ask.api,
        seed=ask.seed,
        slo=ask.slo,
        interrupted=interrupted,
        levels=tuple(sorted(levels, key=lambda level: level.concurrency or 0)),
        knee=knee,
    )
    if ask.out is not None:
        write_text(ask.out / _RESULT, dump_json(result.model_dump(mode="json")))
        write_text(ask.out / _PAGE, bench_page(result))
    return result


def _clear(out: Path) -> None:
    """Take away what an earlier result left, so that no file of it is taken for one of the new result."""
    if not (out / _RESULT).exists():
        return
    for pattern in (_RESULT, _PAGE, "requests-*.jsonl.gz", "requests-*.parquet"):
        for path in out.glob(pattern):
            path.unlink()


def _levels(ask: BenchAsk, done: list[Level]) -> Iterator[Workload]:
    """Yield the workload of each level. A sweep doubles the clients until it no longer pays, then looks closer."""
    if not ask.sweep:
        yield ask.workload
        return
    clients = 1
    while clients <= _MOST_CLIENTS:
        yield _at(ask.workload, clients)
        if not done or not done[-1].meets_slo or _errors(done[-1]):
            break
        if len(done) > 1 and _throughput(done[-1]) < _GAIN * _throughput(done[-2]):
            break
        clients *= 2
    kept = [level.concurrency or 0 for level in done if level.meets_slo]
    missed = [level.concurrency or 0 for level in done if not level.meets_slo]
    low, high = max(kept, default=0), min(missed, default=0)
    for _ in range(_BISECTIONS if ask.slo.limits and low and high else 0):
        middle = (low + high) // 2
        if middle in (low, high):
            break
        yield _at(ask.workload, middle)
        low, high = (middle, high) if done[-1].meets_slo else (low, middle)


def _at(workload: Workload, clients: int) -> Workload:
    requests = max(workload.requests if clients >= 8 else workload.requests // 8, 8 * clients, 16)
    return workload.model_copy(
        update={
            "arrivals": ClosedLoop(concurrency=clients),
            "requests": requests,
            "warmup_requests": min(2 * clients, 64),
        }
    )


def _level(ask: BenchAsk, found: Found, workload: Workload, tell: Listener) -> Level:
    """Run one level; where the client was the bottleneck, once more with all cores."""
    label = _label(workload)
    tell(Note(f"level {label}"))
    level = _run(ask, found, workload, label, tell, workers=1)
    cores = len(os.sched_getaffinity(0))
    limited = any(warning.kind is Warn.CLIENT_LIMITED for warning in level.measurement.warnings)
    if limited and cores > 1 and level.stopped is None:
        tell(Note(f"the client was the bottleneck; again with {cores} processes"))
        again = _run(ask, found, workload, label, tell, workers=cores)
        if again.stopped is None:
            return again
    return level


def _run(ask: BenchAsk, found: Found, workload: Workload, label: str, tell: Listener, *, workers: int) -> Level:
    if ask.duration_s is not None or ask.precision is not None:
        workload = workload.model_copy(update={"requests": _enough(workload, ask.duration_s or _CAP_S)})
    as_text = ask.api == "chat" or not found.dialect.token_ids
    requests = requests_of(
        workload,
        vocab_size=_SAFE_VOCABULARY,
        seed=ask.seed,
        salt=secrets.token_hex(8),
        as_text=as_text,
        scale=found.scale,
    )
    before = _counts(found, ask)
    until = (
        UntilPrecise(ask.precision, cap_s=ask.duration_s or _CAP_S, clock=time.monotonic_ns) if ask.precision else None
    )
    clock = _Clock(ask.duration_s)

    def see(progress: Progress) -> None:
        clock.see(progress)
        tell(_progress(progress))

    host = HostWatch()
    with Watch(found.url, found.engine, local=found.local) as watch:
        run = run_load(
            found.url,
            found.model,
            requests,
            workload,
            api=ask.api,
            api_key=ask.api_key,
            dialect=found.dialect.name,
            seed=ask.seed,
            workers=workers,
            keep_on_interrupt=True,
            stop=until.reason if until else clock.stop,
            on_record=until.add if until else None,
            on_progress=see,
        )
    run = _without_key(run, ask.api_key)
    after, environment = _counts(found, ask), host.environment(run.cpu_s)
    if run.stopped == INTERRUPTED and not any(
        record.ok or record.failed for record in run.records if not record.warmup
    ):
        raise KeyboardInterrupt
    measurement = measure(run, ask.slo)
    measurement = with_server(
        measurement,
        run,
        workload,
        before,
        after,
        # An engine on this host uses the CPU itself, so a busy one says nothing.
        environment=None if found.local else environment,
        readings=watch.readings,
    )
    name = f"requests-{label.replace('/', '-')}"
    file = ""
    if ask.out is not None:
        file = f"{name}.jsonl.gz"
        TrialFolder(ask.out).write_requests(run.records, name)
        if can_write_parquet():
            write_parquet(ask.out / f"{name}.parquet", run.records)
    return Level(
        label=label,
        workload=workload,
        measurement=measurement,
        meets_slo=meets(measurement, ask.slo),
        before=before,
        after=after,
        readings=tuple(watch.readings),
        environment=environment,
        client_workers=run.workers,
        stopped=_stopped(run),
        requests_file=file,
        first_words=_first_words(run),
    )


def _without_key(run: LoadRun, api_key: str | None) -> LoadRun:
    """Mask the key where a server has repeated it in what it said of a failure."""
    if not api_key:
        return run
    redactor = Redactor([api_key.encode()])

    def clean(text: str) -> str:
        return redactor.clean(text.encode()).decode(errors="replace")

    records = tuple(replace(one, detail=clean(one.detail)) if one.detail else one for one in run.records)
    return replace(run, records=records, stopped=clean(run.stopped) if run.stopped else None)


def _first_words(run: LoadRun) -> dict[str, str]:
    said: dict[str, str] = {}
    for record in run.records:
        if not record.warmup and record.failed and record.error and record.detail:
            shown = "".join(letter if letter.isprintable() else " " for letter in record.detail)
            said.setdefault(record.error, " ".join(shown.split()))
    return said


def _counts(found: Found, ask: BenchAsk) -> ServerMetrics:
    return found.engine.server_metrics(scrape(found.url, ask.api_key)) if found.engine else ServerMetrics()


class _Clock:
    """Ends a run after a time, counted from when requests are under way: setting up is not part of the level."""

    def __init__(self, duration_s: float | None) -> None:
        self._duration_s = duration_s
        self._started: float | None = None

    def see(self, progress: Progress) -> None:
        """Start the clock with the first request."""
        if self._started is None and (progress.in_flight or progress.done):
            self._started = time.monotonic()

    def stop(self) -> str | None:
        """Return why the run ends, or None."""
        if self._duration_s is None or self._started is None:
            return None
        return _TIME_IS_OVER if time.monotonic() - self._started > self._duration_s else None


def _stopped(run: LoadRun) -> str | None:
    planned = (_TIME_IS_OVER, "the time limit is reached", "the throughput is known")
    return None if run.stopped is None or run.stopped.startswith(planned) else run.stopped


def _enough(workload: Workload, duration_s: float) -> int:
    """Requests that surely last for the duration: the clock ends the run, not the list."""
    arrivals = workload.arrivals
    if isinstance(arrivals, OpenLoop):
        return int(arrivals.rate_per_s * duration_s * 1.5) + 10
    clients = arrivals.concurrency if isinstance(arrivals, ClosedLoop) else 64
    return max(workload.requests, min(200_000, int(clients * duration_s * 4)))


def _label(workload: Workload) -> str:
    arrivals = workload.arrivals
    match arrivals:
        case ClosedLoop():
            return f"c{arrivals.concurrency}"
        case OpenLoop():
            return f"{arrivals.rate_per_s:g}/s"
        case _:
            return arrivals.kind


def _errors(level: Level) -> bool:
    return level.measurement.failed > 0.01 * level.measurement.requests


def _throughput(level: Level) -> float:
    return level.measurement.output_tokens_per_s.value


def _progress(progress: Progress) -> LoadProgress:
    return LoadProgress(progress.done, progress.total, progress.output_tokens, progress.elapsed_s)
