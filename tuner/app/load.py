"""The load of a trial: prompts that no run has sent before, one level or several, and an early end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from tuner.app.requests import requests_of
from tuner.app.scoring import replicas, scored, shared_workload
from tuner.app.scrape import scrape
from tuner.app.watch import Watch
from tuner.domain.bench import Reading
from tuner.domain.engine import EngineConfig, ServerMetrics
from tuner.domain.load_record import LoadRun, RequestRecord
from tuner.domain.study import KNEES, StudySpec
from tuner.domain.trial import Estimate, LoadPoint, Measurement
from tuner.domain.workload import Workload
from tuner.engines.base import Engine
from tuner.errors import NothingMeasuredError
from tuner.load.driver import Progress
from tuner.load.run import run_load
from tuner.measure.levels import at_clients, at_rate, first_level, load_point, sweep
from tuner.measure.objective import direction
from tuner.measure.quality import client_limits
from tuner.measure.requests import measure
from tuner.measure.sequential import Hopeless, OutOfReach
from tuner.search.levels import Knee, find_knee

_MOST_WORKERS = 8
Rule = Literal["slo", "objective", "level"]


@dataclass(frozen=True)
class Incumbent:
    """The best configuration so far that keeps the SLO: what a challenger has to beat."""

    config: EngineConfig
    measurement: Measurement


@dataclass(frozen=True)
class Task:
    """What is asked of a load beside the study's own question.

    `salt` makes the prompts unlike those of every other run; their lengths are the study's. With `incumbent` the run
    ends as soon as it cannot win. `sweep` adds the levels of a load curve. `level` is where a search over levels
    begins.
    """

    salt: str
    incumbent: Incumbent | None = None
    sweep: bool = False
    level: float | None = None


@dataclass(frozen=True)
class One:
    """One run of one level, with the server's counters around it."""

    workload: Workload
    run: LoadRun
    before: ServerMetrics
    after: ServerMetrics
    readings: tuple[Reading, ...] = ()
    dropped: tuple[Rule, str] | None = None
    bound: Estimate | None = None


@dataclass
class Loaded:
    """What the server went through. `one` is the run that counts: the workload's own, or that of the knee."""

    one: One
    knee: Estimate | None = None
    levels: tuple[LoadPoint, ...] = ()
    dropped: tuple[Rule, str] | None = None
    bound: Estimate | None = None
    cpu_s: float = 0.0


