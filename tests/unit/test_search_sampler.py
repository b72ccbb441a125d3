"""What is tried next: never twice, a pure function of history and seed, and taught by failures that are no numbers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import optuna
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from optuna.trial import TrialState

from tests.fakes import plans
from tests.fakes.spaces import dimensions, spaces
from tuner.domain.engine import EngineConfig, Setting
from tuner.domain.trial import Failed, FailureKind, Infeasible, Measured, Outcome, Trial
from tuner.search.ledger import Ledger
from tuner.search.sampler import Proposal, propose
from tuner.search.spaces import OpenSpace

pytestmark = pytest.mark.unit

MEASURED = Measured(measurement=plans.measurement(100.0), startup=plans.StartupFacts(), start_s=1.0)
CRASH = Failed(failure=FailureKind.OUT_OF_MEMORY, reason="CUDA out of memory", phase="start")
MACHINE = Failed(failure=FailureKind.MACHINE, reason="port", phase="start")
RULED_OUT = Infeasible(rule="r", reason="no")
GRID = dimensions(*((flag, (None, 1, 2, 3, 4, 5), {}) for flag in "abcd"))
Judge = Callable[[dict[str, Any]], float | Outcome]


class Search:
    """A study without servers: `judge` gives a point's score, or the outcome that is no score."""

    def __init__(
        self, space: OpenSpace, judge: Judge, *, folder: Path | None = None, seed: int = 0,
        direction: Literal["maximize", "minimize"] = "maximize",
        screen: Callable[[EngineConfig], Infeasible | None] = lambda _: None, with_ruled_out: bool = True,
    ) -> None:
        self.space, self.judge, self.seed, self.screen = space, judge, seed, screen
        self.with_ruled_out = with_ruled_out
        if folder is None:
            self.book = Ledger(optuna.create_study(direction=direction), None)
        else:
            self.book = Ledger.open(name="s", question="q", direction=direction, folder=folder, storage=None)

    def seen(self) -> set[str]:
        machine = FailureKind.MACHINE
        return {
            trial.config.key for trial in self.book.trials()
            if not (isinstance(trial.outcome, Failed) and trial.outcome.failure is machine)
        }

    def next(self) -> Proposal | None:
        return propose(self.book, self.space, seed=self.seed, seen=self.seen(), screen=self.screen,
                       with_ruled_out=self.with_ruled_out)

    def record(self, proposal: Proposal, outcome: Outcome, score: float | None) -> None:
        number = self.book.begin(proposal.config, proposal.point, self.space, "search")
        trial = Trial(number=number, purpose="search", config=proposal.config, outcome=outcome)
        self.book.finish(trial, score=score, violations={})

    def step(self) -> Proposal | None:
        proposal = self.next()
        if proposal is None:
            return None
        judged = proposal.ruled_out or self.judge(proposal.point)
        if isinstance(judged, float):
            self.record(proposal, MEASURED, judged)
        else:
            self.record(proposal, judged, None)
        return proposal

    def run(self, steps: int) -> list[dict[str, Any]]:
        points = []
        for _ in range(steps):
            proposal = self.step()
            if proposal is None:
                break
            points.append(proposal.point)
        return points


def total(point: dict[str, Any]) -> float:
    return float(sum(value or 0 for value in point.values()))


def typed(points: list[dict[str, Any]]) -> list[list[tuple[str, type, Any]]]:
    return [[(flag, type(value), value) for flag, value in point.items()] for point in points]


# --- never twice, and everything at last


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(spaces().filter(lambda found: found.size <= 16), st.integers(0, 5), st.randoms(use_true_random=False))
def test_every_configuration_comes_once_and_then_none(found: OpenSpace, seed: int, rng: random.Random) -> None:
    outcomes: list[float | Outcome] = [1.0, 2.0, CRASH, RULED_OUT]
    search = Search(found, lambda _: rng.choice(outcomes), seed=seed)
    keys = []
    while (proposal := search.step()) is not None:
        assert found.config(proposal.point).key == proposal.config.key
        assert [proposal.config.get(pin.flag) for pin in found.pins] == [pin.value for pin in found.pins]
        keys.append(proposal.config.key)
    assert len(keys) == len(set(keys))
    assert set(keys) == {found.config(point).key for point in found.points()}


def test_values_keep_their_types() -> None:
    found = dimensions(("a", (None, True, False), {}), ("b", (0.5, "auto"), {}), ("c", (1, 2), {}))
    points = Search(found, total_of_numbers).run(12)
    assert len(points) == 12
    for point in points:
        for dimension in found.dimensions:
            assert any(point[dimension.flag] is value or (type(point[dimension.flag]) is type(value) and
                       point[dimension.flag] == value) for value in dimension.values)


def total_of_numbers(point: dict[str, Any]) -> float:
    return float(sum(value for value in point.values() if isinstance(value, (int, float))))


def test_pins_are_in_every_proposal() -> None:
    found = dimensions(("a", (None, 1, 2), {}), pins=(Setting(flag="p", value=7),))
    search = Search(found, total)
    while (proposal := search.step()) is not None:
        assert proposal.config.get("p") == 7


