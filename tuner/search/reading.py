"""Studies as an onlooker sees them: read only, without their lock, while somebody works on them or not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from pydantic import ValidationError

from tuner.domain.engine import EngineConfig
from tuner.domain.study import StudySpec
from tuner.domain.trial import Trial
from tuner.errors import StudyError
from tuner.search.ledger import CONFIG, OWNER, PURPOSE, SCORE, SPEC, TRIAL
from tuner.search.owner import SILENCE_S, Owner, is_gone, now_s, this_process
from tuner.search.pulse import SIGN
from tuner.search.storage import JOURNAL, LOCK, first_line, lock_owner, look

__all__ = ["JOURNAL", "LOCK", "SeenStudy", "SeenTrial", "read_studies", "working_on"]


@dataclass(frozen=True)
class SeenTrial:
    """One trial. `record` is missing while it runs, when it was cut off, and when no llmtune of today can read it.

    `score` is what the sampler was told and `violations` by how much each limit was missed; `ended` is missing until
    the end; `alive` says that its owner is at it now. `owner` is a process in words.
    """

    number: int
    purpose: str
    config: EngineConfig
    record: Trial | None
    unreadable: bool
    score: float | None
    violations: dict[str, float]
    began: datetime | None
    ended: datetime | None
    owner: str
    host: str
    alive: bool


@dataclass(frozen=True)
class SeenStudy:
    """One study. `spec` is missing in studies of an llmtune that did not keep it."""

    name: str
    direction: Literal["maximize", "minimize"]
    spec: StudySpec | None
    trials: tuple[SeenTrial, ...]

    @property
    def last_activity(self) -> datetime | None:
        """When something was last begun or ended."""
        moments = [moment for trial in self.trials for moment in (trial.began, trial.ended) if moment is not None]
        return max(moments, default=None)


def read_studies(source: Path | str) -> tuple[SeenStudy, ...]:
    """Return every study of a journal file or of a storage URL that llmtune made.

    Raises:
        StudyError: there is no such storage, or it cannot be read.

    """
    holder = lock_owner(source.parent / LOCK) if isinstance(source, Path) else None
    try:
        return tuple(_study(study, alone=isinstance(source, Path), holder=holder) for study in look(source))
    except ValidationError as error:
        raise StudyError(
            f"a trial cannot be read: {first_line(error)}", hint="look at it with the version of llmtune that made it"
        ) from None


def working_on(folder: Path, last_activity: datetime | None) -> str:
    """Return which process holds the lock of a study's folder, or an empty text.

    One that cannot be seen from here, on another host or in a container, counts while the study changes.
    """
    owner = lock_owner(folder / LOCK)
    if owner is None:
        return ""
    silent_s = now_s() - last_activity.timestamp() if last_activity is not None else float("inf")
    here = this_process()
    visible = (owner.host, owner.boot, owner.pids) == (here.host, here.boot, here.pids)
    return owner.text if (owner.runs if visible else silent_s < SILENCE_S) else ""


def _study(study: optuna.Study, *, alone: bool, holder: Owner | None) -> SeenStudy:
    """Read a study; with `alone`, only `holder`, who has the lock of the folder, can be at a trial."""
    frozen = study.get_trials(deepcopy=False)
    return SeenStudy(
        name=study.study_name,
        direction="maximize" if study.direction == StudyDirection.MAXIMIZE else "minimize",
        spec=_spec(study.user_attrs.get(SPEC)),
        trials=tuple(_trial(one, alone=alone, holder=holder) for one in frozen if _is_ours(one)),
    )


def _is_ours(frozen: FrozenTrial) -> bool:
    """Whether it is a trial of llmtune, and not one that was withdrawn because another had begun it first."""
    return CONFIG in frozen.user_attrs and (TRIAL in frozen.user_attrs or frozen.state is TrialState.RUNNING)


def _spec(text: Any) -> StudySpec | None:  # noqa: ANN401  (whatever a storage holds)
    try:
        return StudySpec.model_validate_json(text) if isinstance(text, str) else None
    except ValidationError:
        return None


def _trial(frozen: FrozenTrial, *, alone: bool, holder: Owner | None) -> SeenTrial:
    attributes = frozen.user_attrs
    record, unreadable = None, False
    if TRIAL in attributes:
        try:
            record = Trial.model_validate_json(attributes[TRIAL])
        except ValidationError:
            unreadable = True
    owner = Owner.model_validate(attributes[OWNER]) if OWNER in attributes else None
    score, violations = attributes.get(SCORE, (None, {}))
    at_it = owner is not None and not (alone and owner != holder) and _is_alive(owner, attributes.get(SIGN, 0.0))
    return SeenTrial(
        number=frozen.number,
        purpose=str(attributes.get(PURPOSE, "")),
        config=EngineConfig.model_validate(attributes[CONFIG]),
        record=record,
        unreadable=unreadable,
        score=score,
        violations=dict(violations),
        began=_utc(frozen.datetime_start),
        ended=_utc(frozen.datetime_complete),
        owner=owner.text if owner else "",
        host=owner.host if owner else "",
        alive=at_it and TRIAL not in attributes,
    )


def _is_alive(owner: Owner, sign: float) -> bool:
    nobody = this_process().model_copy(update={"folder": ""})
    return not is_gone(owner, me=nobody, last_sign=float(sign), now=now_s())


def _utc(moment: datetime | None) -> datetime | None:
    """Optuna keeps local times without a zone."""
    return moment.astimezone(UTC) if moment is not None else None
