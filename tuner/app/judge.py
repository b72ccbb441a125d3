"""What a trial's server showed becomes an outcome. Never a number for a server that failed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from tuner.app.load import Loaded, refusal
from tuner.domain.engine import StartupFacts
from tuner.domain.study import StudySpec
from tuner.domain.trial import Dropped, Environment, Failed, FailureKind, Measured, Measurement, Outcome
from tuner.engines.base import Engine
from tuner.errors import NothingMeasuredError
from tuner.measure.requests import measure
from tuner.measure.server import joules_per_token, with_server
from tuner.runtime.base import Server
from tuner.runtime.ready import NotReady, Ready

_LOG_TAIL = 4000
_MOST_FAILED = 0.1


@dataclass
class Seen:
    """What the trial's server showed, before it is judged."""

    ready: Ready | NotReady | None = None
    startup: StartupFacts = field(default_factory=StartupFacts)
    loaded: Loaded | None = None
    log: str = ""
    exit_code: int | None = None
    cpu_s: float | None = None
    fault: str | None = None
    memory: int | None = None
    start_s: float = 0.0
    environment: Environment = field(default_factory=Environment)


def judge(study: StudySpec, engine: Engine, seen: Seen, server: Server | None) -> Outcome:
    """Turn what was seen into an outcome. Never a number for a server that failed."""
    if seen.fault is not None:
        return _failed(FailureKind.MACHINE, seen.fault, "start" if seen.loaded is None else "load", seen)
    if server is not None and server.teardown is not None and not server.teardown.clean:
        left = ", ".join(map(str, server.teardown.left)) or "the port is still taken"
        return _failed(FailureKind.MACHINE, f"the server could not be taken down: {left}", "teardown", seen)
    match seen.ready:
        case None:
            return _failed(FailureKind.MACHINE, "the start was cut off", "start", seen)
        case NotReady():
            return _not_ready(engine, seen.ready, seen)
        case Ready():
            return _judge_load(study, engine, seen)
        case _:
            assert_never(seen.ready)


def _not_ready(engine: Engine, ready: NotReady, seen: Seen) -> Failed:
    diagnosis = engine.classify(seen.log, ready.exit_code)
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


def _judge_load(study: StudySpec, engine: Engine, seen: Seen) -> Outcome:
    loaded = seen.loaded
    if loaded is None:
        return _failed(FailureKind.MACHINE, "the load was cut off", "load", seen)
    run, ours = loaded.one.run, loaded.one.dropped is not None
    if seen.exit_code is not None or (run.stopped is not None and not ours and engine.fatal(seen.log)):
        diagnosis = engine.classify(seen.log, 1 if seen.exit_code is None else seen.exit_code)
        return _failed(diagnosis.failure, f"died under load: {diagnosis.reason}", "load", seen)
    counted = [record for record in run.records if not record.warmup]
    failed = [record for record in counted if record.failed]
    broken = run.stopped is not None and not ours
    if loaded.dropped is None and (broken or not counted or len(failed) > _MOST_FAILED * len(counted)):
        kinds = ", ".join(sorted({record.error or "" for record in failed})) or "no request was finished"
        reason = f"{len(failed)} of {len(counted)} requests failed ({kinds})"
        return _failed(FailureKind.LOAD_BROKEN, f"{run.stopped}; {reason}" if broken else reason, "load", seen)
    refused = refusal(study, run)
    if refused is not None:
        return _failed(FailureKind.MACHINE, refused, "load", seen)
    if loaded.dropped is not None:
        return _dropped(study, loaded, seen)
    return Measured(
        measurement=_measured(study, loaded, seen),
        startup=seen.startup,
        metrics_before=loaded.one.before,
        metrics_after=loaded.one.after,
        start_s=seen.start_s,
        peak_memory_bytes=seen.memory,
        levels=loaded.levels,
    )


def _dropped(study: StudySpec, loaded: Loaded, seen: Seen) -> Dropped:
    rule, reason = loaded.dropped or ("objective", "")
    try:
        measurement = _measured(study, loaded, seen)
    except NothingMeasuredError:
        measurement = None
    return Dropped(
        rule=rule, reason=reason, bound=loaded.bound, measurement=measurement, startup=seen.startup,
        start_s=seen.start_s, levels=loaded.levels,
    )


def _measured(study: StudySpec, loaded: Loaded, seen: Seen) -> Measurement:
    one = loaded.one
    measurement = measure(one.run, study.slo)
    found = with_server(measurement, one.run, one.workload, one.before, one.after, environment=seen.environment,
                        readings=one.readings)
    joules = joules_per_token(one.readings, found.output_tokens_per_s)
    return found.model_copy(update={"knee": loaded.knee, "joules_per_token": joules})


def _failed(kind: FailureKind, reason: str, phase: str, seen: Seen) -> Failed:
    exit_code = seen.ready.exit_code if isinstance(seen.ready, NotReady) else seen.exit_code
    return Failed(failure=kind, reason=reason, phase=phase, exit_code=exit_code, log_tail=seen.log[-_LOG_TAIL:])
