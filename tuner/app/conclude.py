"""From trials and verification to a Plan."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence

from tuner import __version__
from tuner.app.history import keeps_slo, observed
from tuner.app.resolve import Resolved
from tuner.app.scoring import replicas, scored
from tuner.app.trial import Bench
from tuner.app.verdict import noise
from tuner.app.verify import Entrant, rank
from tuner.app.words import value_text
from tuner.domain.engine import EngineConfig
from tuner.domain.plan import Arm, Change, Importance, Plan, Sizing, Soak, TrialRow, Verdict
from tuner.domain.space import SearchSpace
from tuner.domain.study import StudySpec
from tuner.domain.trial import Dropped, Estimate, Failed, Infeasible, LoadPoint, Measured, Measurement, Trial
from tuner.errors import NothingMeasuredError
from tuner.measure.front import front
from tuner.measure.objective import direction
from tuner.rules import findings
from tuner.search.surrogate import importances


def conclude(
    resolved: Resolved,
    bench: Bench,
    *,
    trials: Sequence[Trial],
    found: Sequence[Arm],
    verdict: Verdict,
    winner: Arm | None,
    chosen: Sequence[Entrant],
    soaked: Soak | None = None,
) -> Plan:
    """Build the plan that deploys the winner; without one, the best trial of the search, marked not verified."""
    spec = bench.spec
    measured = [trial for trial in trials if isinstance(trial.outcome, Measured)]
    number = winner.trial if winner is not None else rank(bench, measured)[0].number
    trial = next(trial for trial in measured if trial.number == number)
    outcome = trial.outcome
    if not isinstance(outcome, Measured):
        raise TypeError("only a measured trial is deployed")
    entrant = next((entrant for entrant in chosen if entrant.trial == number), None)
    starts = [outcome.start_s, *(entrant.starts if entrant else ())]
    memory = [size for size in (outcome.peak_memory_bytes, *(entrant.memory if entrant else ())) if size is not None]
    reference = next((arm for arm in found if arm.label in ("baseline", "default")), None)
    kept = winner is not None and winner.meets_slo
    return Plan(
        tool_version=__version__,
        complete=verdict.kind != "not_verified",
        measured=True,
        study=spec,
        config=trial.config,
        launch=bench.engine.launch(spec.model, trial.config, spec.engine),
        startup=outcome.startup,
        sizing=Sizing(
            start_s=max(starts),
            start_n=len(starts),
            peak_memory_bytes=max(memory, default=None),
            replicas=replicas(spec, trial.config),
            knee_in_flight=_knee_in_flight(spec, entrant.levels if entrant else outcome.levels) if kept else None,
        ),
        verdict=verdict,
        arms=tuple(found),
        changes=_changes(trial.config, reference.config if reference else None, spec.space),
        trials=_rows(bench, trials),
        importances=tuple(
            Importance(flag=flag, share=share)
            for flag, share in importances(
                resolved.space, observed(spec, resolved.space, trials), direction(spec.objective)
            )
        ),
        noise=noise(spec, [arm for arm in found if arm in (reference, winner) or arm.label == "best"]),
        soak=soaked,
        warnings=(*_warnings(bench, trial.config, found, chosen), *(f"soak: {text}" for text in _problems(soaked))),
        command=resolved.command,
    )


def _changes(config: EngineConfig, before: EngineConfig | None, space: SearchSpace) -> tuple[Change, ...]:
    old = before.values if before else {}
    flags = sorted({*config.values, *old})
    whys = {setting.flag: setting.why for setting in space.settings} | {s.flag: s.why for s in config.settings if s.why}
    return tuple(
        Change(flag=flag, before=value_text(old.get(flag)), after=value_text(config.get(flag)), why=whys.get(flag, ""))
        for flag in flags
        if old.get(flag) != config.get(flag) or type(old.get(flag)) is not type(config.get(flag))
    )


def _problems(soaked: Soak | None) -> tuple[str, ...]:
    return soaked.problems if soaked is not None else ()


def _knee_in_flight(spec: StudySpec, levels: Sequence[LoadPoint]) -> float | None:
    """Return the requests in flight at the highest level that kept the SLO, if a higher one did not.

    Without an SLO, or with every level below the knee, nothing is known of where it lies.
    """
    kept = [point for point in levels if point.meets_slo]
    missed = [point for point in levels if not point.meets_slo]
    if not spec.slo.limits or not kept or not missed:
        return None
    highest = max(kept, key=lambda point: point.load)
    return highest.in_flight if highest.in_flight > 0 else None


def _rows(bench: Bench, trials: Sequence[Trial]) -> tuple[TrialRow, ...]:
    """Return the history, with the Pareto front over all objectives among the trials that keep the SLO."""
    spec = bench.spec
    objectives = (spec.objective, *spec.also)
    rows = [_row(bench, trial) for trial in trials]
    values = [
        {name: found.value for name, found in row.values.items()} if row.meets_slo and spec.also else {} for row in rows
    ]
    on_front = front(values, objectives)
    return tuple(
        row.model_copy(update={"on_front": True}) if best else row for row, best in zip(rows, on_front, strict=True)
    )


def _row(bench: Bench, trial: Trial) -> TrialRow:
    base: dict[str, object] = {
        "number": trial.number,
        "purpose": trial.purpose,
        "key": trial.config.key,
        "outcome": trial.outcome.kind,
        "settings": {flag: value_text(value) for flag, value in trial.config.values.items()},
        "own_s": round(trial.own_seconds, 3) if trial.phases else None,
        "predicted": trial.predicted,
        "seconds": round(sum(phase.seconds for phase in trial.phases), 3) if trial.phases else None,
    }
    match trial.outcome:
        case Measured() as outcome:
            base |= {
                "score": scored(bench.spec, trial.config, outcome.measurement),
                "start_s": outcome.start_s,
                "meets_slo": keeps_slo(bench.spec, outcome),
                "values": _values(bench.spec, trial.config, outcome.measurement),
            }
        case Failed() as outcome:
            base |= {"failure": outcome.failure, "reason": outcome.reason}
        case Dropped() as outcome:
            base |= {"reason": outcome.reason, "start_s": outcome.start_s}
        case Infeasible() as outcome:
            base |= {"reason": outcome.reason}
    return TrialRow.model_validate(base)


def _values(spec: StudySpec, config: EngineConfig, measurement: Measurement) -> dict[str, Estimate]:
    """Return every objective of a study that has several; one that this trial has no value for is missing."""
    found: dict[str, Estimate] = {}
    for objective in (spec.objective, *spec.also) if spec.also else ():
        with contextlib.suppress(NothingMeasuredError):
            found[objective] = scored(spec, config, measurement, objective)
    return found


def _warnings(
    bench: Bench, config: EngineConfig, found: Sequence[Arm], chosen: Sequence[Entrant]
) -> tuple[str, ...]:
    spec = bench.spec
    texts = [
        f"{finding.reason}: {finding.fix}"
        for finding in findings(config, spec.model, spec.hardware)
        if finding.severity == "warning"
    ]
    for arm in found:
        kinds = Counter(warning.kind for measurement in arm.rounds for warning in measurement.warnings)
        details = {warning.kind: warning.detail for measurement in arm.rounds for warning in measurement.warnings}
        texts += [
            f"{arm.label} (trial {arm.trial}): {kind} in {n} of {len(arm.rounds)} rounds: {details[kind]}"
            for kind, n in sorted(kinds.items())
        ]
    texts += [
        f"{entrant.label} (trial {entrant.trial}) failed in verification: {failure}"
        for entrant in chosen
        for failure in entrant.failures
    ]
    return tuple(texts)
