"""What is tried next: never twice, a pure function of history and seed, and taught by failures that are no numbers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.spaces import dimensions, spaces
from tuner.domain.engine import EngineConfig, Setting
from tuner.domain.trial import Infeasible
from tuner.search.observed import Observed
from tuner.search.sampler import Direction, Kind, Proposal, propose
from tuner.search.spaces import OpenSpace

pytestmark = pytest.mark.unit

KINDS: tuple[Kind, ...] = ("llmtune", "tpe", "random")
DIRECTIONS: tuple[Direction, ...] = ("maximize", "minimize")
RULED_OUT = Infeasible(rule="r", reason="no")
GRID = dimensions(*((flag, (None, 1, 2, 3, 4, 5), {}) for flag in "abcd"))
Answer = float | Literal["crash", "dropped"]
Judge = Callable[[dict[str, Any]], Answer]


class Search:
    """A study without servers: `judge` gives a point's score, or says that it crashed or was dropped."""

    def __init__(
        self, space: OpenSpace, judge: Judge, *, seed: int = 0, kind: Kind = "llmtune", direction: Direction = "maximize",
        screen: Callable[[EngineConfig], Infeasible | None] = lambda _: None, with_ruled_out: bool = True,
    ) -> None:
        self.space, self.judge, self.seed, self.kind, self.direction = space, judge, seed, kind, direction
        self.screen, self.with_ruled_out = screen, with_ruled_out
        self.seen: list[Observed] = []

    def next(self) -> Proposal | None:
        tried = {self.space.config(one.point).key for one in self.seen}
        return propose(self.space, self.seen, kind=self.kind, direction=self.direction, seed=self.seed, tried=tried,
                       screen=self.screen, with_ruled_out=self.with_ruled_out)

    def step(self) -> Proposal | None:
        proposal = self.next()
        if proposal is None:
            return None
        answer: Answer | Literal["ruled_out"] = "ruled_out" if proposal.ruled_out else self.judge(proposal.point)
        if isinstance(answer, float):
            found = Observed(point=proposal.point, state="measured", score=answer, start_s=30.0, load_s=30.0)
        elif answer == "dropped":
            found = Observed(point=proposal.point, state="dropped", start_s=30.0, load_s=5.0)
        else:
            found = Observed(point=proposal.point, state="failed" if answer == "crash" else "ruled_out", reason="no")
        self.seen.append(found)
        return proposal

    def run(self, steps: int) -> list[dict[str, Any]]:
        points = []
        for _ in range(steps):
            proposal = self.step()
            if proposal is None:
                break
            points.append(proposal.point)
        return points

    def best(self) -> Observed:
        measured = [one for one in self.seen if one.state == "measured"]
        sign = 1 if self.direction == "maximize" else -1
        return max(measured, key=lambda one: sign * (one.score or 0.0))


def total(point: dict[str, Any]) -> float:
    return float(1 + sum(value or 0 for value in point.values()))


def scored(direction: Direction) -> Callable[[dict[str, Any]], float]:
    """Larger totals are better either way."""
    return total if direction == "maximize" else lambda point: 1000 / total(point)


# --- never twice, and everything at last


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(spaces().filter(lambda found: found.size <= 12), st.sampled_from(KINDS), st.integers(0, 5),
       st.randoms(use_true_random=False))
def test_every_configuration_comes_once_and_then_none(
    found: OpenSpace, kind: Kind, seed: int, rng: random.Random
) -> None:
    outcomes: list[Answer] = [1.0, 2.0, "crash", "dropped"]
    search = Search(found, lambda _: rng.choice(outcomes), seed=seed, kind=kind)
    keys = []
    while (proposal := search.step()) is not None:
        assert found.config(proposal.point).key == proposal.config.key
        assert [proposal.config.get(pin.flag) for pin in found.pins] == [pin.value for pin in found.pins]
        keys.append(proposal.config.key)
    assert len(keys) == len(set(keys))
    assert set(keys) == {found.config(point).key for point in found.points()}


@pytest.mark.parametrize("kind", KINDS)
def test_values_keep_their_types(kind: Kind) -> None:
    found = dimensions(("a", (None, True, False), {}), ("b", (0.5, "auto"), {}), ("c", (1, 2), {}))
    points = Search(found, total_of_numbers, kind=kind).run(12)
    assert len(points) == 12
    for point in points:
        for dimension in found.dimensions:
            assert any(point[dimension.flag] is value or (type(point[dimension.flag]) is type(value) and
                       point[dimension.flag] == value) for value in dimension.values)


def total_of_numbers(point: dict[str, Any]) -> float:
    return float(1 + sum(value for value in point.values() if isinstance(value, (int, float))))


