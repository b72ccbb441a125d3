"""The study in Optuna's storage: the one truth of what was asked, tried and found.

One Optuna trial is one configuration, whether it was launched or ruled out. Failures are told as violated constraints
with the state PRUNED, so a sampler learns from them and never sees a number; faults of the machine are FAIL, which
samplers ignore. A trial that was dropped is PRUNED too, with what was known of it as an intermediate value: it ranks
behind every full measurement and can never be the best. The record of a trial is stored before its state is told, so
a crash in between loses nothing.

Several machines may work on one storage, each in a folder of its own. Every running trial names its owner, so that what
a dead one left is done again once, and what a living one is at is left alone.
"""

from __future__ import annotations

import contextlib
import logging
import math
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState
from pydantic import ValidationError

from tuner.domain.engine import EngineConfig
from tuner.domain.study import StudySpec
from tuner.domain.trial import Dropped, Failed, FailureKind, Infeasible, Measured, Trial
from tuner.errors import StudyError
from tuner.search.owner import SILENCE_S, Owner, is_gone, now_s, this_process
from tuner.search.pulse import SIGN, Pulse
from tuner.search.spaces import Choice, OpenSpace
from tuner.search.storage import LOCK, first_line, open_study, release, take_lock, unusable, writing

optuna.logging.set_verbosity(optuna.logging.ERROR)
logging.getLogger("optuna").setLevel(logging.ERROR)

TRIAL, SCORE, CONFIG, PURPOSE, OUTCOME, OWNER = "trial", "score", "config", "purpose", "outcome", "owner"
_KEY, _TOKEN = "key", "token"
QUESTION, SPEC = "question", "spec"
_RUNS = "runs"
"""The constraint that a configuration starts and holds the load."""
_WORSE_THAN_ANY_LIMIT = 1e9
"""Missed limits are shares of themselves; whatever does not run must rank behind all of them."""
_UNNAMED, _WORST = "constraints", "0"
"""Constraints had no names before Optuna 5, and optuna-dashboard reads that form alone: it gets the worst of them, and
Optuna lists it under this name."""
_LOST = "slo"
_LOST_BY = 0.1
"""Stands for a limit that was out of reach when the trial was dropped, where it is not known by how much."""
_GIVEN_UP = 0.0
"""A sign of life from so long ago that nobody waits for the next one."""
Purpose = Literal["default", "baseline", "recipe", "search"]


