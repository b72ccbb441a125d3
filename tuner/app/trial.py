"""One trial: launch, ready, facts, load, metrics, teardown, settle; each phase timed, every path torn down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from tuner.app.events import Listener, LoadProgress, PhaseEntered
from tuner.app.load import load, refusal
from tuner.app.scrape import scrape
from tuner.capacity.compare import compared
from tuner.capacity.memory import MemoryPlan, memory_plan
from tuner.domain.engine import EngineConfig, LaunchSpec, ServerMetrics, StartupFacts
from tuner.domain.load_record import LoadRun
from tuner.domain.study import StudySpec
from tuner.domain.trial import Environment, Failed, FailureKind, Measured, Measurement, Outcome, Phase, Trial
from tuner.engines.base import Engine
from tuner.errors import HardwareError
from tuner.load.driver import Progress
from tuner.measure.requests import measure
from tuner.measure.server import with_server
from tuner.output.evidence import TrialFolder
from tuner.runtime.base import Launcher, Server
from tuner.runtime.gpu import memory_used_bytes, wait_gpu_memory_back
from tuner.runtime.host import HostWatch
from tuner.runtime.ready import NotReady, Ready, wait_ready

_LOG_TAIL = 4000
_MOST_FAILED = 0.1
_LAST_WORDS_S = 2.0
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


@dataclass
class _Seen:
    """What the trial's server showed, before it is judged."""

    ready: Ready | NotReady | None = None
    startup: StartupFacts = field(default_factory=StartupFacts)
    before: ServerMetrics | None = None
    after: ServerMetrics | None = None
    run: LoadRun | None = None
    log: str = ""
    exit_code: int | None = None
    cpu_s: float | None = None
    fault: str | None = None
    memory: int | None = None
    start_s: float = 0.0
    environment: Environment = field(default_factory=Environment)


def run_trial(
    bench: Bench, *, config: EngineConfig, number: int, purpose: str, folder: TrialFolder, salt: str, attempts: int = 1
) -> Trial:
    """Launch this configuration, measure it under the study's workload and take it down.

    `salt` makes the prompts of this run unlike those of every other run; their lengths are the study's. What the run
    saw is written to `folder`.

    Raises:
        EngineError: the program cannot be started at all.
        OutputError: the evidence cannot be written.

    """
    clock = _Clock()
    with clock.phase("prepare", own=True):
        _require_base(bench)
        spec = bench.engine.launch(bench.spec.model, config, bench.spec.engine)
        folder.write_launch(spec)
    seen = _Seen()
    watch = HostWatch()
    server: Server | None = None
    try:
        with bench.launcher.start(spec, folder.path) as server:
            clock.add("launch", server.launch_s, own=True)
            _serve(bench, config=config, spec=spec, server=server, seen=seen, clock=clock, salt=salt)
            _last_words(server, seen)
    finally:
        if server is not None and server.teardown is not None:
            clock.add("engine stops", server.teardown.engine_s)
            clock.add("check that nothing is left", server.teardown.check_s, own=True)
    with clock.phase("settle", own=True):
        wait_gpu_memory_back(bench.gpu_base)
        used = (seen.run.cpu_s if seen.run else 0.0) + (seen.cpu_s or 0.0)
        seen.environment = watch.environment(used)
    with clock.phase("judge", own=True):
        outcome = judge(bench, seen, server)
        _keep_prediction(bench, config, seen, folder)
        if seen.run is not None:
            folder.write_requests(seen.run.records)
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


def _keep_prediction(bench: Bench, config: EngineConfig, seen: _Seen, folder: TrialFolder) -> None:
    """Keep the predicted memory beside what the engine said, so that the error of the prediction is known."""
    model = bench.spec.model
    plan = memory_plan(model, bench.engine.footprint(model, config), bench.spec.hardware)
    if isinstance(plan, MemoryPlan) and isinstance(seen.ready, Ready):
        folder.write_memory(compared(plan, seen.startup))


def _require_base(bench: Bench) -> None:
    settled = wait_gpu_memory_back(bench.gpu_base, timeout_s=60.0)
    if not settled.settled:
        raise HardwareError(
            f"GPU memory is not back to its base: {settled.missing_bytes / 2**30:.1f} GiB more than before the study",
            hint="see with nvidia-smi which process holds it; measured beside it, no number would be true",
        )


