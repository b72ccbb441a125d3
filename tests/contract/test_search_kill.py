"""A study whose writer is killed with SIGKILL at any moment: what was said to be finished is there, and it goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from optuna.trial import TrialState

from tests.fakes import plans
from tuner.domain.trial import Failed, FailureKind, Measured, Trial
from tuner.search.ledger import Ledger

pytestmark = pytest.mark.contract

ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.contract.test_search_kill import finish, opened
from tests.fakes import plans
with opened(Path({folder!r})) as book:
    book.settle()
    for number, config, purpose in book.leftovers():
        finish(book, number, config, lost=True)
    for value in range(1000000):
        config = plans.config(("a", value))
        number = book.begin(config, None, None, "search")
        finish(book, number, config)
        print(number, flush=True)
"""


def opened(folder: Path) -> Ledger:
    return Ledger.open(name="s", question="q", direction="maximize", folder=folder, storage=None)


def finish(book: Ledger, number: int, config: plans.EngineConfig, *, lost: bool = False) -> None:
    measured = Measured(measurement=plans.measurement(100.0), startup=plans.StartupFacts(), start_s=1.0)
    outcome = Failed(failure=FailureKind.MACHINE, reason="lost", phase="x") if lost else measured
    trial = Trial(number=number, purpose="search", config=config, outcome=outcome)
    book.finish(trial, score=None if lost else float(number), violations={})


@pytest.mark.timeout(180)
def test_the_writer_is_killed_again_and_again(tmp_path: Path) -> None:
    told: list[int] = []
    for after_s in (0.05, 0.31, 0.17):
        code = CHILD.format(root=str(ROOT), folder=str(tmp_path))
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            told.append(int(child.stdout.readline()))
            time.sleep(after_s)
            child.send_signal(signal.SIGKILL)
            told += [int(line) for line in child.stdout if line.endswith("\n")]
        assert child.returncode == -signal.SIGKILL

    with opened(tmp_path) as book:
        book.settle()
        for number, config, _ in book.leftovers():
            finish(book, number, config, lost=True)
        trials = {trial.number: trial for trial in book.trials()}
        frozen = book.study.get_trials(deepcopy=False)
    assert [one.number for one in frozen] == list(range(len(frozen)))
    assert set(told) <= {number for number, trial in trials.items() if isinstance(trial.outcome, Measured)}
    for one in frozen:
        assert one.state in (TrialState.COMPLETE, TrialState.FAIL)
        assert one.values == ([float(one.number)] if one.state is TrialState.COMPLETE else None)
    assert sum(one.state is TrialState.FAIL for one in frozen) <= 3, "at most the one that each death cut off"
