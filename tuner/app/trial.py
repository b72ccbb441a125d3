"""One trial: launch, ready, facts, load, teardown, settle; each phase timed, every path torn down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tuner.app.events import Listener, LoadProgress, Note, PhaseEntered
from tuner.app.judge import Seen, judge
from tuner.app.load import Loader, Task
from tuner.app.scrape import scrape
from tuner.capacity.compare import compared, narrow_cache_ignored
from tuner.capacity.memory import MemoryPlan, memory_plan
from tuner.domain.engine import EngineConfig, LaunchSpec
from tuner.domain.study import StudySpec
from tuner.domain.trial import Phase, Trial
from tuner.engines.base import Engine
from tuner.errors import HardwareError
from tuner.load.driver import Progress
from tuner.output.evidence import TrialFolder
from tuner.runtime.base import Launcher, Server
from tuner.runtime.gpu import memory_used_bytes, wait_gpu_memory_back
from tuner.runtime.host import HostWatch
from tuner.runtime.ready import NotReady, Ready, wait_ready

_LAST_WORDS_S = 2.0
_LOST = ("connect", "reset")
"""Errors of requests after which the server may be dying: a short run can be over before its process is."""
_POLL_S = 0.05


@dataclass(frozen=True)
class Bench:
    """What every trial of a study shares."""

    spec: StudySpec
    engine: Engine
    launcher: Launcher
    study_folder: Path
    tell: Listener
    gpu_base: tuple[int, ...] = field(default_factory=memory_used_bytes)
    """Memory in use on each GPU before the first launch, which every launch must find again."""


@dataclass
class _Clock:
    """Collects the phases of one trial."""

    phases: list[Phase] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str, *, own: bool = False) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - started, own=own)

    def add(self, name: str, seconds: float, *, own: bool = False) -> None:
        self.phases.append(Phase(name=name, seconds=round(seconds, 4), own=own))


def run_trial(
    bench: Bench, *, config: EngineConfig, number: int, purpose: str, folder: TrialFolder, task: Task, attempts: int = 1
) -> Trial:
    """Launch this configuration, measure it under the study's workload and take it down.

    What the run saw is written to `folder`.

    Raises:
        EngineError: the program cannot be started at all.
        OutputError: the evidence cannot be written.

    """
    clock = _Clock()
    with clock.phase("prepare", own=True):
        _require_base(bench)
        spec = bench.engine.launch(bench.spec.model, config, bench.spec.engine)
        folder.write_launch(spec)
    seen = Seen()
    watch = HostWatch()
    server: Server | None = None
    try:
        with bench.launcher.start(spec, folder.path) as server:
            clock.add("launch", server.launch_s, own=True)
            _serve(bench, config=config, spec=spec, server=server, seen=seen, clock=clock, task=task)
            _last_words(server, seen)
    finally:
        if server is not None and server.teardown is not None:
            clock.add("engine stops", server.teardown.engine_s)
            clock.add("check that nothing is left", server.teardown.check_s, own=True)
    with clock.phase("settle", own=True):
        wait_gpu_memory_back(bench.gpu_base)
        used = (seen.loaded.cpu_s if seen.loaded else 0.0) + (seen.cpu_s or 0.0)
        seen.environment = watch.environment(used)
    with clock.phase("judge", own=True):
        outcome = judge(bench.spec, bench.engine, seen, server)
        _keep_prediction(bench, config, seen, folder)
        if seen.loaded is not None:
            folder.write_requests(seen.loaded.one.run.records)
        trial = Trial.model_validate(
            {
                "number": number,
                "purpose": purpose,
                "config": config,
                "outcome": outcome,
                "environment": seen.environment,
                "attempts": attempts,
                "evidence": str(folder.path.relative_to(bench.study_folder)),
            }
        )
    trial = trial.model_copy(update={"phases": tuple(clock.phases)})
    folder.write_outcome(trial)
    return trial


def _keep_prediction(bench: Bench, config: EngineConfig, seen: Seen, folder: TrialFolder) -> None:
    """Keep the predicted memory beside what the engine said, so that the error of the prediction is known."""
    model = bench.spec.model
    footprint = bench.engine.footprint(model, config)
    plan = memory_plan(model, footprint, bench.spec.hardware)
    if isinstance(plan, MemoryPlan) and isinstance(seen.ready, Ready):
        folder.write_memory(compared(plan, seen.startup))
        ignored = narrow_cache_ignored(plan, footprint, seen.startup)
        if ignored is not None:
            bench.tell(Note(ignored))


def _require_base(bench: Bench) -> None:
    settled = wait_gpu_memory_back(bench.gpu_base, timeout_s=60.0)
    if not settled.settled:
        raise HardwareError(
            f"GPU memory is not back to its base: {settled.missing_bytes / 2**30:.1f} GiB more than before the study",
            hint="see with nvidia-smi which process holds it; measured beside it, no number would be true",
        )


def _serve(
    bench: Bench, *, config: EngineConfig, spec: LaunchSpec, server: Server, seen: Seen, clock: _Clock, task: Task
) -> None:
    bench.tell(PhaseEntered("starting"))
    study = bench.spec
    with clock.phase("start"):
        seen.ready = wait_ready(
            server,
            spec,
            timeout_s=study.budget.start_timeout_s or bench.engine.start_timeout_s(study.model, config),
            on_phase=lambda phase: bench.tell(PhaseEntered(phase)),
            fatal=bench.engine.fatal,
            phase=bench.engine.phase,
        )
    if isinstance(seen.ready, NotReady):
        return
    seen.start_s = server.launch_s + seen.ready.seconds
    with clock.phase("read facts", own=True):
        metrics = scrape(server.url, path=spec.metrics_path)
        seen.startup = bench.engine.startup_facts(server.log_text(), metrics)
    bench.tell(PhaseEntered("measuring"))
    loader = Loader(
        study,
        bench.engine,
        config,
        url=server.url,
        served_name=spec.served_name,
        metrics_path=spec.metrics_path,
        died=lambda: _died(server),
        on_progress=lambda progress: bench.tell(_progress(progress)),
    )
    with clock.phase("warm-up and load"):
        seen.loaded = loader.load(task)
    with clock.phase("read memory", own=True):
        if server.exit_code() is None:
            seen.memory = server.memory_bytes()
    bench.tell(PhaseEntered("stopping"))


def _last_words(server: Server, seen: Seen) -> None:
    """Read log and exit code before the teardown changes them; a dying server gets a moment to say why."""
    limit = time.monotonic() + _LAST_WORDS_S
    one = seen.loaded.one if seen.loaded is not None else None
    broken = one is not None and one.dropped is None and (
        one.run.stopped is not None or any(record.error in _LOST for record in one.run.records)
    )
    while broken and server.exit_code() is None and time.monotonic() < limit:
        time.sleep(_POLL_S)
    seen.exit_code = server.exit_code()
    while seen.exit_code is not None and not server.log_complete() and time.monotonic() < limit:
        time.sleep(_POLL_S)
    seen.cpu_s = server.cpu_seconds()
    seen.fault = server.fault()
    seen.log = server.log_text()


def _died(server: Server) -> str | None:
    code = server.exit_code()
    return None if code is None else f"the server ended with exit code {code}"


def _progress(progress: Progress) -> LoadProgress:
    return LoadProgress(progress.done, progress.total, progress.output_tokens, progress.elapsed_s)
