"""Who searches: llmtune, the yardsticks, and rivals as their code does it. Each yields what it runs, one after another.

A contender is a generator: it yields a step (a point, whether the run may be cut off, and how many loads one start
gets), is sent what was observed, and goes on until it has nothing left to try. All but the rivals get the static
check: what is ruled out is never launched.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import TrialState, create_trial

from benchmarks.search.world import Point, World
from tuner.search.lattice import Lattice
from tuner.search.observed import Observed
from tuner.search.spaces import Choice
from tuner.search.surrogate import suggest

DRAWS = 30_000


@dataclass(frozen=True)
class Step:
    """What is run next."""

    point: dict[str, Choice]
    target: float | None = None
    """Cut the run off when it cannot come up to this."""
    loads: int = 1
    """Loads of the full length after one start; their scores are averaged."""


Search = Generator[Step, Observed, None]
Contender = Callable[[World, int], Search]


def llmtune(world: World, seed: int) -> Search:
    """`tuner.search.surrogate` with runs that are cut off as llmtune does it."""
    yield from _llmtune(world, seed, racing=True)


def llmtune_whole(world: World, seed: int) -> Search:
    """The same sampler, every run to its end: what the sampler alone is worth."""
    yield from _llmtune(world, seed, racing=False)


def _llmtune(world: World, seed: int, *, racing: bool) -> Search:
    seen: list[Observed] = []
    default = _default(world)
    if default is not None:
        seen.append((yield Step(default)))
    while True:
        points = suggest(world.space, seen, direction=world.direction, seed=seed)
        point = next((point for point in points if not world.ruled_out(point)), None)
        if point is None:
            return
        seen.append((yield Step(point, target=_target(world, seen) if racing else None)))


def shuffled(world: World, seed: int) -> Search:
    """Random search that repeats nothing and launches nothing that is ruled out."""
    for point in _once(world, _shuffled_points(world, seed)):
        yield Step(point)


def grid(world: World, seed: int) -> Search:
    """Every combination in the order in which the space lists it, without what is ruled out."""
    del seed
    for point in _once(world, world.space.points()):
        yield Step(point)


def tpe_naive(world: World, seed: int) -> Search:
    """Optuna's TPE as most rivals use it: parameters on their own, failures and missed limits told FAIL, no check."""
    study = optuna.create_study(direction=world.direction, sampler=TPESampler(seed=seed))
    while True:
        trial = study.ask(_distributions(world))
        found = yield Step(dict(trial.params))
        good = found.state == "measured" and (found.violation or 0.0) <= 0
        study.tell(trial, found.score if good else None, state=TrialState.COMPLETE if good else TrialState.FAIL)


def tpe(world: World, seed: int) -> Search:
    """Optuna's multivariate TPE with constraints, deduplication and the static check."""
    yield from _optuna(world, TPESampler(seed=seed, multivariate=True, n_startup_trials=6), seed)


def gp(world: World, seed: int) -> Search:
    """Optuna's GPSampler with constraints, deduplication and the static check; needs torch and scipy."""
    sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=6)
    yield from _optuna(world, sampler, seed)


def auto_tune(world: World, seed: int) -> Search:
    """As auto_tune.sh of vLLM: memory share by trying, then sequences x tokens, everything else left to the engine."""
    del seed
    lists = [_numbers(world, flag) for flag in world.levels_flags]
    fixed: dict[str, Choice] = {}
    for share in sorted(_numbers(world, "gpu-memory-utilization"), reverse=True):
        fixed = {"gpu-memory-utilization": share}
        largest = {flag: max(values) for flag, values in zip(world.levels_flags, lists, strict=True) if values}
        found = yield Step(_with(world, {**largest, **fixed}), loads=0)
        if found.state != "failed":
            break
    for cell in itertools.product(*lists):
        yield Step(_with(world, {**dict(zip(world.levels_flags, cell, strict=True)), **fixed}))