def test_pins_are_in_every_proposal() -> None:
    found = dimensions(("a", (None, 1, 2), {}), pins=(Setting(flag="p", value=7),))
    search = Search(found, total)
    while (proposal := search.step()) is not None:
        assert proposal.config.get("p") == 7


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("found", "only"), [(dimensions(("a", (1,), {})), {"a": 1}), (dimensions(), {})])
def test_a_space_of_one_point(kind: Kind, found: OpenSpace, only: dict[str, Any]) -> None:
    assert Search(found, total, kind=kind).run(5) == [only]


def test_what_others_are_at_is_not_proposed() -> None:
    small = dimensions(("a", (None, 1, 2, 3), {}))
    running = [Observed(point={"a": value}, state="running") for value in (None, 2)]
    search = Search(small, total)
    search.seen = [*running, Observed(point={"a": 1}, state="measured", score=2.0)]
    assert search.run(5) == [{"a": 3}]


# --- a pure function of history and seed


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_study_goes_on_as_it_would_have(kind: Kind) -> None:
    def judge(point: dict[str, Any]) -> Answer:
        return "crash" if point["a"] == 5 else total(point)

    straight = Search(GRID, judge, kind=kind)
    straight.run(8)
    resumed = Search(GRID, judge, kind=kind)
    resumed.seen = [replace(one) for one in straight.seen[:5]]
    assert resumed.run(3) == [one.point for one in straight.seen[5:]]
    again, once_more = straight.next(), straight.next()
    assert again is not None
    assert once_more is not None
    assert again.config.key == once_more.config.key


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_differ(kind: Kind) -> None:
    assert len({str(Search(GRID, total, seed=seed, kind=kind).run(3)) for seed in range(3)}) == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [2**31, 2**40, 123456789012345678901234567890])
def test_any_seed_will_do(seed: int, kind: Kind) -> None:
    assert len(Search(GRID, total, seed=seed, kind=kind).run(2)) == 2


# --- failures teach, and are no numbers


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_crash_that_would_win_never_wins(direction: Direction, kind: Kind) -> None:
    """UP-F12, PT-01, PT-02, PT-15: crashes lie right beside the optimum and would win under every number."""
    def judge(point: dict[str, Any]) -> Answer:
        return "crash" if (point["a"] or 0) >= 4 else scored(direction)(point)

    search = Search(GRID, judge, kind=kind, direction=direction)
    points = search.run(22)
    assert len({str(point) for point in points}) == 22, "none twice"
    assert (search.best().point["a"] or 0) < 4
    assert all(one.score is None for one in search.seen if one.state != "measured")
    if kind == "llmtune":
        assert total(search.best().point) >= 18, "near the best that runs, 19"
        assert sum((point["a"] or 0) >= 4 for point in points[12:]) <= 1, "a region that died is left alone"


@pytest.mark.parametrize("kind", KINDS)
def test_after_crashes_alone_the_next_is_still_new(kind: Kind) -> None:
    search = Search(GRID, lambda _: "crash", kind=kind)
    assert len({str(point) for point in search.run(12)}) == 12


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_better_than_random_sampling(direction: Direction) -> None:
    search = Search(GRID, scored(direction), direction=direction)
    search.run(16)
    points = list(GRID.points())
    chance = max(max(map(total, random.Random(seed).sample(points, 16))) for seed in range(5))
    assert total(search.best().point) >= chance


@pytest.mark.parametrize("scores", [[0.0, 0.0, 0.0], [-3.0, 2.0, 0.0], [1e-12, 1e12, 5.0]])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_any_scores_will_do(direction: Direction, scores: list[float]) -> None:
    search = Search(GRID, lambda _: scores[len(search.seen) % 3], direction=direction)
    assert len({str(point) for point in search.run(5)}) == 5


# --- what cannot work


def ruled(config: EngineConfig) -> Infeasible | None:
    return RULED_OUT if config.get("a") in (3, 4, 5) else None


def test_what_is_ruled_out_comes_with_its_reason_and_teaches() -> None:
    search = Search(GRID, total, screen=ruled)
    proposals = [proposal for _ in range(16) if (proposal := search.step()) is not None]
    assert all((proposal.ruled_out is not None) == (proposal.point["a"] in (3, 4, 5)) for proposal in proposals)
    assert any(proposal.ruled_out for proposal in proposals)
    assert sum(proposal.ruled_out is not None for proposal in proposals[8:]) < 4, "half of the space is ruled out"


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_can_be_launched_when_asked_so(kind: Kind) -> None:
    small = dimensions(("a", (None, 1, 2, 3, 4, 5), {}), ("b", (None, 1), {}))
    search = Search(small, total, screen=ruled, with_ruled_out=False, kind=kind)
    points = search.run(99)
    assert len(points) == 6
    assert all(point["a"] not in (3, 4, 5) for point in points)


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_space_in_which_nothing_can_work_ends(kind: Kind) -> None:
    """PT-07, PT-09: a rival runs on without an end when nothing starts."""
    large = dimensions(*((flag, (None, *range(1, 20)), {}) for flag in "abcd"))
    search = Search(large, total, screen=lambda _: RULED_OUT, with_ruled_out=False, kind=kind)
    assert search.next() is None
