"""The best few and the reference once more: fresh servers, rounds interleaved, before anything is called best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tuner.app.events import Note, TrialEnded, TrialStarted
from tuner.app.history import keeps_slo
from tuner.app.load import Task
from tuner.app.scoring import scored
from tuner.app.trial import Bench, run_trial
from tuner.app.words import settings_text
from tuner.domain.engine import EngineConfig
from tuner.domain.json_text import parse_json
from tuner.domain.trial import Dropped, Failed, FailureKind, Infeasible, LoadPoint, Measured, Measurement, Trial
from tuner.measure.objective import direction
from tuner.output.evidence import TrialFolder
from tuner.output.files import output_error

Label = Literal["default", "baseline", "best", "runner-up"]


@dataclass
class Entrant:
    """One configuration in the verification, and what its rounds gave."""

    label: Label
    trial: int
    config: EngineConfig
    rounds: list[Measurement] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    levels: tuple[LoadPoint, ...] = ()
    """Load levels of the last round that ran some."""
    level: float | None = None
    """Where the search over load levels begins: its knee in the search."""
    failures: list[str] = field(default_factory=list)


def entrants(bench: Bench, trials: Sequence[Trial]) -> list[Entrant]:
    """Choose who is measured again: the reference first, then the best few others."""
    measured = [trial for trial in trials if isinstance(trial.outcome, Measured)]
    reference = next((t for p in ("baseline", "default") for t in measured if t.purpose == p), None)
    chosen: list[Entrant] = []
    if reference is not None:
        label: Label = "baseline" if reference.purpose == "baseline" else "default"
        chosen.append(_entrant(label, reference))
    others = [trial for trial in rank(bench, measured) if reference is None or trial.config.key != reference.config.key]
    for place, trial in enumerate(others[: bench.spec.budget.finalists]):
        chosen.append(_entrant("best" if place == 0 else "runner-up", trial))
    return chosen


def _entrant(label: Label, trial: Trial) -> Entrant:
    knee = _measurement(trial).knee
    return Entrant(label, trial.number, trial.config, level=knee.value if knee is not None and knee.value > 0 else None)


def rank(bench: Bench, measured: Sequence[Trial]) -> list[Trial]:
    """Sort measured trials, best first: those that keep the SLO before those that do not, then by the objective."""
    sign = -1.0 if direction(bench.spec.objective) == "maximize" else 1.0

    def place(trial: Trial) -> tuple[bool, float]:
        value = scored(bench.spec, trial.config, _measurement(trial)).value
        return (not (isinstance(trial.outcome, Measured) and keeps_slo(bench.spec, trial.outcome)), sign * value)

    return sorted(measured, key=place)


def verify(bench: Bench, chosen: Sequence[Entrant], *, done: int, total: int) -> None:
    """Run every round of every entrant, in an order that turns round each time; finished rounds are not run again."""
    for number in range(bench.spec.budget.verify_rounds):
        order = list(chosen) if number % 2 == 0 else list(reversed(chosen))
        for entrant in order:
            if entrant.failures:
                continue
            done += 1
            label = f"verify {entrant.label}, round {number + 1} of {bench.spec.budget.verify_rounds}"
            trial = _stored(bench, entrant, number)
            if trial is not None:
                bench.tell(Note(f"[{done}/{total}] {label}: known from before"))
            else:
                bench.tell(TrialStarted(label, settings_text(entrant.config, bench.spec.pins), done, total, None))
                trial = _run(bench, entrant, number)
            _note(bench, entrant, trial)


def _run(bench: Bench, entrant: Entrant, number: int) -> Trial:
    trial: Trial | None = None
    for attempt in (1, 2, 3):
        folder = _folder(bench, entrant, number)
        trial = run_trial(
            bench,
            config=entrant.config,
            number=entrant.trial,
            purpose="verify",
            folder=folder,
            attempts=attempt,
            task=Task(
                salt=f"verify-{number}-{entrant.config.key}-{attempt}",
                sweep=number + 1 == bench.spec.budget.verify_rounds,
                level=entrant.level,
            ),
        )
        if not (isinstance(trial.outcome, Failed) and trial.outcome.failure is FailureKind.MACHINE):
            break
        bench.tell(Note(f"the machine failed ({trial.outcome.reason}); again"))
    assert trial is not None  # noqa: S101  (the loop ran)
    return trial


def _folder(bench: Bench, entrant: Entrant, number: int) -> TrialFolder:
    path = bench.study_folder / "verify" / f"round-{number + 1}-trial-{entrant.trial:04d}"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise output_error(path, error) from error
    return TrialFolder(path)


def _stored(bench: Bench, entrant: Entrant, number: int) -> Trial | None:
    """Return the round if an earlier run of this study has finished it."""
    path = _folder(bench, entrant, number).path / "outcome.json"
    try:
        trial = Trial.model_validate(parse_json(path.read_bytes()))
    except (FileNotFoundError, ValueError):
        return None
    same = trial.config.key == entrant.config.key and isinstance(trial.outcome, Measured)
    return trial if same else None


def _note(bench: Bench, entrant: Entrant, trial: Trial) -> None:
    match trial.outcome:
        case Measured() as outcome:
            entrant.rounds.append(outcome.measurement)
            entrant.starts.append(outcome.start_s)
            if outcome.peak_memory_bytes is not None:
                entrant.memory.append(outcome.peak_memory_bytes)
            entrant.levels = outcome.levels or entrant.levels
            estimate = scored(bench.spec, entrant.config, outcome.measurement)
            keeps = keeps_slo(bench.spec, outcome)
            bench.tell(TrialEnded(trial, estimate, bench.spec.objective, keeps, best=False))
        case Failed() as outcome:
            entrant.failures.append(f"{outcome.failure}: {outcome.reason}")
            bench.tell(TrialEnded(trial, None, bench.spec.objective, meets_slo=False, best=False))
        case Infeasible() | Dropped() as outcome:
            entrant.failures.append(outcome.reason)


def _measurement(trial: Trial) -> Measurement:
    if not isinstance(trial.outcome, Measured):
        raise TypeError("only measured trials are ranked")
    return trial.outcome.measurement