class Ledger:
    """One open study. Use as a context manager: it holds the study's lock.

    `shared` says that others may work on the same storage; without it, whatever runs and was not begun here is left
    over from a dead process, since its folder's lock is ours.
    """

    def __init__(
        self, study: optuna.Study, lock: int | None, *, owner: Owner | None = None, shared: bool = False
    ) -> None:
        self.study = study
        self._lock = lock
        self._owner = owner or this_process()
        self._shared = shared
        self._begun: set[int] = set()
        self._pulse = Pulse()

    @classmethod
    def open(
        cls,
        *,
        name: str,
        question: str,
        direction: Literal["maximize", "minimize"],
        folder: Path,
        storage: str | None,
        spec: StudySpec | None = None,
    ) -> Self:
        """Open the study, or make it; `spec` is kept in it for people who read it later.

        Raises:
            StudyError: locked by another llmtune, corrupt, unreachable, or it holds another question.

        """
        with contextlib.ExitStack() as undo:
            lock = take_lock(folder / LOCK)
            undo.callback(release, lock)
            study = open_study(name, direction, folder, storage)
            _claim(study, question)
            with writing():
                _describe(study, spec)
            undo.pop_all()
        return cls(study, lock, owner=this_process(folder), shared=storage is not None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the study's lock, and give up what was begun and not finished: others need not wait for it."""
        self._pulse.close()
        if self._shared:
            for number in sorted(self._begun):
                with contextlib.suppress(*unusable()):
                    self._live(number).set_user_attr(SIGN, _GIVEN_UP)
        self._begun.clear()
        release(self._lock)
        self._lock = None

    def begin(
        self, config: EngineConfig, point: Mapping[str, Choice] | None, space: OpenSpace, purpose: Purpose
    ) -> int:
        """Note that this configuration is being tried, and return its trial number.

        Raises:
            OutputError: the storage cannot be written, as on a full disk.
            StudyError: the storage does not answer.

        """
        token = uuid.uuid4().hex
        with writing():
            self.study.add_trial(
                optuna.trial.create_trial(
                    state=TrialState.RUNNING,
                    params=dict(point or {}),
                    distributions=distributions(space) if point is not None else {},
                    user_attrs={
                        _TOKEN: token,
                        _KEY: config.key,
                        CONFIG: config.model_dump(mode="json"),
                        PURPOSE: purpose,
                        OWNER: self._owner.model_dump(mode="json"),
                        SIGN: now_s(),
                    },
                )
            )
            newest_first = reversed(self.study.get_trials(deepcopy=False))
            number = next(frozen.number for frozen in newest_first if frozen.user_attrs.get(_TOKEN) == token)
            self._begun.add(number)
            if self._shared:
                self._pulse.begin(self._live(number))
        return number

    def claim(
        self, config: EngineConfig, point: Mapping[str, Choice] | None, space: OpenSpace, purpose: Purpose
    ) -> int | None:
        """Begin this configuration, unless another llmtune began it first: then nothing is done, and None returned.

        Of several that begin the same one at the same moment, the lowest trial number has it.

        Raises:
            OutputError: the storage cannot be written, as on a full disk.
            StudyError: the storage does not answer.

        """
        number = self.begin(config, point, space, purpose)
        if not self._shared or not self._taken(config, number):
            return number
        self._pulse.end(number)
        self._begun.discard(number)
        with writing():
            self._live(number).set_user_attr(OUTCOME, "withdrawn: another llmtune is at this configuration")
            self.study.tell(number, state=TrialState.FAIL)
        return None

    def _taken(self, config: EngineConfig, number: int) -> bool:
        earlier = self.study.get_trials(deepcopy=False)[:number]
        return any(
            frozen.user_attrs.get(_KEY) == config.key
            and (
                frozen.state in (TrialState.COMPLETE, TrialState.PRUNED)
                or (frozen.state is TrialState.RUNNING and not self._is_left_over(frozen))
            )
            for frozen in earlier
        )

    def finish(self, trial: Trial, *, score: float | None, violations: Mapping[str, float]) -> bool:
        """Store what came of a trial and tell the sampler what it may know of it.

        Returns False when another llmtune has ended this trial, and this outcome is not kept: either both wanted to
        note a trial that a dead one left, or we were silent for so long that we were taken for dead.

        Raises:
            OutputError: the storage cannot be written, as on a full disk.
            StudyError: the storage does not answer.

        """
        if isinstance(trial.outcome, Measured) != (score is not None):
            raise ValueError("a measured trial has a score, and no other has one")
        trial = _with_finite_bound(trial)
        record = trial.model_dump_json()
        self._pulse.end(trial.number)
        self._begun.discard(trial.number)
        with writing():
            try:
                live = self._live(trial.number)
                live.set_user_attr(OUTCOME, outcome_text(trial))
                live.set_user_attr(SCORE, [score, dict(violations)])
                live.set_user_attr(TRIAL, record)
                self._tell(trial, score, violations)
            except (UpdateFinishedTrialError, ValueError):
                now = self._frozen(trial.number)
                if not now.state.is_finished():
                    raise
                return now.user_attrs.get(TRIAL) == record
        return True

    def _tell(self, trial: Trial, score: float | None, violations: Mapping[str, float]) -> None:
        live = self._live(trial.number)
        match trial.outcome:
            case Measured():
                _constrain(live, {_RUNS: -1.0, **violations})
                self.study.tell(trial.number, values=score)
            case Dropped() as outcome:
                _constrain(live, {_RUNS: -1.0, **_lost(outcome, violations)})
                self._report(live, outcome)
                self.study.tell(trial.number, state=TrialState.PRUNED)
            case Failed(failure=FailureKind.MACHINE):
                self.study.tell(trial.number, state=TrialState.FAIL)
            case Infeasible() | Failed():
                _constrain(live, {_RUNS: _WORSE_THAN_ANY_LIMIT})
                self.study.tell(trial.number, state=TrialState.PRUNED)

    def _report(self, live: optuna.trial.Trial, outcome: Dropped) -> None:
        if outcome.bound is not None and not self._frozen(live.number).intermediate_values:
            live.report(outcome.bound.value, step=0)

    def trials(self) -> list[Trial]:
        """Return every trial that has a record, in order.

        Raises:
            StudyError: a record cannot be read.

        """
        return [
            self._record(frozen)
            for frozen in self.study.get_trials(deepcopy=False)
            if TRIAL in frozen.user_attrs
        ]

    def leftovers(self) -> list[tuple[int, EngineConfig, Purpose]]:
        """Return trials that a dead llmtune left running, without a record; ask again later for those of other hosts.

        Tell each as a fault of the machine, and do it again if `finish` says that it was ours to tell.
        """
        return [
            (frozen.number, EngineConfig.model_validate(frozen.user_attrs[CONFIG]), frozen.user_attrs[PURPOSE])
            for frozen in self._unfinished()
            if TRIAL not in frozen.user_attrs and self._is_left_over(frozen)
        ]

    def running(self) -> list[tuple[int, EngineConfig]]:
        """Return what other living processes are at: it counts as tried, and against the budget."""
        return [
            (frozen.number, EngineConfig.model_validate(frozen.user_attrs[CONFIG]))
            for frozen in self._unfinished()
            if frozen.number not in self._begun and not self._is_left_over(frozen)
        ]

    def settle(self) -> None:
        """Tell trials whose record was stored but whose state was not: the crash came in between."""
        for frozen in self._unfinished():
            if TRIAL in frozen.user_attrs and self._is_left_over(frozen):
                score, violations = frozen.user_attrs[SCORE]
                with writing(), contextlib.suppress(UpdateFinishedTrialError):
                    self._tell(self._record(frozen), score, violations)

    def _unfinished(self) -> list[FrozenTrial]:
        running = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [frozen for frozen in running if CONFIG in frozen.user_attrs]

    def _is_left_over(self, frozen: FrozenTrial) -> bool:
        if frozen.number in self._begun:
            return False
        owner = frozen.user_attrs.get(OWNER)
        if owner is None or not self._shared:
            return True
        sign = float(frozen.user_attrs.get(SIGN, _GIVEN_UP))
        try:
            return is_gone(Owner.model_validate(owner), me=self._owner, last_sign=sign, now=now_s())
        except ValidationError:  # written by another version of llmtune: only its signs of life can be read
            return now_s() - sign > SILENCE_S

    def _record(self, frozen: FrozenTrial) -> Trial:
        try:
            return Trial.model_validate_json(frozen.user_attrs[TRIAL])
        except ValidationError as error:
            raise StudyError(
                f"trial {frozen.number} of study {self.study.study_name!r} cannot be read: {first_line(error)}",
                hint="name another study with --study",
            ) from None

    def _frozen(self, number: int) -> FrozenTrial:
        return next(t for t in self.study.get_trials(deepcopy=False) if t.number == number)

    def _live(self, number: int) -> optuna.trial.Trial:
        trial_id = self._frozen(number)._trial_id  # noqa: SLF001  (Optuna has no public way by number)
        return optuna.trial.Trial(self.study, trial_id)


def distributions(space: OpenSpace) -> dict[str, BaseDistribution]:
    """Return Optuna's form of the open dimensions."""
    return {dimension.flag: CategoricalDistribution(dimension.values) for dimension in space.dimensions}


def _constrain(live: optuna.trial.Trial, constraints: Mapping[str, float]) -> None:
    """Set what is not set yet: after a crash some of it may be."""
    for name, value in constraints.items():
        if name not in live.constraints:
            live.set_constraint(name, value)
    if _WORST not in live.constraints:
        worst = max(constraints.values())
        trial_id = live._trial_id  # noqa: SLF001  (Optuna itself has left this form)
        live.storage.set_trial_system_attr(trial_id, _UNNAMED, [worst])


def outcome_text(trial: Trial) -> str:
    """Return an outcome in a line, for those who look on with other tools."""
    outcome = trial.outcome
    match outcome:
        case Measured():
            return outcome.kind
        case Dropped() | Infeasible():
            return f"{outcome.kind}: {outcome.rule}: {outcome.reason}"
        case Failed():
            return f"{outcome.kind}: {outcome.failure}: {outcome.reason}"


def _with_finite_bound(trial: Trial) -> Trial:
    """Return the trial without a bound that says nothing, which no JSON could hold."""
    match trial.outcome:
        case Dropped(bound=bound) as outcome if bound is not None:
            if not all(math.isfinite(number) for number in (bound.value, bound.low, bound.high)):
                return trial.model_copy(update={"outcome": outcome.model_copy(update={"bound": None})})
    return trial


def _lost(outcome: Dropped, violations: Mapping[str, float]) -> dict[str, float]:
    """Return the violations of a dropped trial: one that lost the SLO never looks as if it kept it."""
    if outcome.rule != "slo" or any(value > 0 for value in violations.values()):
        return dict(violations)
    return {**violations, _LOST: _LOST_BY}


def _claim(study: optuna.Study, question: str) -> None:
    known = study.user_attrs.get(QUESTION)
    if known is None:
        study.set_user_attr(QUESTION, question)
    elif known != question:
        raise StudyError(
            f"study {study.study_name!r} holds another question (model, hardware, engine, workload, SLO, space or "
            "pinned settings differ)",
            hint="name another study with --study, or repeat the command it was made with",
        )


def _describe(study: optuna.Study, spec: StudySpec | None) -> None:
    """Keep the question in words; the last budget that was asked for wins."""
    if spec is not None:
        text = spec.model_dump_json()
        if study.user_attrs.get(SPEC) != text:
            study.set_user_attr(SPEC, text)