def recipes(world: World, seed: int) -> Search:
    """As tools/recipes of vLLM: engine default, a seed and directed points around it, three loads a start."""
    del seed
    lists = [_numbers(world, flag) for flag in world.levels_flags]
    middle = [len(values) // 2 for values in lists]
    moves = [(0, 0), (-1, -1), (1, 1), (1, 0), (0, 1), (-1, 0), (0, -1)]
    points: list[dict[str, Choice]] = [_with(world, {})]
    for move in moves:
        chosen = {flag: values[min(max(place + step, 0), len(values) - 1)]
                  for flag, values, place, step in zip(world.levels_flags, lists, middle, move, strict=False) if values}
        point = _with(world, chosen)
        if point not in points:
            points.append(point)
    for point in points:
        yield Step(point, loads=3)


CONTENDERS: dict[str, Contender] = {
    "llmtune": llmtune, "llmtune, no early drop": llmtune_whole, "random": shuffled, "grid": grid, "tpe": tpe,
    "tpe as rivals": tpe_naive, "gp": gp, "auto_tune.sh": auto_tune, "tools/recipes": recipes,
}


def _optuna(world: World, sampler: BaseSampler, seed: int) -> Search:
    study = optuna.create_study(direction=world.direction, sampler=sampler)
    spare = _shuffled_points(world, seed)
    done: set[str] = set()
    default = _default(world)
    while True:
        point = default if default is not None and not done else _new(world, study, spare, done)
        if point is None:
            return
        done.add(world.space.config(point).key)
        found = yield Step(point)
        measured = found.state == "measured"
        limits = {limit: float(excess) for limit, excess in found.violations.items()}
        study.add_trial(create_trial(
            state=TrialState.COMPLETE if measured else TrialState.PRUNED, value=found.score if measured else None,
            params=dict(point), distributions=_distributions(world),
            constraints={"runs": -1.0, **limits} if measured else {"runs": 1e9},
        ))


def _new(
    world: World, study: optuna.Study, spare: Iterator[dict[str, Choice]], done: set[str]
) -> dict[str, Choice] | None:
    """Ask until something comes that is new and not ruled out, then take a random one."""
    scratch = optuna.create_study(direction=world.direction, sampler=study.sampler)
    scratch.add_trials(study.get_trials(deepcopy=False))
    for _ in range(16):
        trial = scratch.ask(_distributions(world))
        point = dict(trial.params)
        if not world.ruled_out(point) and world.space.config(point).key not in done:
            return point
        scratch.tell(trial, state=TrialState.FAIL)
    return next((point for point in spare
                 if not world.ruled_out(point) and world.space.config(point).key not in done), None)


def _target(world: World, seen: Sequence[Observed]) -> float | None:
    """Return the near end of the incumbent's interval, which a run must reach to be worth its time."""
    good = [one for one in seen if one.state == "measured" and (one.violation or 0.0) <= 0 and one.score is not None]
    if not good:
        return None
    if world.direction == "maximize":
        return max(good, key=lambda one: one.score or 0.0).low
    return min(good, key=lambda one: one.score or 0.0).high


def _distributions(world: World) -> dict[str, optuna.distributions.BaseDistribution]:
    return {dimension.flag: CategoricalDistribution(dimension.values) for dimension in world.space.dimensions}


def _default(world: World) -> dict[str, Choice] | None:
    point = world.space.point_of(world.space.config({}))
    return None if point is None or world.ruled_out(point) else point


def _numbers(world: World, flag: str) -> list[Any]:
    for dimension in world.space.dimensions:
        if dimension.flag == flag:
            return [value for value in dimension.values if value is not None]
    return []


def _with(world: World, chosen: Point) -> dict[str, Choice]:
    return {dimension.flag: chosen.get(dimension.flag, dimension.values[0]) for dimension in world.space.dimensions}


def _shuffled_points(world: World, seed: int) -> Iterator[dict[str, Choice]]:
    rng = random.Random(seed)
    default = _default(world)
    if default is not None:
        yield default
    if world.space.size <= 2000:
        points = list(world.space.points())
        rng.shuffle(points)
        yield from points
        return
    for _ in range(DRAWS):
        yield {dimension.flag: rng.choice(dimension.values) for dimension in world.space.dimensions}


def _once(world: World, points: Iterator[dict[str, Choice]]) -> Iterator[dict[str, Choice]]:
    """Leave out what is ruled out and what was there before."""
    lattice, done = Lattice(world.space), set()
    for point in points:
        row = lattice.row(point)
        if row is None or world.ruled_out(point) or row.tobytes() in done:
            continue
        done.add(row.tobytes())
        yield point
