"""`studies`: which studies there are, what came of their trials, and tables of them. Read only: no lock is taken."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import Field

from tuner.app.words import settings_text
from tuner.domain.engine import Value
from tuner.domain.plan import Importance, Plan
from tuner.domain.record import Record
from tuner.domain.study import Objective, StudySpec
from tuner.domain.trial import Dropped, Estimate, Failed, Infeasible, Measured, Measurement, Trial
from tuner.errors import LlmtuneError, NothingMeasuredError, StudyError, UsageError
from tuner.measure.objective import score
from tuner.output.bundle import PLAN, bundle_directory, load_plan
from tuner.output.trial_table import Cell, Format, metric_cells, write_table
from tuner.search.reading import JOURNAL, LOCK, SeenStudy, SeenTrial, read_studies, working_on


class TrialLine(Record):
    """One trial of a study. `score`, `low` and `high` are the objective with its 95 % interval, measured ones only.

    `bound` is what was known of the objective when a trial was dropped, and no result. `outcome` is `running` while
    somebody is at it, `cut off` when nobody is, and `unreadable` for records of another llmtune.
    """

    number: int
    purpose: str
    settings: dict[str, Value]
    outcome: str
    cause: str = ""
    """The kind of a failure, or the rule that dropped it or ruled it out."""
    reason: str = ""
    score: float | None = None
    low: float | None = None
    high: float | None = None
    bound: Estimate | None = None
    meets_slo: bool | None = None
    start_s: float | None = None
    seconds: float | None = None
    began: datetime | None = None
    ended: datetime | None = None
    attempts: int | None = None
    owner: str = ""
    evidence: str = ""
    measurement: Measurement | None = None
    peak_memory_bytes: int | None = None

    @property
    def text(self) -> str:
        """The score with its interval."""
        if self.score is None:
            return ""
        return f"{self.score:.4g} [{self.low:.4g}, {self.high:.4g}]" if self.low is not None else f"{self.score:.4g}"


class StudyRow(Record):
    """One study of a list. `best` is the trial that is best so far among those that keep the SLO."""

    name: str
    place: str
    model: str = ""
    engine: str = ""
    objective: str = ""
    trials: dict[str, int] = Field(default_factory=dict)
    best: TrialLine | None = None
    last_activity: datetime | None = None
    working: tuple[str, ...] = ()
    problem: str = ""
    """Why it cannot be read; then nothing else is known of it."""


class StudyShown(Record):
    """A study in full. `question` is what was asked, name to value; `importances` come from its plan."""

    row: StudyRow
    question: dict[str, str]
    lines: tuple[TrialLine, ...]
    importances: tuple[Importance, ...] = ()
    verdict: str = ""


@dataclass(frozen=True)
class _Found:
    """A study, and the folder with its evidence and plan where that is under --out."""

    seen: SeenStudy
    place: str
    folder: Path | None
    plan: Plan | None

    @property
    def spec(self) -> StudySpec | None:
        return self.seen.spec or (self.plan.study if self.plan is not None else None)


def list_studies(out: Path, storage: str | None) -> tuple[StudyRow, ...]:
    """Return every study under `out`, or in `storage`, the latest last.

    Raises:
        StudyError: the storage cannot be read; a journal under `out` that cannot is a row with a problem.

    """
    rows: list[StudyRow] = []
    for place, found in _everything(out, storage):
        rows += [StudyRow(name=place, place=place, problem=found)] if isinstance(found, str) else [_row(found)]
    return tuple(sorted(rows, key=lambda row: row.last_activity.timestamp() if row.last_activity else 0.0))


def show_study(name: str, out: Path, storage: str | None) -> StudyShown:
    """Return one study in full. `name` may say the model too: `model/study`.

    Raises:
        UsageError: there is no such study, or several.
        StudyError: its storage cannot be read.

    """
    found = _find(name, out, storage)
    return StudyShown(
        row=_row(found),
        question=_question(found.spec),
        lines=_lines(found),
        importances=found.plan.importances if found.plan is not None else (),
        verdict=found.plan.verdict.text if found.plan is not None else "",
    )


def export_study(name: str, out: Path, storage: str | None, *, form: Format, to: Path | None) -> str:
    """Write a study's trials as a table, one row a trial, or return its text when there is no file to write.

    Raises:
        UsageError: there is no such study, or Parquet without a file or without pyarrow.
        OutputError: the file cannot be written.

    """
    found = _find(name, out, storage)
    objective = found.spec.objective if found.spec is not None else None
    lines = _lines(found)
    flags = sorted({flag for line in lines for flag in line.settings})
    return write_table([_cells(found.seen.name, objective, line, flags) for line in lines], form, to)


def _cells(study: str, objective: str | None, line: TrialLine, flags: Sequence[str]) -> dict[str, Cell]:
    bound = line.bound
    return {
        "study": study,
        "number": line.number,
        "purpose": line.purpose,
        "outcome": line.outcome,
        "cause": line.cause or None,
        "reason": line.reason or None,
        "objective": objective,
        "score": line.score,
        "score_low": line.low,
        "score_high": line.high,
        "meets_slo": line.meets_slo,
        "bound": bound.value if bound else None,
        "bound_low": bound.low if bound else None,
        "bound_high": bound.high if bound else None,
        "start_s": line.start_s,
        "seconds": line.seconds,
        "began": line.began.isoformat() if line.began else None,
        "ended": line.ended.isoformat() if line.ended else None,
        "attempts": line.attempts,
        "owner": line.owner or None,
        "evidence": line.evidence or None,
        "peak_memory_bytes": line.peak_memory_bytes,
        **{f"setting.{flag}": line.settings.get(flag) for flag in flags},
        **metric_cells(line.measurement),
    }


def _find(name: str, out: Path, storage: str | None) -> _Found:
    everything = list(_everything(out, storage))
    fitting = [
        (place, found) for place, found in everything
        if name in (place, Path(place).name) or (isinstance(found, _Found) and name in _names(found))
    ]
    where = "in the storage" if storage else f"under {out}"
    if len(fitting) > 1:
        places = ", ".join(sorted(place for place, _ in fitting))
        raise UsageError(f"several studies {where} are called {name!r}", hint=f"say which: {places}")
    if not fitting:
        known = sorted({found.seen.name if isinstance(found, _Found) else place for place, found in everything})
        raise UsageError(f"there is no study {name!r} {where}", hint=_closest(name, known))
    found = fitting[0][1]
    if isinstance(found, str):
        raise StudyError(found, hint="move the study's folder away, or mend it from a backup")
    return found


def _names(found: _Found) -> set[str]:
    model = found.spec.model.name if found.spec is not None else ""
    return {found.seen.name, f"{model}/{found.seen.name}"}


def _closest(name: str, known: Sequence[str]) -> str:
    if not known:
        return "there is none; say where with --out or --storage"
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(known[-8:])}"


def _everything(out: Path, storage: str | None) -> Iterator[tuple[str, _Found | str]]:
    """Yield the place and the study, or why it cannot be read."""
    if storage is not None:
        for seen in read_studies(storage):
            folder = bundle_directory(out, seen.spec.model.name, seen.name) if seen.spec is not None else None
            yield seen.name, _Found(seen, seen.name, folder, _plan(folder))
        return
    for journal in sorted({path for depth in ("", "*/", "*/*/") for path in out.glob(f"{depth}{JOURNAL}")}):
        folder = journal.parent
        place = str(folder.relative_to(out)) if folder != out else folder.resolve().name
        try:
            found = read_studies(journal)
            if not found:
                yield place, f"{journal} holds no study: one was cut off before it began, or the file is damaged"
            for seen in found:
                yield place, _Found(seen, place, folder, _plan(folder))
        except StudyError as error:
            yield place, error.message


def _plan(folder: Path | None) -> Plan | None:
    """Return the plan of a study that has one; what cannot be read belongs to `emit`."""
    if folder is None or not (folder / PLAN).is_file():
        return None
    try:
        return load_plan(folder)
    except LlmtuneError:
        return None


def elsewhere(out: Path) -> tuple[str, ...]:
    """Return the folders under `out` whose studies are kept in another storage."""
    locks = sorted({path for depth in ("", "*/", "*/*/") for path in out.glob(f"{depth}{LOCK}")})
    return tuple(str(path.parent) for path in locks if not (path.parent / JOURNAL).exists())


def _row(found: _Found) -> StudyRow:
    seen, spec = found.seen, found.spec
    lines = _lines(found)
    working = {trial.owner for trial in seen.trials if trial.alive}
    if found.folder is not None and (holder := working_on(found.folder, seen.last_activity)):
        working.add(holder)
    engines = {f"{trial.config.engine} {trial.config.version}" for trial in seen.trials}
    return StudyRow(
        name=seen.name,
        place=found.place,
        model=spec.model.name if spec is not None else "",
        engine=f"{spec.engine.engine} {spec.engine.version}" if spec is not None else ", ".join(sorted(engines)),
        objective=spec.objective if spec is not None else "",
        trials=dict(sorted(Counter(line.outcome for line in lines).items())),
        best=_best(seen, lines),
        last_activity=seen.last_activity,
        working=tuple(sorted(working)),
    )


def _best(seen: SeenStudy, lines: Sequence[TrialLine]) -> TrialLine | None:
    keeping = [line for line in lines if line.score is not None and line.meets_slo]
    sign = 1.0 if seen.direction == "maximize" else -1.0
    return max(keeping, key=lambda line: sign * (line.score or 0.0), default=None)


def _lines(found: _Found) -> tuple[TrialLine, ...]:
    objective = found.spec.objective if found.spec is not None else None
    return tuple(_line(trial, objective) for trial in found.seen.trials)


def _line(seen: SeenTrial, objective: Objective | None) -> TrialLine:
    both = seen.began is not None and seen.ended is not None
    line = TrialLine(
        number=seen.number,
        purpose=seen.purpose,
        settings=seen.config.values,
        outcome="unreadable" if seen.unreadable else "running" if seen.alive else "cut off",
        began=seen.began,
        ended=seen.ended,
        seconds=(seen.ended - seen.began).total_seconds() if both and seen.ended and seen.began else None,
        owner=seen.owner,
    )
    return line if seen.record is None else line.model_copy(update=_outcome(seen, seen.record, objective))


def _outcome(seen: SeenTrial, record: Trial, objective: Objective | None) -> dict[str, object]:
    base: dict[str, object] = {
        "outcome": record.outcome.kind, "attempts": record.attempts, "evidence": record.evidence
    }
    match record.outcome:
        case Measured() as outcome:
            low, high = _interval(outcome.measurement, objective, seen.score)
            kept = all(value <= 0 for value in seen.violations.values())
            return base | {
                "score": seen.score, "low": low, "high": high, "meets_slo": kept, "start_s": outcome.start_s,
                "measurement": outcome.measurement, "peak_memory_bytes": outcome.peak_memory_bytes,
            }
        case Dropped() as outcome:
            return base | {
                "cause": outcome.rule, "reason": outcome.reason, "bound": outcome.bound, "start_s": outcome.start_s
            }
        case Failed() as outcome:
            return base | {"cause": outcome.failure.value, "reason": outcome.reason}
        case Infeasible() as outcome:
            return base | {"cause": outcome.rule, "reason": outcome.reason}


def _interval(
    measurement: Measurement, objective: Objective | None, told: float | None
) -> tuple[float | None, float | None]:
    """Return the interval of the told score: that of the measurement, in the score's own scale.

    A score counts replicas and prices, which are factors, so the interval of one server scales as its value does.
    """
    if objective is None or told is None:
        return None, None
    try:
        one = score(measurement, objective, dollars_per_hour=1.0)
    except NothingMeasuredError:
        return None, None
    factor = told / one.value if one.value else 1.0
    return one.low * factor, one.high * factor


def _question(spec: StudySpec | None) -> dict[str, str]:
    if spec is None:
        return {}
    budget = spec.budget
    limits = [f"{budget.trials} trials"]
    limits += [f"{budget.seconds:g} s"] if budget.seconds is not None else []
    limits += [f"{budget.device_hours:g} device hours"] if budget.device_hours is not None else []
    shown = {
        "model": spec.model.location,
        "hardware": spec.hardware.label,
        "engine": f"{spec.engine.engine} {spec.engine.version} ({spec.engine.build} build)",
        "workload": f"{spec.workload.name}: {spec.workload.requests} requests a trial",
        "slo": spec.slo.text,
        "objective": ", ".join((spec.objective, *spec.also)),
        "pinned": ", ".join(f"{pin.flag}={pin.value}" for pin in spec.pins),
        "baseline": settings_text(spec.baseline) if spec.baseline is not None else "",
        "searched": ", ".join(setting.flag for setting in spec.space.settings),
        "budget": ", ".join(limits),
    }
    return {name: text for name, text in shown.items() if text}