@dataclass
class Loader:
    """Loads one server of a trial."""

    study: StudySpec
    engine: Engine
    config: EngineConfig
    url: str
    served_name: str
    metrics_path: str
    died: Callable[[], str | None]
    on_progress: Callable[[Progress], None]
    _runs: int = field(default=0, init=False)
    _cpu_s: float = field(default=0.0, init=False)

    def load(self, task: Task) -> Loaded:
        """Do what the study and the task ask for."""
        if self.study.objective in KNEES:
            loaded = self._search_levels(task)
        else:
            one = self._careful(self._own_workload(), task)
            loaded = Loaded(one, dropped=one.dropped, bound=one.bound)
            if task.sweep and loaded.dropped is None and one.run.stopped is None:
                loaded.levels = self._curve(one, task)
        loaded.cpu_s = self._cpu_s
        return loaded

    def _own_workload(self) -> Workload:
        return shared_workload(self.study.workload, replicas(self.study, self.config))

    def _search_levels(self, task: Task) -> Loaded:
        workload, clients = self._own_workload(), self.study.objective == "max_concurrency"
        runs: dict[float, One] = {}

        def run(level: float) -> LoadPoint:
            at = at_clients(workload, int(level)) if clients else at_rate(workload, level)
            one = runs[level] = self._careful(at, task, racing=False)
            return self._point(one)

        start = task.level or first_level(workload, self.study.objective)
        found: Knee = find_knee(run, start=start, incumbent=self._share_of(task.incumbent), whole=clients)
        counts = found.knee.value if found.knee.value in runs else min(runs)
        dropped: tuple[Rule, str] | None = ("level", found.dropped) if found.dropped else None
        bound = found.knee if found.dropped else None
        return Loaded(runs[counts], knee=found.knee, levels=found.points, dropped=dropped, bound=bound)

    def _share_of(self, incumbent: Incumbent | None) -> float | None:
        """Return the incumbent's level that one server of this configuration would have to hold."""
        if incumbent is None:
            return None
        return scored(self.study, incumbent.config, incumbent.measurement).value / replicas(self.study, self.config)

    def _curve(self, own: One, task: Task) -> tuple[LoadPoint, ...]:
        points = [self._point(own)]
        for workload in sweep(own.workload):
            one = self._careful(workload, Task(salt=task.salt), racing=False)
            points.append(self._point(one))
            if self.died() is not None:
                break
        return tuple(sorted(points, key=lambda point: point.load))

    def _point(self, one: One) -> LoadPoint:
        note = one.dropped[1] if one.dropped else one.run.stopped or ""
        try:
            return load_point(measure(one.run, self.study.slo), one.workload, self.study.slo, note)
        except NothingMeasuredError as error:
            zero = Estimate(value=0.0, low=0.0, high=0.0, n=0)
            clients = getattr(one.workload.arrivals, "concurrency", None)
            rate = getattr(one.workload.arrivals, "rate_per_s", None)
            return LoadPoint(clients=clients, rate_per_s=rate, in_flight=0.0, requests=0, output_tokens_per_s=zero,
                             requests_per_s=zero, meets_slo=False, note=error.message)

    def _careful(self, workload: Workload, task: Task, *, racing: bool = True) -> One:
        """Send the workload; where the client was the bottleneck, once more from several processes.

        On a CPU the engine shares its cores with any client, and more processes would only take more from it.
        """
        one = self._once(workload, task, racing=racing, workers=1)
        workers = min(_MOST_WORKERS, len(os.sched_getaffinity(0)))
        on_gpus = self.study.hardware.kind == "cuda"
        if on_gpus and one.run.stopped is None and workers > 1 and client_limits(one.run):
            one = self._once(workload, task, racing=racing, workers=workers)
        return one

    def _once(self, workload: Workload, task: Task, *, racing: bool, workers: int) -> One:
        study = self.study
        self._runs += 1
        salt = task.salt if self._runs == 1 else f"{task.salt}-{self._runs}"
        requests = requests_of(workload, vocab_size=study.model.vocab_size, seed=study.seed, salt=salt)
        gate = _Gate(
            self.died,
            slo=Hopeless(study.slo) if study.slo.limits and (not racing or task.incumbent) else None,
            reach=self._reach(task.incumbent) if racing and task.incumbent else None,
        )
        before = self._counters()
        # On a CPU each scrape is taken from the engine's own cores, and there is no telemetry to read.
        watch = Watch(self.url, self.engine, local=True) if study.hardware.kind == "cuda" else None
        if watch is not None:
            watch.__enter__()
        try:
            run = run_load(
                self.url, self.served_name, requests, workload, seed=study.seed, stop=gate.stop,
                on_record=gate.add, on_progress=self.on_progress, workers=workers,
            )
        finally:
            if watch is not None:
                watch.__exit__(None, None, None)
        self._cpu_s += run.cpu_s
        readings = tuple(watch.readings) if watch is not None else ()
        return One(workload, run, before, self._counters(), readings, gate.dropped, gate.bound)

    def _counters(self) -> ServerMetrics:
        if self.died() is not None:
            return ServerMetrics()
        return self.engine.server_metrics(scrape(self.url, path=self.metrics_path))

    def _reach(self, incumbent: Incumbent) -> OutOfReach | None:
        """Return the test against the incumbent, in the terms of one server of this configuration."""
        study = self.study
        objective = "output_tokens_per_s" if study.objective == "cost_per_mtok" else study.objective
        if objective in (*KNEES, "p95_itl", "mean_e2e", "joules_per_token"):
            return None
        found = scored(study, incumbent.config, incumbent.measurement, objective)
        target = found.low / replicas(study, self.config) if direction(objective) == "maximize" else found.high
        return OutOfReach(objective, target, study.slo, clock=time.monotonic_ns) if target > 0 else None


class _Gate:
    """Ends a run: because the server died, or because the configuration cannot win any more."""

    def __init__(
        self, died: Callable[[], str | None], *, slo: Hopeless | None, reach: OutOfReach | None
    ) -> None:
        self._died = died
        self._slo = slo
        self._reach = reach
        self.dropped: tuple[Rule, str] | None = None

    @property
    def bound(self) -> Estimate | None:
        """What was known of the objective's rate when the run was dropped."""
        return self._reach.bound if self._reach is not None and self.dropped is not None else None

    def add(self, record: RequestRecord) -> None:
        for test in (self._slo, self._reach):
            if test is not None:
                test.add(record)

    def stop(self) -> str | None:
        if self._slo is not None and (reason := self._slo.reason()) is not None:
            self.dropped = ("slo", reason)
            return reason
        if self._reach is not None and (reason := self._reach.reason()) is not None:
            self.dropped = ("objective", reason)
            return reason
        return self._died()


def refusal(study: StudySpec, run: LoadRun) -> str | None:
    """Return why this run's numbers are the client's and not the server's, so that no sampler may see them."""
    limits = client_limits(run)
    if not limits or study.hardware.kind == "cpu":
        return None
    return f"the load generator could not keep up ({'; '.join(limits)})"
