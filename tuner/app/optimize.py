"""`optimize`: open or resume the study, search, verify, and write the plan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from tuner.app.ask_engine import engine_judge
from tuner.app.conclude import conclude
from tuner.app.events import Listener, Note
from tuner.app.forecast import work_plan
from tuner.app.resolve import Resolved
from tuner.app.search import Search, retake
from tuner.app.soak import soak
from tuner.app.trial import Bench
from tuner.app.verdict import arms, decide
from tuner.app.verify import entrants, verify
from tuner.domain.engine import EngineConfig
from tuner.domain.plan import Plan
from tuner.domain.trial import Dropped, Failed, Infeasible, Measured, Trial
from tuner.engines import ENGINES
from tuner.errors import InterruptedStudyError, NothingMeasuredError
from tuner.measure.objective import direction
from tuner.output.bundle import bundle_directory, emit
from tuner.output.evidence import check_writable
from tuner.runtime.base import HANDLE_FILE, Handle, Launcher
from tuner.runtime.environment import left_out
from tuner.search.ledger import Ledger, Purpose


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
            spec=spec,
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
    with engine_judge(spec.engine) as judge:
        search = Search(resolved, bench, ledger, redo=redo, judge=judge)
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
    soaked = soak(bench, winner) if winner is not None and spec.budget.soak_s > 0 else None
    plan = conclude(
        resolved, bench, trials=trials, found=found, verdict=verdict, winner=winner, chosen=chosen, soaked=soaked
    )
    emit(plan, folder)
    return plan, folder


def _reap(bench: Bench, ledger: Ledger) -> list[tuple[EngineConfig, Purpose]]:
    """Take down what a dead llmtune left, note its trials as faults of the machine, and have them done again."""
    left = [path.parent.name for path in bench.study_folder.rglob(HANDLE_FILE) if _reaped(bench, path)]
    if left:
        bench.tell(Note(f"took down servers that an earlier run left: {', '.join(left)}"))
    return retake(bench, ledger)


def _reaped(bench: Bench, path: Path) -> bool:
    try:
        return bench.launcher.reap(Handle.model_validate_json(path.read_text(encoding="utf-8")))
    except (OSError, ValidationError):
        return False


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
