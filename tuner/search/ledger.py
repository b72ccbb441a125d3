"""The study in Optuna's storage: the one truth of what was asked, tried and found.

One Optuna trial is one configuration, whether it was launched or ruled out. Failures are told as violated constraints
with the state PRUNED, so a sampler learns from them and never sees a number; faults of the machine are FAIL, which
samplers ignore. The record of a trial is stored before its state is told, so a crash in between loses nothing.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState
from pydantic import ValidationError

from tuner.domain.engine import EngineConfig
from tuner.domain.trial import Dropped, Failed, FailureKind, Infeasible, Measured, Trial
from tuner.errors import StudyError
from tuner.search.spaces import Choice, OpenSpace
from tuner.search.storage import first_line, open_study, release, take_lock, writing

optuna.logging.set_verbosity(optuna.logging.ERROR)
logging.getLogger("optuna").setLevel(logging.ERROR)

_TRIAL, _SCORE, _CONFIG, _PURPOSE, _TOKEN, _QUESTION = "trial", "score", "config", "purpose", "token", "question"
_RUNS = "runs"
"""The constraint that a configuration starts and holds the load."""
_WORSE_THAN_ANY_LIMIT = 1e9
"""Missed limits are shares of themselves; whatever does not run must rank behind all of them."""
Purpose = Literal["default", "baseline", "recipe", "search"]


class Ledger:
    """One open study. Use as a context manager: it holds the study's lock."""

    def __init__(self, study: optuna.Study, lock: int | None) -> None:
        self.study = study
        self._lock = lock

    @classmethod
    def open(
        cls, *, name: str, question: str, direction: Literal["maximize", "minimize"], folder: Path, storage: str | None
    ) -> Self:
        """Open the study, or make it.

        Raises:
            StudyError: locked by another llmtune, corrupt, unreachable, or it holds another question.

        """
        with contextlib.ExitStack() as undo:
            lock = take_lock(folder / "study.lock")
            undo.callback(release, lock)
            study = open_study(name, direction, folder, storage)
            _claim(study, question)
            undo.pop_all()
        return cls(study, lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the study's lock."""
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
                    user_attrs={_TOKEN: token, _CONFIG: config.model_dump(mode="json"), _PURPOSE: purpose},
                )
            )
        newest_first = reversed(self.study.get_trials(deepcopy=False))
        return next(frozen.number for frozen in newest_first if frozen.user_attrs.get(_TOKEN) == token)

    def finish(self, trial: Trial, *, score: float | None, violations: Mapping[str, float]) -> None:
        """Store what came of a trial and tell the sampler what it may know of it.

        Raises:
            OutputError: the storage cannot be written, as on a full disk.
            StudyError: the storage does not answer.

        """
        if isinstance(trial.outcome, Measured) != (score is not None):
            raise ValueError("a measured trial has a score, and no other has one")
        with writing():
            live = self._live(trial.number)
            live.set_user_attr(_SCORE, [score, dict(violations)])
            live.set_user_attr(_TRIAL, trial.model_dump_json())
            self._tell(trial, score, violations)

    def _tell(self, trial: Trial, score: float | None, violations: Mapping[str, float]) -> None:
        live = self._live(trial.number)
        match trial.outcome:
            case Measured():
                _constrain(live, {_RUNS: -1.0, **violations})
                self.study.tell(trial.number, values=score)
            case Failed(failure=FailureKind.MACHINE):
                self.study.tell(trial.number, state=TrialState.FAIL)
            case Dropped():
                _constrain(live, {_RUNS: -1.0, **violations})
                self.study.tell(trial.number, state=TrialState.PRUNED)
            case Infeasible() | Failed():
                _constrain(live, {_RUNS: _WORSE_THAN_ANY_LIMIT})
                self.study.tell(trial.number, state=TrialState.PRUNED)

    def trials(self) -> list[Trial]:
        """Return every trial that has a record, in order.

        Raises:
            StudyError: a record cannot be read.

        """
        return [
            self._record(frozen)
            for frozen in self.study.get_trials(deepcopy=False)
            if _TRIAL in frozen.user_attrs
        ]

    def leftovers(self) -> list[tuple[int, EngineConfig, Purpose]]:
        """Return trials that a dead llmtune left running, without a record."""
        return [
            (frozen.number, EngineConfig.model_validate(frozen.user_attrs[_CONFIG]), frozen.user_attrs[_PURPOSE])
            for frozen in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            if _CONFIG in frozen.user_attrs and _TRIAL not in frozen.user_attrs
        ]

    def settle(self) -> None:
        """Tell trials whose record was stored but whose state was not: the crash came in between."""
        for frozen in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if _TRIAL in frozen.user_attrs:
                score, violations = frozen.user_attrs[_SCORE]
                with writing():
                    self._tell(self._record(frozen), score, violations)

    def _record(self, frozen: FrozenTrial) -> Trial:
        try:
            return Trial.model_validate_json(frozen.user_attrs[_TRIAL])
        except ValidationError as error:
            raise StudyError(
                f"trial {frozen.number} of study {self.study.study_name!r} cannot be read: {first_line(error)}",
                hint="name another study with --study",
            ) from None

    def _live(self, number: int) -> optuna.trial.Trial:
        frozen = next(t for t in self.study.get_trials(deepcopy=False) if t.number == number)
        return optuna.trial.Trial(self.study, frozen._trial_id)  # noqa: SLF001  (Optuna has no public way by number)


def distributions(space: OpenSpace) -> dict[str, BaseDistribution]:
    """Return Optuna's form of the open dimensions."""
    return {dimension.flag: CategoricalDistribution(dimension.values) for dimension in space.dimensions}


def _constrain(live: optuna.trial.Trial, constraints: Mapping[str, float]) -> None:
    """Set what is not set yet: after a crash some of it may be."""
    for name, value in constraints.items():
        if name not in live.constraints:
            live.set_constraint(name, value)


def _claim(study: optuna.Study, question: str) -> None:
    known = study.user_attrs.get(_QUESTION)
    if known is None:
        study.set_user_attr(_QUESTION, question)
    elif known != question:
        raise StudyError(
            f"study {study.study_name!r} holds another question (model, hardware, engine, workload, SLO, space or "
            "pinned settings differ)",
            hint="name another study with --study, or repeat the command it was made with",
        )
