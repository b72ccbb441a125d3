"""The search: from the first trial to the end of the budget."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.app.ask_engine import judged_infeasible
from tuner.app.events import Note, TrialEnded, TrialStarted
from tuner.app.forecast import final_starts, trial_seconds
from tuner.app.history import failed, incumbent, is_machine_fault, keeps_slo, observed, spent_s
from tuner.app.load import Incumbent, Task
from tuner.app.oracle import Oracle
from tuner.app.resolve import Resolved
from tuner.app.scoring import better, scored
from tuner.app.trial import Bench, run_trial
from tuner.app.words import settings_text
from tuner.domain.engine import EngineConfig
from tuner.domain.trial import Dropped, Estimate, Failed, FailureKind, Infeasible, Measured, Trial
from tuner.errors import HardwareError
from tuner.measure.objective import direction, slo_violations
from tuner.measure.server import suspect
from tuner.output.evidence import trial_folder
from tuner.runtime.ask_engine import EngineJudge
from tuner.search.ledger import Ledger, Purpose
from tuner.search.sampler import propose
from tuner.search.screen import screen
from tuner.search.spaces import Choice

SAME_FAILURES = 3
"""So many launches in a row that fail for one cause end a search in which nothing has run yet."""
SAME_FAILURES_LATER = 6
"""The same once something has run: the sampler is expected to leave the region well before."""
_MACHINE_ATTEMPTS = 3
_RULED_OUT_NOTED = 40
_VAIN_REPEATS = 2
_PREDICTED_SEEDS = 2


@dataclass(frozen=True)
class Step:
    """A configuration to launch, or to note as ruled out."""

    config: EngineConfig
    point: dict[str, Choice] | None
    purpose: Purpose
    ruled_out: Infeasible | None


class Search:
    """The loop over configurations; each is launched, or ruled out, noted, and told to the sampler."""

    def __init__(
        self,
        resolved: Resolved,
        bench: Bench,
        ledger: Ledger,
        *,
        redo: list[tuple[EngineConfig, Purpose]],
        judge: EngineJudge,
    ) -> None:
        self._resolved = resolved
        self._bench = bench
        self._ledger = ledger
        self._redo = redo
        self._judge = judge
        self._oracle = Oracle(bench.spec, resolved.space, ledger.trials())
        self._rival: Incumbent | None = None
        self._started = time.monotonic()
        self._vain_repeats = 0
        self.starts = 0

    def run(self) -> None:
        """Try configurations until the trials, the time or the space is used up, or nothing can work."""
        while True:
            self._redo += retake(self._bench, self._ledger)
            trials = self._ledger.trials()
            reason = self._reason_to_stop(trials)
            if reason is not None:
                self._bench.tell(Note(reason))
                break
            step = self._next(trials)
            if step is None:
                self._bench.tell(Note("every configuration of the space has been tried"))
                break
            self._try(step)
        if self._oracle.text is not None:
            self._bench.tell(Note(f"the model of this machine: {self._oracle.text}"))

    def _reason_to_stop(self, trials: Sequence[Trial]) -> str | None:
        budget = self._bench.spec.budget
        launched = [trial for trial in trials if trial.counts]
        elsewhere = len(self._ledger.running())
        if len(launched) + elsewhere >= budget.trials and not self._redo:
            others = f", {elsewhere} of them by others now" if elsewhere else ""
            return f"{len(launched) + elsewhere} configurations launched{others}, as asked (--trials {budget.trials})"
        reason = self._over_time(trials) or self._failures(launched)
        return reason if launched else None

    def _over_time(self, trials: Sequence[Trial]) -> str | None:
        """Keep enough of the time and of the device hours for the verification."""
        spec = self._bench.spec
        per_trial = trial_seconds(trials)
        if per_trial is None:
            return None
        reserve = per_trial * (1 + final_starts(spec.budget)) + spec.budget.soak_s
        if spec.budget.seconds is not None:
            left = spec.budget.seconds - (time.monotonic() - self._started)
            if left < reserve:
                return "the rest of the time budget is kept for the verification"
        if spec.budget.device_hours is not None:
            devices = max(1, spec.hardware.devices)
            if (spent_s(trials) + reserve) * devices / 3600 > spec.budget.device_hours:
                return "the rest of the device hours is kept for the verification"
        return None

    def _failures(self, launched: Sequence[Trial]) -> str | None:
        most = self._bench.spec.budget.max_failures
        every = [trial.outcome for trial in launched if isinstance(trial.outcome, Failed)]
        if most is not None and len(every) >= most:
            return f"{len(every)} launches failed (--max-failures {most}); the last: {every[-1].reason}"
        ran = len(every) < len(launched)
        row = SAME_FAILURES_LATER if ran else SAME_FAILURES
        last = [trial.outcome for trial in launched[-row:] if isinstance(trial.outcome, Failed)]
        if len(last) == row and len({(one.failure, one.reason) for one in last}) == 1:
            return f"the last {row} launches all failed for the same cause: {last[0].reason}"
        return None

    def _next(self, trials: Sequence[Trial]) -> Step | None:
        spec, space = self._bench.spec, self._resolved.space
        running = {config.key for _, config in self._ledger.running()}
        known = {trial.config.key for trial in trials if not is_machine_fault(trial)} | running
        while self._redo:
            config, purpose = self._redo.pop(0)
            if config.key not in known:
                return self._step(config, purpose)
        for config, purpose in self._first():
            if config.key not in known:
                return self._step(config, purpose)
        for config in self._predicted_seeds(trials, known):
            return self._step(config, "recipe")
        noted = sum(isinstance(trial.outcome, Infeasible) for trial in trials)
        self._rival = incumbent(spec, trials)
        found = propose(
            space,
            observed(spec, space, trials, self._ledger.running()),
            kind=self._resolved.sampler,
            direction=direction(spec.objective),
            seed=spec.seed,
            tried=known,
            screen=self._screen_all,
            prior=self._oracle.prior if self._oracle.is_quick else None,
            with_ruled_out=noted < _RULED_OUT_NOTED,
        )
        return None if found is None else Step(found.config, found.point, "search", found.ruled_out)

    def _first(self) -> list[tuple[EngineConfig, Purpose]]:
        """Return what is tried before the sampler is asked: the defaults, the user's present command, known recipes."""
        spec = self._bench.spec
        first: list[tuple[EngineConfig, Purpose]] = [(self._resolved.space.config({}), "default")]
        if spec.baseline is not None:
            first.append((spec.baseline, "baseline"))
        return first + [(config, "recipe") for config in self._resolved.recipes]

    def _predicted_seeds(self, trials: Sequence[Trial], known: set[str]) -> list[EngineConfig]:
        """Return what the model of this machine would try, until so many recipes have been launched."""
        recipes = {config.key for config in self._resolved.recipes}
        done = sum(trial.purpose == "recipe" and trial.config.key not in recipes for trial in trials)
        return self._oracle.seeds(1, known) if done < _PREDICTED_SEEDS else []

    def _step(self, config: EngineConfig, purpose: Purpose) -> Step:
        return Step(config, self._resolved.space.point_of(config), purpose, self._screen(config))

    def _screen(self, config: EngineConfig) -> Infeasible | None:
        """Return why a configuration cannot work, by the rules, the memory model, or the engine itself."""
        model, hardware = self._bench.spec.model, self._bench.spec.hardware
        return screen(config, model, hardware) or judged_infeasible(self._judge, config, model, hardware)

    def _screen_all(self, config: EngineConfig) -> Infeasible | None:
        """Return the same, or why it is not worth a launch by what the model has learnt."""
        return self._screen(config) or self._oracle.hopeless(config, self._rival)

    def _try(self, step: Step) -> None:
        if step.ruled_out is not None:
            number = self._ledger.claim(step.config, step.point, self._resolved.space, step.purpose)
            if number is not None:
                self._finish(Trial(number=number, purpose=step.purpose, config=step.config, outcome=step.ruled_out))
            return
        reason = ""
        for attempt in range(1, _MACHINE_ATTEMPTS + 1):
            launched = self._launch(step, attempt)
            if launched is None:
                return
            trial = self._repeated_if_suspect(launched)
            self._finish(trial)
            if not is_machine_fault(trial):
                return
            reason = failed(trial).reason
        raise HardwareError(
            f"the machine failed {_MACHINE_ATTEMPTS} times in a row: {reason}",
            hint="mend it and repeat the command; nothing of this counts against the configuration",
        )

    def _launch(self, step: Step, attempt: int) -> Trial | None:
        """Run one trial; None when another llmtune was the first to begin this configuration."""
        number = self._ledger.claim(step.config, step.point, self._resolved.space, step.purpose)
        if number is None:
            return None
        expected = self._oracle.expect(step.config)
        self._announce(step, expected)
        rival = incumbent(self._bench.spec, self._ledger.trials())
        challenged = rival is not None and step.purpose in ("search", "recipe")
        trial = run_trial(
            self._bench,
            config=step.config,
            number=number,
            purpose=step.purpose,
            attempts=attempt,
            folder=trial_folder(self._bench.study_folder, number),
            task=Task(salt=f"trial-{number}-{step.config.key}", incumbent=rival if challenged else None),
        )
        return trial.model_copy(update={"predicted": expected})

    def _repeated_if_suspect(self, trial: Trial) -> Trial:
        """Turn a first measurement of a disturbed machine into a fault of the machine, so that it is done again.

        Where that does not help, the machine is like this, and its measurements are taken with their warnings.
        """
        if self._bench.spec.budget.accept_busy:
            return trial
        if not isinstance(trial.outcome, (Measured, Dropped)) or trial.outcome.measurement is None:
            return trial
        why = suspect(trial.outcome.measurement, trial.environment)
        if why is None or trial.attempts >= _MACHINE_ATTEMPTS or self._vain_repeats >= _VAIN_REPEATS:
            return trial
        if trial.attempts > 1:
            self._vain_repeats += 1
            return trial
        outcome = Failed(failure=FailureKind.MACHINE, reason=f"{why}; measured again", phase="load")
        return trial.model_copy(update={"outcome": outcome})

    def _announce(self, step: Step, expected: Estimate | None) -> None:
        self.starts += 1
        spec, trials = self._bench.spec, self._ledger.trials()
        total = spec.budget.trials + (1 + spec.budget.finalists) * spec.budget.verify_rounds
        per_trial = trial_seconds(trials)
        left = per_trial * (total - self.starts + 1) if per_trial is not None else None
        settings = settings_text(step.config, spec.pins)
        hours = spent_s(trials) * max(1, spec.hardware.devices) / 3600
        self._bench.tell(TrialStarted(step.purpose, settings, self.starts, total, left, hours, expected))

    def _finish(self, trial: Trial) -> None:
        spec = self._bench.spec
        self._oracle.learn(trial)
        match trial.outcome:
            case Measured() as outcome:
                estimate = scored(spec, trial.config, outcome.measurement)
                violations = slo_violations(outcome.measurement, spec.slo)
                keeps = keeps_slo(spec, outcome)
                rival = incumbent(spec, self._ledger.trials())
                best = keeps and (rival is None or better(spec, estimate.value, _value(self._bench, rival)))
                self._ledger.finish(trial, score=estimate.value, violations=violations)
                self._bench.tell(TrialEnded(trial, estimate, spec.objective, keeps, best))
            case Dropped() as outcome:
                partial = outcome.measurement
                self._ledger.finish(trial, score=None, violations=slo_violations(partial, spec.slo) if partial else {})
                self._bench.tell(TrialEnded(trial, None, spec.objective, meets_slo=False, best=False))
            case Failed() | Infeasible():
                self._ledger.finish(trial, score=None, violations={})
                self._bench.tell(TrialEnded(trial, None, spec.objective, meets_slo=False, best=False))


def retake(bench: Bench, ledger: Ledger) -> list[tuple[EngineConfig, Purpose]]:
    """Note trials that a dead llmtune was at as faults of the machine, and return those that are ours to do again."""
    again: list[tuple[EngineConfig, Purpose]] = []
    for number, config, purpose in ledger.leftovers():
        outcome = Failed(failure=FailureKind.MACHINE, reason="llmtune ended during this trial", phase="unknown")
        lost = Trial(number=number, purpose=purpose, config=config, outcome=outcome)
        if ledger.finish(lost, score=None, violations={}):
            bench.tell(Note(f"trial {number} was cut off; it is done again"))
            again.append((config, purpose))
    return again


def _value(bench: Bench, rival: Incumbent) -> float:
    return scored(bench.spec, rival.config, rival.measurement).value
