"""From trials and verification to a Plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tuner import __version__
from tuner.app.resolve import Resolved
from tuner.app.trial import Bench
from tuner.app.verify import Entrant, rank
from tuner.app.words import value_text
from tuner.domain.engine import EngineConfig
from tuner.domain.plan import Arm, Change, Plan, Sizing, TrialRow, Verdict
from tuner.domain.space import SearchSpace
from tuner.domain.trial import Dropped, Failed, Infeasible, Measured, Trial
from tuner.measure.objective import meets, score
from tuner.rules import findings


def conclude(
    resolved: Resolved,
    bench: Bench,
    *,
    trials: Sequence[Trial],
    found: Sequence[Arm],
    verdict: Verdict,
    winner: Arm | None,
    chosen: Sequence[Entrant],
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
    return Plan(
        tool_version=__version__,
        complete=True,
        measured=True,
        study=spec,
        config=trial.config,
        launch=bench.engine.launch(spec.model, trial.config, spec.engine),
        startup=outcome.startup,
        sizing=Sizing(start_s=max(starts), start_n=len(starts), peak_memory_bytes=max(memory, default=None)),
        verdict=verdict,
        arms=tuple(found),
        changes=_changes(trial.config, reference.config if reference else None, spec.space),
        trials=tuple(_row(bench, trial) for trial in trials),
        warnings=_warnings(bench, trial.config, found, chosen),
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


def _row(bench: Bench, trial: Trial) -> TrialRow:
    base: dict[str, object] = {
        "number": trial.number,
        "purpose": trial.purpose,
        "key": trial.config.key,
        "outcome": trial.outcome.kind,
        "settings": {flag: value_text(value) for flag, value in trial.config.values.items()},
        "own_s": round(trial.own_seconds, 3) if trial.phases else None,
    }
    match trial.outcome:
        case Measured() as outcome:
            base |= {
                "score": score(outcome.measurement, bench.spec.objective),
                "start_s": outcome.start_s,
                "meets_slo": meets(outcome.measurement, bench.spec.slo),
            }
        case Failed() as outcome:
            base |= {"failure": outcome.failure, "reason": outcome.reason}
        case Infeasible() | Dropped() as outcome:
            base |= {"reason": outcome.reason}
    return TrialRow.model_validate(base)


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
