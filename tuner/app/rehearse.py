"""`optimize --simulate`: the whole search on the simulator, in seconds and without a GPU. All it says is SIMULATED.

A rehearsal shows what a study would try, which settings matter in the model, and what the live study would cost in
time. It measures nothing, deploys nothing and leaves no file behind.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from tuner.app.forecast import final_starts, guess_seconds
from tuner.app.history import keeps_slo, observed
from tuner.app.plan_evaluate import Band, band_of
from tuner.app.resolve import Resolved
from tuner.app.scoring import replicas, scored, shared_workload
from tuner.app.simulated import simulated_outcome
from tuner.app.words import settings_text, value_text
from tuner.domain.engine import EngineConfig
from tuner.domain.record import Record
from tuner.domain.study import KNEES, StudySpec
from tuner.domain.trial import Failed, Infeasible, LoadPoint, Measured, Trial
from tuner.domain.workload import Workload
from tuner.errors import NothingMeasuredError, UsageError
from tuner.facts.gpus import facts_of
from tuner.measure.levels import at_clients, at_rate, first_level, load_point
from tuner.measure.objective import direction, slo_violations
from tuner.search.ledger import Ledger, Purpose
from tuner.search.levels import find_knee
from tuner.search.sampler import propose
from tuner.search.screen import screen
from tuner.search.spaces import Choice

MODELLED = frozenset({
    "max-num-seqs", "max-num-batched-tokens", "gpu-memory-utilization", "kv-cache-dtype", "quantization",
    "tensor-parallel-size", "pipeline-parallel-size", "block-size", "enable-prefix-caching", "enable-chunked-prefill",
    "max-model-len",
})
"""Settings that change a simulation; all others are tried but make no difference in it."""


class Tried(Record):
    """One configuration of the rehearsal; `value` is its SIMULATED objective."""

    settings: dict[str, str]
    value: float | None
    meets_slo: bool
    note: str


class Rehearsal(Record):
    """What came of it. Nothing was measured."""

    label: str = "SIMULATED"
    objective: str
    tried: tuple[Tried, ...]
    """Best first."""
    default: float | None
    effects: dict[str, dict[str, float]]
    """For each setting that is modelled, the mean SIMULATED objective over the trials with each of its values."""
    not_modelled: tuple[str, ...]
    starts: int
    seconds: float
    """What the live study would take, PREDICTED."""
    band: Band


def rehearse(resolved: Resolved, tell: Callable[[str], None]) -> Rehearsal:
    """Search on the simulator, with the study's own space, sampler, limits and budget.

    Raises:
        UsageError: the engine or the GPUs are not covered by the model.
        NothingMeasuredError: no configuration works even in the simulation.

    """
    spec = resolved.spec
    gpus = spec.hardware.gpus
    facts = facts_of(gpus[0].name) if gpus else None
    if spec.engine.engine != "vllm" or facts is None:
        raise UsageError(f"{spec.engine.engine} on {spec.hardware.label} cannot be simulated",
                         hint="--simulate takes GPUs that are known, e.g. h100x8, and vllm")
    with (
        tempfile.TemporaryDirectory(prefix="llmtune-rehearsal-") as name,
        Ledger.open(name=spec.name, question=spec.question, direction=direction(spec.objective), folder=Path(name),
                    storage=None) as ledger,
    ):
        trials = _search(resolved, ledger, tell)
    done = [trial for trial in trials if isinstance(trial.outcome, Measured)]
    if not done:
        raise NothingMeasuredError("SIMULATED: no configuration works on this hardware",
                                   hint="name more or larger GPUs, or a smaller model")
    starts = len(done) + final_starts(spec.budget)
    default = resolved.space.config({})
    first = next((trial for trial in done if trial.config.key == default.key), None)
    return Rehearsal(
        objective=spec.objective,
        tried=tuple(_tried(resolved, trial) for trial in sorted(trials, key=lambda trial: _place(resolved, trial))),
        default=_value(resolved, first) if first else None,
        effects=_effects(resolved, done),
        not_modelled=tuple(sorted({setting.flag for setting in spec.space.settings} - MODELLED)),
        starts=starts,
        seconds=starts * guess_seconds(spec, default) + spec.budget.soak_s,
        band=band_of(facts.name),
    )


def _search(resolved: Resolved, ledger: Ledger, tell: Callable[[str], None]) -> list[Trial]:
    spec, space = resolved.spec, resolved.space

    def ruled_out(config: EngineConfig) -> Infeasible | None:
        return screen(config, spec.model, spec.hardware)

    default = space.config({})
    step: tuple[EngineConfig, dict[str, Choice] | None, Purpose] = (default, space.point_of(default), "default")
    while True:
        config, point, purpose = step
        number = ledger.begin(config, point, space, purpose)
        outcome = _outcome(spec, config)
        trial = Trial(number=number, purpose=purpose, config=config, outcome=outcome)
        if isinstance(outcome, Measured):
            value = scored(spec, config, outcome.measurement).value
            ledger.finish(trial, score=value, violations=slo_violations(outcome.measurement, spec.slo))
            kept = "" if keeps_slo(spec, outcome) else ", SLO not kept"
            tell(f"SIMULATED trial {number}: {settings_text(config)}: {value:.4g} {spec.objective}{kept}")
        else:
            ledger.finish(trial, score=None, violations={})
            tell(f"SIMULATED trial {number}: {settings_text(config)}: {outcome.reason}")
        trials = ledger.trials()
        if sum(isinstance(trial.outcome, Measured) for trial in trials) >= spec.budget.trials:
            return trials
        found = propose(
            space, observed(spec, space, trials), kind=resolved.sampler, direction=direction(spec.objective),
            seed=spec.seed, tried={trial.config.key for trial in trials}, screen=ruled_out, with_ruled_out=False,
        )
        if found is None:
            return trials
        step = (found.config, found.point, "search")


def _outcome(spec: StudySpec, config: EngineConfig) -> Measured | Infeasible | Failed:
    """Simulate one server under its share of the load, at one level or at as many as the objective asks for."""
    workload = shared_workload(spec.workload, replicas(spec, config))

    def at(one: Workload) -> Measured | Infeasible | Failed:
        return simulated_outcome(spec.model_copy(update={"workload": one}), config, seed=spec.seed)

    if spec.objective not in KNEES:
        return at(workload)
    clients, found = spec.objective == "max_concurrency", dict[float, Measured]()
    start = first_level(workload, spec.objective)
    first = at(at_clients(workload, int(start)) if clients else at_rate(workload, start))
    if not isinstance(first, Measured):
        return first

    def run(level: float) -> LoadPoint:
        one = at_clients(workload, int(level)) if clients else at_rate(workload, level)
        outcome = at(one)
        found[level] = outcome if isinstance(outcome, Measured) else first
        return load_point(found[level].measurement, one, spec.slo, "" if isinstance(outcome, Measured) else "failed")

    knee = find_knee(run, start=start, whole=clients)
    counts = found[knee.knee.value if knee.knee.value in found else min(found)]
    measurement = counts.measurement.model_copy(update={"knee": knee.knee})
    return counts.model_copy(update={"measurement": measurement, "levels": knee.points})


def _value(resolved: Resolved, trial: Trial) -> float | None:
    outcome = trial.outcome
    return scored(resolved.spec, trial.config, outcome.measurement).value if isinstance(outcome, Measured) else None


def _place(resolved: Resolved, trial: Trial) -> tuple[bool, bool, float]:
    value, outcome = _value(resolved, trial), trial.outcome
    if value is None or not isinstance(outcome, Measured):
        return (True, True, 0.0)
    sign = -1.0 if direction(resolved.spec.objective) == "maximize" else 1.0
    return (False, not keeps_slo(resolved.spec, outcome), sign * value)


def _tried(resolved: Resolved, trial: Trial) -> Tried:
    outcome = trial.outcome
    settings = {flag: value_text(value) or "" for flag, value in trial.config.values.items()}
    if isinstance(outcome, Measured):
        return Tried(settings=settings, value=_value(resolved, trial), note="SIMULATED",
                     meets_slo=keeps_slo(resolved.spec, outcome))
    return Tried(settings=settings, value=None, meets_slo=False, note=f"SIMULATED: {outcome.reason}")


def _effects(resolved: Resolved, done: list[Trial]) -> dict[str, dict[str, float]]:
    effects: dict[str, dict[str, float]] = {}
    for flag in sorted({setting.flag for setting in resolved.spec.space.settings} & MODELLED):
        values: dict[str, list[float]] = defaultdict(list)
        for trial in done:
            value = _value(resolved, trial)
            if value is not None:
                values[value_text(trial.config.get(flag)) or "(engine decides)"].append(value)
        if len(values) > 1:
            effects[flag] = {name: sum(found) / len(found) for name, found in sorted(values.items())}
    return effects
