"""Several tuners, each a real process with a folder of its own, on one storage: nothing twice, nothing lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from optuna.trial import TrialState

from tests.fakes import plans
from tuner.domain.trial import Failed, FailureKind, Measured, Trial
from tuner.search.ledger import Ledger
from tuner.search.reading import read_studies

pytestmark = pytest.mark.contract

ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import sys
sys.path.insert(0, {root!r})
from tests.contract.test_search_shared import work
work({url!r}, {folder!r}, {points}, {seconds})
"""
POINTS = 12


def work(url: str, folder: str, points: int, seconds: float) -> None:
    """Try the same configurations in the same order as everybody else does, each for so long."""
    with opened(url, Path(folder)) as book:
        print("open", flush=True)
        sys.stdin.readline()
        again = []
        for number, config, purpose in book.leftovers():
            lost = Failed(failure=FailureKind.MACHINE, reason="lost", phase="x")
            if book.finish(Trial(number=number, purpose=purpose, config=config, outcome=lost), score=None, violations={}):
                again.append(config)
        for config in [*again, *(plans.config(("a", value)) for value in range(points))]:
            known = {trial.config.key for trial in book.trials() if isinstance(trial.outcome, Measured)}
            known |= {config.key for _, config in book.running()}
            number = None if config.key in known else book.claim(config, None, None, "search")
            if number is not None:
                print(f"at {number}", flush=True)
                time.sleep(seconds)
                outcome = Measured(measurement=plans.measurement(100.0), startup=plans.StartupFacts(), start_s=1.0)
                trial = Trial(number=number, purpose="search", config=config, outcome=outcome, evidence=folder)
                assert book.finish(trial, score=float(number), violations={})


def opened(url: str, folder: Path) -> Ledger:
    return Ledger.open(name="s", question="q", direction="maximize", folder=folder, storage=url)


def start(url: str, folder: Path, seconds: float) -> subprocess.Popen[str]:
    code = CHILD.format(root=str(ROOT), url=url, folder=str(folder), points=POINTS, seconds=seconds)
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    return child


def go(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def check(url: str, folder: Path) -> Counter[str]:
    """Hold every configuration to one measurement, and return how many each worker made."""
    with opened(url, folder) as book:
        measured = [trial for trial in book.trials() if isinstance(trial.outcome, Measured)]
        assert sorted(trial.config.get("a") for trial in measured) == list(range(POINTS))
        assert len({trial.number for trial in book.trials()}) == len(book.trials())
        assert {trial.state for trial in book.study.trials} <= {TrialState.COMPLETE, TrialState.FAIL}
        assert (book.leftovers(), book.running()) == ([], [])
        return Counter(Path(trial.evidence).name for trial in measured)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("scheme", ["journal", "sqlite"])
def test_two_processes_share_the_work(tmp_path: Path, scheme: str) -> None:
    """UP-F13: parallel workers with one storage lose no trial; here none is done twice either."""
    url = f"{scheme}:///{tmp_path}/shared.{scheme}"
    workers = [start(url, tmp_path / name, 0.05) for name in ("a", "b")]
    for worker in workers:
        go(worker)
    for worker in workers:
        worker.communicate(timeout=120)
    assert [worker.returncode for worker in workers] == [0, 0]
    done = check(url, tmp_path / "c")
    assert set(done) == {"a", "b"}, "both had a share"


@pytest.mark.timeout(180)
def test_what_a_killed_one_was_at_is_done_again_by_one(tmp_path: Path) -> None:
    url = f"journal:///{tmp_path}/shared.journal"
    with start(url, tmp_path / "dead", 60) as dead:
        go(dead)
        assert dead.stdout is not None
        assert dead.stdout.readline() == "at 0\n"
        with opened(url, tmp_path / "c") as book:
            assert [number for number, _ in book.running()] == [0], "alive: nobody's leftover"
        dead.send_signal(signal.SIGKILL)
    workers = [start(url, tmp_path / name, 0.05) for name in ("a", "b")]
    for worker in workers:
        go(worker)
    for worker in workers:
        worker.communicate(timeout=120)
    assert [worker.returncode for worker in workers] == [0, 0]
    check(url, tmp_path / "c")
    with opened(url, tmp_path / "c") as book:
        assert [trial.outcome.kind for trial in book.trials()].count("failed") == 1
        assert book.trials()[0].outcome.kind == "failed"


WORKERS = 8


@pytest.mark.timeout(180)
@pytest.mark.parametrize("scheme", ["journal", "sqlite"])
def test_eight_workers_and_somebody_who_looks_on(tmp_path: Path, scheme: str) -> None:
    """UP-F13: a rival's SQLite is locked by parallel workers, and an open dashboard breaks its study."""
    url = f"{scheme}:///{tmp_path}/shared.{scheme}"
    opened(url, tmp_path / "first").close()
    mine: list[list[int]] = [[] for _ in range(WORKERS)]
    seen: list[int] = []
    over = threading.Event()

    def look_on() -> None:
        while not over.is_set():
            seen.append(sum(trial.record is not None for study in read_studies(url) for trial in study.trials))

    def try_two(worker: int) -> None:
        with opened(url, tmp_path / f"w{worker}") as book:
            for value in (worker, worker + 1):
                config = plans.config(("a", value % WORKERS))
                number = book.claim(config, None, None, "search")
                if number is not None:
                    outcome = Measured(measurement=plans.measurement(1.0), startup=plans.StartupFacts(), start_s=1.0)
                    trial = Trial(number=number, purpose="search", config=config, outcome=outcome)
                    assert book.finish(trial, score=float(value), violations={})
                    mine[worker].append(number)

    onlooker = threading.Thread(target=look_on)
    onlooker.start()
    try:
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(try_two, range(WORKERS)))
    finally:
        over.set()
        onlooker.join(timeout=60)
    with opened(url, tmp_path / "last") as book:
        trials = book.trials()
        assert sorted(trial.number for trial in trials) == sorted(number for numbers in mine for number in numbers)
        assert sorted(trial.config.get("a") for trial in trials) == list(range(WORKERS)), "each once"
        assert (book.leftovers(), book.running()) == ([], [])
    assert seen == sorted(seen)
    assert not onlooker.is_alive()
