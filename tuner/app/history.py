"""What the trials so far say: to the sampler, of the incumbent, and of the time they took."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.app.load import Incumbent
from tuner.app.scoring import better, scored
from tuner.domain.engine import EngineConfig
from tuner.domain.study import StudySpec
from tuner.domain.trial import Dropped, Failed, FailureKind, Infeasible, Measured, Measurement, Trial
from tuner.measure.objective import meets, slo_violations
from tuner.search.observed import Observed
from tuner.search.spaces import OpenSpace


def is_machine_fault(trial: Trial) -> bool:
    """Whether the machine failed, which says nothing of the configuration."""
    return isinstance(trial.outcome, Failed) and trial.outcome.failure is FailureKind.MACHINE


def failed(trial: Trial) -> Failed:
    """Return the failure of a trial that is known to be one.

    Raises:
        TypeError: it is none.

    """
    if not isinstance(trial.outcome, Failed):
        raise TypeError(f"trial {trial.number} did not fail")
    return trial.outcome


def keeps(spec: StudySpec, measurement: Measurement) -> bool:
    """Whether a measurement keeps the SLO; with an objective of load levels, whether any level did."""
    if measurement.knee is not None and measurement.knee.value <= 0:
        return False
    return meets(measurement, spec.slo)


def keeps_slo(spec: StudySpec, outcome: Measured) -> bool:
    """Whether a measured trial keeps the SLO."""
    return keeps(spec, outcome.measurement)


def incumbent(spec: StudySpec, trials: Sequence[Trial]) -> Incumbent | None:
    """Return the best configuration that was fully measured and keeps the SLO, or None."""
    best: Incumbent | None = None
    value = 0.0
    for trial in trials:
        if not isinstance(trial.outcome, Measured) or not keeps_slo(spec, trial.outcome):
            continue
        found = scored(spec, trial.config, trial.outcome.measurement).value
        if best is None or better(spec, found, value):
            best, value = Incumbent(trial.config, trial.outcome.measurement), found
    return best


def spent_s(trials: Sequence[Trial]) -> float:
    """Wall clock of all trials, those that the machine spoiled included, in seconds."""
    return sum(phase.seconds for trial in trials for phase in trial.phases)


def observed(
    spec: StudySpec, space: OpenSpace, trials: Sequence[Trial], running: Sequence[tuple[int, EngineConfig]] = ()
) -> list[Observed]:
    """Return what a sampler may know: every configuration inside the space, without the faults of the machine."""
    found = []
    for trial in trials:
        point = space.point_of(trial.config)
        if point is None or is_machine_fault(trial):
            continue
        match trial.outcome:
            case Measured() as outcome:
                score = scored(spec, trial.config, outcome.measurement)
                violations = slo_violations(outcome.measurement, spec.slo)
                found.append(Observed(
                    point, "measured", score=score.value, low=score.low, high=score.high, violations=violations,
                    violation=max(violations.values(), default=None), start_s=outcome.start_s,
                    load_s=_load_s(trial),
                ))
            case Dropped() as outcome:
                partial = outcome.measurement
                violations = slo_violations(partial, spec.slo) if partial is not None else {}
                bound = outcome.bound
                found.append(Observed(
                    point, "dropped", low=bound.low if bound else None, high=bound.high if bound else None,
                    violations=violations, violation=max(violations.values(), default=None), reason=outcome.reason,
                    start_s=outcome.start_s, load_s=_load_s(trial),
                ))
            case Failed() as outcome:
                seconds = sum(phase.seconds for phase in trial.phases) or None
                found.append(Observed(point, "failed", reason=outcome.reason, start_s=seconds))
            case Infeasible() as outcome:
                found.append(Observed(point, "ruled_out", reason=outcome.reason))
    for _, config in running:
        point = space.point_of(config)
        if point is not None:
            found.append(Observed(point, "running"))
    return found


def _load_s(trial: Trial) -> float | None:
    return next((phase.seconds for phase in trial.phases if phase.name == "warm-up and load"), None)