def _serve(
    bench: Bench, *, config: EngineConfig, spec: LaunchSpec, server: Server, seen: _Seen, clock: _Clock, salt: str
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
        seen.before = bench.engine.server_metrics(metrics)
    bench.tell(PhaseEntered("measuring"))
    with clock.phase("warm-up and load"):
        seen.run = load(
            study,
            server.url,
            spec.served_name,
            salt=salt,
            stop=lambda: _died(server),
            on_progress=lambda progress: bench.tell(_progress(progress)),
        )
    with clock.phase("read metrics", own=True):
        if server.exit_code() is None:
            seen.after = bench.engine.server_metrics(scrape(server.url, path=spec.metrics_path))
            seen.memory = server.memory_bytes()
    bench.tell(PhaseEntered("stopping"))


def _last_words(server: Server, seen: _Seen) -> None:
    """Read log and exit code before the teardown changes them; a dying server gets a moment to say why."""
    limit = time.monotonic() + _LAST_WORDS_S
    broken = seen.run is not None and seen.run.stopped is not None
    while broken and server.exit_code() is None and time.monotonic() < limit:
        time.sleep(_POLL_S)
    seen.exit_code = server.exit_code()
    while seen.exit_code is not None and not server.log_complete() and time.monotonic() < limit:
        time.sleep(_POLL_S)
    seen.cpu_s = server.cpu_seconds()
    seen.fault = server.fault()
    seen.log = server.log_text()


def judge(bench: Bench, seen: _Seen, server: Server | None) -> Outcome:
    """Turn what was seen into an outcome. Never a number for a server that failed."""
    if seen.fault is not None:
        return _failed(FailureKind.MACHINE, seen.fault, "start" if seen.run is None else "load", seen)
    if server is not None and server.teardown is not None and not server.teardown.clean:
        left = ", ".join(map(str, server.teardown.left)) or "the port is still taken"
        return _failed(FailureKind.MACHINE, f"the server could not be taken down: {left}", "teardown", seen)
    match seen.ready:
        case None:
            return _failed(FailureKind.MACHINE, "the start was cut off", "start", seen)
        case NotReady():
            return _not_ready(bench, seen.ready, seen)
        case Ready():
            return _judge_load(bench, seen)
        case _:
            assert_never(seen.ready)


def _not_ready(bench: Bench, ready: NotReady, seen: _Seen) -> Failed:
    diagnosis = bench.engine.classify(seen.log, ready.exit_code)
    match ready.kind:
        case "exited" | "fatal_line":
            return _failed(diagnosis.failure, diagnosis.reason, "start", seen)
        case "timeout":
            kind = FailureKind.HUNG if diagnosis.failure is FailureKind.HUNG else diagnosis.failure
            return _failed(kind, f"{ready.detail}; {diagnosis.reason}", "start", seen)
        case "no_answer":
            return _failed(FailureKind.NOT_READY, ready.detail, "start", seen)
        case "wrong_model" | "foreign_listener" | "machine":
            return _failed(FailureKind.MACHINE, ready.detail, "start", seen)
        case _:
            assert_never(ready.kind)


def _judge_load(bench: Bench, seen: _Seen) -> Outcome:
    run = seen.run
    if run is None:
        return _failed(FailureKind.MACHINE, "the load was cut off", "load", seen)
    if seen.exit_code is not None or (run.stopped is not None and bench.engine.fatal(seen.log) is not None):
        diagnosis = bench.engine.classify(seen.log, 1 if seen.exit_code is None else seen.exit_code)
        return _failed(diagnosis.failure, f"died under load: {diagnosis.reason}", "load", seen)
    counted = [record for record in run.records if not record.warmup]
    failed = [record for record in counted if record.failed]
    if run.stopped is not None or not counted or len(failed) > _MOST_FAILED * len(counted):
        kinds = ", ".join(sorted({record.error or "" for record in failed})) or "no request was finished"
        reason = f"{len(failed)} of {len(counted)} requests failed ({kinds})"
        return _failed(FailureKind.LOAD_BROKEN, f"{run.stopped}; {reason}" if run.stopped else reason, "load", seen)
    refused = refusal(bench.spec, run)
    if refused is not None:
        return _failed(FailureKind.MACHINE, refused, "load", seen)
    return Measured(
        measurement=_measured(bench, run, seen),
        startup=seen.startup,
        metrics_before=seen.before,
        metrics_after=seen.after,
        start_s=seen.start_s,
        peak_memory_bytes=seen.memory,
    )


def _measured(bench: Bench, run: LoadRun, seen: _Seen) -> Measurement:
    measurement = measure(run, bench.spec.slo)
    before, after = seen.before or ServerMetrics(), seen.after or ServerMetrics()
    return with_server(measurement, run, bench.spec.workload, before, after, environment=seen.environment)


def _failed(kind: FailureKind, reason: str, phase: str, seen: _Seen) -> Failed:
    exit_code = seen.ready.exit_code if isinstance(seen.ready, NotReady) else seen.exit_code
    return Failed(failure=kind, reason=reason, phase=phase, exit_code=exit_code, log_tail=seen.log[-_LOG_TAIL:])


def _died(server: Server) -> str | None:
    code = server.exit_code()
    return None if code is None else f"the server ended with exit code {code}"


def _progress(progress: Progress) -> LoadProgress:
    return LoadProgress(progress.done, progress.total, progress.output_tokens, progress.elapsed_s)
