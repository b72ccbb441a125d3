"""`optimize`: open or resume the study, search, verify, and write the plan."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from tuner.app.conclude import conclude
from tuner.app.events import Listener, Note, TrialEnded, TrialStarted
from tuner.app.forecast import trial_seconds, work_plan
from tuner.app.resolve import Resolved
from tuner.app.trial import Bench, run_trial
from tuner.app.verdict import arms, decide
from tuner.app.verify import entrants, verify
from tuner.app.words import settings_text
from tuner.domain.engine import EngineConfig
from tuner.domain.plan import Plan
from tuner.domain.trial import Dropped, Failed, FailureKind, Infeasible, Measured, Trial
from tuner.engines import ENGINES
from tuner.errors import HardwareError, InterruptedStudyError, NothingMeasuredError
from tuner.measure.objective import direction, meets, score, slo_violations
from tuner.output.bundle import bundle_directory, emit
from tuner.output.evidence import check_writable, trial_folder
from tuner.runtime.base import HANDLE_FILE, Handle, Launcher
from tuner.runtime.environment import left_out
from tuner.search.ledger import Ledger, Purpose
from tuner.search.sampler import propose
from tuner.search.screen import screen
from tuner.search.spaces import Choice

_SAME_FAILURES = 6
_MACHINE_ATTEMPTS = 3
_RULED_OUT_NOTED = 40


def optimize(resolved: Resolved, *, launcher: Launcher, tell: Listener) -> tuple[Plan, Path]:
    """Answer the question, and return the plan with the folder it was written to.

    Raises:
        NothingMeasuredError: no configuration could be measured.
        InterruptedStudyError: the user stopped it; everything finished is kept.
        LlmtuneError: of the kind that fits what went wrong.

    """
    spec = resolved.spec
    folder = bundle_directory(resolved.out, spec.model.name, spec.name)
    check_writable(folder)
    bench = Bench(spec, ENGINES[spec.engine.engine], launcher, folder.resolve(), tell)
    try:
        with Ledger.open(
            name=spec.name,
            question=spec.question,
            direction=direction(spec.objective),
            folder=folder,
            storage=resolved.storage,
        ) as ledger:
            return _run(resolved, bench, ledger, folder)
    except KeyboardInterrupt:
        raise InterruptedStudyError(
            f"stopped; every finished trial of study {spec.name!r} is kept", hint="the same command goes on from here"
        ) from None


def _run(resolved: Resolved, bench: Bench, ledger: Ledger, folder: Path) -> tuple[Plan, Path]:
    spec = bench.spec
    ledger.settle()
    redo = _reap(bench, ledger)
    bench.tell(work_plan(resolved, ledger.trials()))
    unseen = left_out(bench.engine.launch(spec.model, resolved.space.config({}), spec.engine), os.environ)
    if unseen:
        names = ", ".join(unseen)
        bench.tell(Note(f"trials do not see {names} of your shell; say --set env:NAME=value to set one"))
    search = _Search(resolved, bench, ledger, redo)
    search.run()
    trials = ledger.trials()
    if not any(isinstance(trial.outcome, Measured) for trial in trials):
        raise NothingMeasuredError(
            "no configuration could be measured, so there is nothing to deploy", hint=_why_nothing(trials, folder)
        )
    chosen = entrants(bench, trials)
    verify(bench, chosen, done=search.starts, total=search.starts + len(chosen) * bench.spec.budget.verify_rounds)
    found = arms(bench.spec, chosen)
    verdict, winner = decide(bench.spec, found)
    plan = conclude(resolved, bench, trials=trials, found=found, verdict=verdict, winner=winner, chosen=chosen)
    emit(plan, folder)
    return plan, folder


class _Search:
    """The loop from the first trial to the end of the budget."""

    def __init__(
        self, resolved: Resolved, bench: Bench, ledger: Ledger, redo: list[tuple[EngineConfig, Purpose]]
    ) -> None:
        self._resolved = resolved
        self._bench = bench
        self._ledger = ledger
        self._redo = redo
        self._started = time.monotonic()
        self.starts = 0

    def run(self) -> None:
        """Try configurations until the trials, the time or the space is used up, or nothing can work."""
        while True:
            trials = self._ledger.trials()
            reason = self._reason_to_stop(trials)
            if reason is not None:
                self._bench.tell(Note(reason))
                return
            step = self._next(trials)
            if step is None:
                self._bench.tell(Note("every configuration of the space has been tried"))
                return
            self._try(*step)

    def _reason_to_stop(self, trials: Sequence[Trial]) -> str | None:
        budget = self._bench.spec.budget
        launched = [trial for trial in trials if trial.counts]
        if len(launched) >= budget.trials and not self._redo:
            return f"{len(launched)} configurations launched, as asked (--trials {budget.trials})"
        if budget.seconds is not None:
            per_trial = trial_seconds(trials)
            finals = (1 + budget.finalists) * budget.verify_rounds
            left = budget.seconds - (time.monotonic() - self._started)
            if per_trial is not None and left < per_trial * (1 + finals):
                return "the rest of the time budget is kept for the verification"
        failed = [trial.outcome for trial in launched[-_SAME_FAILURES:] if isinstance(trial.outcome, Failed)]
        if len(launched) == len(failed) == _SAME_FAILURES and len({(f.failure, f.reason) for f in failed}) == 1:
            return f"the first {_SAME_FAILURES} launches all failed the same way: {failed[0].reason}"
        return None

    def _next(
        self, trials: Sequence[Trial]
    ) -> tuple[EngineConfig, dict[str, Choice] | None, Purpose, Infeasible | None] | None:
        spec, space = self._bench.spec, self._resolved.space
        known = {trial.config.key for trial in trials if not _machine(trial)}
        while self._redo:
            config, purpose = self._redo.pop(0)
            if config.key not in known:
                return config, space.point_of(config), purpose, self._screen(config)
        default = space.config({})
        if default.key not in known:
            return default, space.point_of(default), "default", self._screen(default)
        if spec.baseline is not None and spec.baseline.key not in known:
            return spec.baseline, space.point_of(spec.baseline), "baseline", self._screen(spec.baseline)
        noted = sum(isinstance(trial.outcome, Infeasible) for trial in trials)
        found = propose(
            self._ledger,
            space,
            seed=spec.seed,
            seen=known,
            screen=self._screen,
            with_ruled_out=noted < _RULED_OUT_NOTED,
        )
        return None if found is None else (found.config, found.point, "search", found.ruled_out)

    def _screen(self, config: EngineConfig) -> Infeasible | None:
        return screen(config, self._bench.spec.model, self._bench.spec.hardware)

    def _try(
        self, config: EngineConfig, point: dict[str, Choice] | None, purpose: Purpose, ruled_out: Infeasible | None
    ) -> None:
        if ruled_out is not None:
            number = self._ledger.begin(config, point, self._resolved.space, purpose)
            self._finish(Trial(number=number, purpose=purpose, config=config, outcome=ruled_out))
            return
        reason = ""
        for attempt in range(1, _MACHINE_ATTEMPTS + 1):
            self._announce(config, purpose)
            number = self._ledger.begin(config, point, self._resolved.space, purpose)
            trial = run_trial(
                self._bench,
                config=config,
                number=number,
                purpose=purpose,
                attempts=attempt,
                folder=trial_folder(self._bench.study_folder, number),
                salt=f"trial-{number}-{config.key}",
            )
            self._finish(trial)
            if not (isinstance(trial.outcome, Failed) and trial.outcome.failure is FailureKind.MACHINE):
                return
            reason = trial.outcome.reason
        raise HardwareError(
            f"the machine failed {_MACHINE_ATTEMPTS} times in a row: {reason}",
            hint="mend it and repeat the command; nothing of this counts against the configuration",
        )

    def _announce(self, config: EngineConfig, purpose: Purpose) -> None:
        self.starts += 1
        budget = self._bench.spec.budget
        total = budget.trials + (1 + budget.finalists) * budget.verify_rounds
        per_trial = trial_seconds(self._ledger.trials())
        left = per_trial * (total - self.starts + 1) if per_trial is not None else None
        settings = settings_text(config, self._bench.spec.pins)
        self._bench.tell(TrialStarted(purpose, settings, self.starts, total, left))

    def _finish(self, trial: Trial) -> None:
        spec = self._bench.spec
        match trial.outcome:
            case Measured() as outcome:
                estimate = score(outcome.measurement, spec.objective)
                violations = slo_violations(outcome.measurement, spec.slo)
                keeps = meets(outcome.measurement, spec.slo)
                best = keeps and self._is_best(estimate.value)
                self._ledger.finish(trial, score=estimate.value, violations=violations)
                self._bench.tell(TrialEnded(trial, estimate, spec.objective, keeps, best))
            case Failed() | Infeasible() | Dropped():
                self._ledger.finish(trial, score=None, violations={})
                self._bench.tell(TrialEnded(trial, None, spec.objective, meets_slo=False, best=False))

    def _is_best(self, value: float) -> bool:
        spec = self._bench.spec
        others = [
            score(trial.outcome.measurement, spec.objective).value
            for trial in self._ledger.trials()
            if isinstance(trial.outcome, Measured) and meets(trial.outcome.measurement, spec.slo)
        ]
        return all(value > other if direction(spec.objective) == "maximize" else value < other for other in others)


def _reap(bench: Bench, ledger: Ledger) -> list[tuple[EngineConfig, Purpose]]:
    """Take down what a dead llmtune left, note its trials as faults of the machine, and have them done again."""
    left = [path.parent.name for path in bench.study_folder.rglob(HANDLE_FILE) if _reaped(bench, path)]
    if left:
        bench.tell(Note(f"took down servers that an earlier run left: {', '.join(left)}"))
    again: list[tuple[EngineConfig, Purpose]] = []
    for number, config, purpose in ledger.leftovers():
        outcome = Failed(failure=FailureKind.MACHINE, reason="llmtune ended during this trial", phase="unknown")
        ledger.finish(Trial(number=number, purpose=purpose, config=config, outcome=outcome), score=None, violations={})
        bench.tell(Note(f"trial {number} was cut off; it is done again"))
        again.append((config, purpose))
    return again


def _reaped(bench: Bench, path: Path) -> bool:
    try:
        return bench.launcher.reap(Handle.model_validate_json(path.read_text(encoding="utf-8")))
    except (OSError, ValidationError):
        return False


def _machine(trial: Trial) -> bool:
    return isinstance(trial.outcome, Failed) and trial.outcome.failure is FailureKind.MACHINE


def _why_nothing(trials: Sequence[Trial], folder: Path) -> str:
    for trial in reversed(trials):
        match trial.outcome:
            case Failed(reason=reason):
                return f"the last launch failed: {reason}; its log is {folder / trial.evidence / 'engine.log'}"
            case Infeasible(reason=reason, fix=fix):
                return f"{reason}; {fix}" if fix else reason
            case Measured() | Dropped():
                continue
    return "no trial was made"
