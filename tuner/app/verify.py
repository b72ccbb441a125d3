"""The best few and the reference once more: fresh servers, rounds interleaved, before anything is called best."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ValidationError

from tuner.app.events import Note, TrialEnded, TrialStarted
from tuner.app.trial import Bench, run_trial
from tuner.app.words import settings_text
from tuner.domain.engine import EngineConfig
from tuner.domain.plan import Arm, Verdict
from tuner.domain.trial import Failed, FailureKind, Infeasible, Measured, Measurement, Trial
from tuner.measure.compare import combine, ratio_over_rounds
from tuner.measure.objective import direction, meets, score
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
    failures: list[str] = field(default_factory=list)


def entrants(bench: Bench, trials: Sequence[Trial]) -> list[Entrant]:
    """Choose who is measured again: the reference first, then the best few others."""
    measured = [trial for trial in trials if isinstance(trial.outcome, Measured)]
    reference = next((t for p in ("baseline", "default") for t in measured if t.purpose == p), None)
    chosen: list[Entrant] = []
    if reference is not None:
        label: Label = "baseline" if reference.purpose == "baseline" else "default"
        chosen.append(Entrant(label, reference.number, reference.config))
    others = [trial for trial in rank(bench, measured) if reference is None or trial.config.key != reference.config.key]
    for place, trial in enumerate(others[: bench.spec.budget.finalists]):
        chosen.append(Entrant("best" if place == 0 else "runner-up", trial.number, trial.config))
    return chosen


def rank(bench: Bench, measured: Sequence[Trial]) -> list[Trial]:
    """Sort measured trials, best first: those that keep the SLO before those that do not, then by the objective."""
    sign = -1.0 if direction(bench.spec.objective) == "maximize" else 1.0

    def place(trial: Trial) -> tuple[bool, float]:
        measurement = _measurement(trial)
        return (not meets(measurement, bench.spec.slo), sign * score(measurement, bench.spec.objective).value)

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
            bench.tell(TrialStarted(label, settings_text(entrant.config, bench.spec.pins), done, total, None))
            trial = _stored(bench, entrant, number) or _run(bench, entrant, number)
            _note(bench, entrant, trial)


def arms(bench: Bench, chosen: Sequence[Entrant]) -> tuple[Arm, ...]:
    """Sum up the rounds; ratios are taken round by round against the first entrant."""
    spec = bench.spec
    found: list[Arm] = []
    reference = chosen[0] if chosen else None
    for entrant in chosen:
        if not entrant.rounds:
            continue
        mine = [score(measurement, spec.objective).value for measurement in entrant.rounds]
        ratio = None
        if reference is not None and reference is not entrant and reference.rounds:
            theirs = [score(measurement, spec.objective).value for measurement in reference.rounds]
            common = min(len(mine), len(theirs))
            ratio = ratio_over_rounds(mine[:common], theirs[:common]) if common > 1 else None
        found.append(
            Arm(
                label=entrant.label,
                trial=entrant.trial,
                config=entrant.config,
                score=combine(entrant.rounds, spec.objective),
                ratio=ratio,
                meets_slo=all(meets(measurement, spec.slo) for measurement in entrant.rounds),
                rounds=tuple(entrant.rounds),
                start_s=tuple(entrant.starts),
                failures=tuple(entrant.failures),
            )
        )
    return tuple(found)


def decide(bench: Bench, found: Sequence[Arm]) -> tuple[Verdict, Arm | None]:
    """Say what may be said, and which arm is deployed.

    Intervals that overlap are a tie, and a tie goes to the fewest changed settings. An arm that failed a round is out.
    """
    sound = [arm for arm in found if not arm.failures]
    reference = next((arm for arm in found if arm.label in ("baseline", "default")), None)
    name: Literal["default", "baseline", "none"] = "none"
    if reference is not None:
        name = "baseline" if reference.label == "baseline" else "default"
    if not sound:
        return Verdict(
            kind="not_verified", text="no configuration survived its verification rounds", reference=name
        ), None
    good = [arm for arm in sound if arm.meets_slo]
    if bench.spec.slo.limits and not good:
        least = _fewest(bench, _leaders(bench, sound))
        text = f"no verified configuration keeps the SLO ({bench.spec.slo.text}); trial {least.trial} comes first"
        return Verdict(kind="nothing_meets_slo", text=text, reference=name), least
    leaders = _leaders(bench, good)
    chosen = _fewest(bench, leaders)
    return _worded(bench, chosen, leaders, reference, name), chosen


def _worded(
    bench: Bench,
    chosen: Arm,
    leaders: Sequence[Arm],
    reference: Arm | None,
    name: Literal["default", "baseline", "none"],
) -> Verdict:
    what = {"default": "the engine's defaults", "baseline": "your baseline", "none": "nothing"}[name]
    rounds = len(chosen.rounds)
    if reference is None:
        text = (
            f"trial {chosen.trial} is the best that was verified; there is no reference, because none could be measured"
        )
        return Verdict(kind="winner", text=text, reference="none")
    if chosen is reference and len(leaders) == 1:
        return Verdict(kind="keep_baseline", text=f"nothing that was verified beats {what}", reference=name)
    if chosen is reference:
        tied = ", ".join(f"trial {arm.trial}" for arm in leaders if arm is not reference)
        text = f"no clear winner: the intervals of {tied} and of {what} overlap, so {what} stay" + (
            "s" if name == "baseline" else ""
        )
        return Verdict(kind="no_clear_winner", text=text, reference=name)
    if chosen.ratio is None or reference.failures:
        text = f"trial {chosen.trial} held in verification, and {what} did not"
        return Verdict(kind="winner", text=text, reference=name)
    maximize = direction(bench.spec.objective) == "maximize"
    ratio = chosen.ratio
    clear = ratio.low > 1 if maximize else ratio.high < 1
    shown = f"{bench.spec.objective} {ratio.value:.2f}x of {what} [{ratio.low:.2f}, {ratio.high:.2f}], {rounds} rounds"
    if not reference.meets_slo:
        text = f"trial {chosen.trial} keeps the SLO and {what} does not: {shown}"
        return Verdict(kind="winner", text=text, reference=name)
    if clear:
        return Verdict(kind="winner", text=f"trial {chosen.trial} beats {what}: {shown}", reference=name)
    return Verdict(kind="no_clear_winner", text=f"no clear winner: {shown}", reference=name)


def _leaders(bench: Bench, sound: Sequence[Arm]) -> list[Arm]:
    """Return the best arm and all whose intervals do not lie clearly below it."""
    maximize = direction(bench.spec.objective) == "maximize"
    best = max(sound, key=lambda arm: arm.score.value if maximize else -arm.score.value)
    return [arm for arm in sound if arm is best or _tied(bench, best, arm, maximize=maximize)]


def _tied(bench: Bench, best: Arm, other: Arm, *, maximize: bool) -> bool:
    mine = [score(measurement, bench.spec.objective).value for measurement in best.rounds]
    theirs = [score(measurement, bench.spec.objective).value for measurement in other.rounds]
    common = min(len(mine), len(theirs))
    if common < 2:
        return True
    ratio = ratio_over_rounds(mine[:common], theirs[:common])
    return ratio.low <= 1 if maximize else ratio.high >= 1


def _fewest(bench: Bench, leaders: Sequence[Arm]) -> Arm:
    pinned = {pin.flag for pin in bench.spec.pins}
    reference = next((arm for arm in leaders if arm.label in ("baseline", "default")), None)

    def changes(arm: Arm) -> tuple[int, int]:
        if arm is reference:
            return (0, 0)
        return (1, sum(setting.flag not in pinned for setting in arm.config.settings))

    return min(leaders, key=changes)


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
            salt=f"verify-{number}-{entrant.config.key}-{attempt}",
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
        trial = Trial.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValidationError, json.JSONDecodeError):
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
            estimate = score(outcome.measurement, bench.spec.objective)
            keeps = meets(outcome.measurement, bench.spec.slo)
            bench.tell(TrialEnded(trial, estimate, bench.spec.objective, keeps, best=False))
        case Failed() as outcome:
            entrant.failures.append(f"{outcome.failure}: {outcome.reason}")
            bench.tell(TrialEnded(trial, None, bench.spec.objective, meets_slo=False, best=False))
        case Infeasible() as outcome:
            entrant.failures.append(outcome.reason)


def _measurement(trial: Trial) -> Measurement:
    if not isinstance(trial.outcome, Measured):
        raise TypeError("only measured trials are ranked")
    return trial.outcome.measurement