def test_a_space_of_one_point() -> None:
    search = Search(dimensions(("a", (1,), {})), total)
    assert search.run(5) == [{"a": 1}]


def test_a_space_without_dimensions() -> None:
    search = Search(dimensions(), total)
    assert search.run(5) == [{}]


# --- a pure function of history and seed


def test_asking_again_gives_the_same_and_leaves_no_trace(tmp_path: Path) -> None:
    search = Search(GRID, total, folder=tmp_path)
    search.run(9)
    before = (tmp_path / "study.journal").read_bytes()
    first, second = search.next(), search.next()
    assert first is not None
    assert second is not None
    assert first.config.key == second.config.key
    assert (tmp_path / "study.journal").read_bytes() == before


def test_a_resumed_study_goes_on_as_it_would_have(tmp_path: Path) -> None:
    def judge(point: dict[str, Any]) -> float | Outcome:
        return CRASH if point["a"] == 5 else total(point)

    straight = Search(GRID, judge, folder=tmp_path / "straight").run(16)
    halves = []
    for _ in range(4):
        search = Search(GRID, judge, folder=tmp_path / "halves")
        halves += search.run(4)
        search.book.close()
    assert typed(halves) == typed(straight)


def test_seeds_differ() -> None:
    runs = [Search(GRID, total, seed=seed).run(4) for seed in range(3)]
    assert len({str(points) for points in runs}) == 3


@pytest.mark.parametrize("seed", [2**31, 2**40, 123456789012345678901234567890])
def test_any_seed_will_do(seed: int) -> None:
    assert len(Search(GRID, total, seed=seed).run(3)) == 3


def test_a_machine_fault_changes_nothing() -> None:
    clean, faulty = Search(GRID, total), Search(GRID, total)
    for _ in range(10):
        proposal = faulty.next()
        assert proposal is not None
        faulty.record(proposal, MACHINE, None)
        assert typed([faulty.step().point]) == typed([clean.step().point])  # type: ignore[union-attr]


# --- failures teach, and are no numbers


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_a_third_of_the_space_crashes_and_is_avoided(direction: Literal["maximize", "minimize"]) -> None:
    """UP-F12, PT-01, PT-15: crashes lie right beside the optimum and would win under every number."""
    sign = 1.0 if direction == "maximize" else -1.0

    def judge(point: dict[str, Any]) -> float | Outcome:
        return CRASH if (point["a"] or 0) >= 4 else sign * total(point)

    crashes, late = 0, 0
    for seed in range(2):
        search = Search(GRID, judge, seed=seed, direction=direction)
        points = search.run(40)
        assert len({str(point) for point in points}) == 40, "none twice"
        crashes += sum((point["a"] or 0) >= 4 for point in points)
        late += sum((point["a"] or 0) >= 4 for point in points[20:])
        best = search.book.study.best_trial
        assert best.state is TrialState.COMPLETE
        assert (best.params["a"] or 0) < 4
        assert search.book.study.best_value * sign >= 14, "near the best that runs, 18"
    assert crashes / 80 < 0.34
    assert late / 40 < 0.25


def test_after_crashes_alone_the_next_is_still_new() -> None:
    search = Search(GRID, lambda _: CRASH)
    assert len({str(point) for point in search.run(25)}) == 25


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_no_worse_than_random_sampling(direction: Literal["maximize", "minimize"]) -> None:
    sign = 1.0 if direction == "maximize" else -1.0
    found, chance = 0.0, 0.0
    for seed in range(2):
        search = Search(GRID, lambda point: sign * total(point), seed=seed, direction=direction)
        found += max(map(total, search.run(24)))
        points = list(GRID.points())
        chance += max(map(total, random.Random(seed).sample(points, 24)))
    assert found >= chance


# --- what cannot work


def ruled(config: EngineConfig) -> Infeasible | None:
    return RULED_OUT if config.get("a") in (3, 4, 5) else None


def test_what_is_ruled_out_comes_with_its_reason() -> None:
    search = Search(GRID, total, screen=ruled)
    proposals = [proposal for _ in range(30) if (proposal := search.step()) is not None]
    assert all((proposal.ruled_out is not None) == (proposal.point["a"] in (3, 4, 5)) for proposal in proposals)
    assert any(proposal.ruled_out for proposal in proposals)
    assert sum(proposal.ruled_out is not None for proposal in proposals[15:]) < 8, "half of the space is ruled out"


def test_only_what_can_be_launched_when_asked_so() -> None:
    small = dimensions(("a", (None, 1, 2, 3, 4, 5), {}), ("b", (None, 1), {}))
    search = Search(small, total, screen=ruled, with_ruled_out=False)
    points = search.run(99)
    assert len(points) == 6
    assert all(point["a"] not in (3, 4, 5) for point in points)


def test_a_large_space_in_which_nothing_can_work_ends() -> None:
    """PT-07, PT-09: a rival runs on without an end when nothing starts."""
    large = dimensions(*((flag, (None, *range(1, 20)), {}) for flag in "abcd"))
    search = Search(large, total, screen=lambda _: RULED_OUT, with_ruled_out=False)
    assert search.next() is None
