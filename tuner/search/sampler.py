"""What to try next: a pure function of the study so far and the seed, so a resumed study goes on as it would have."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import optuna
from optuna.samplers import TPESampler
from optuna.trial import TrialState

from tuner.domain.engine import EngineConfig
from tuner.domain.trial import Infeasible
from tuner.search.ledger import distributions
from tuner.search.observed import Observed
from tuner.search.spaces import Choice, OpenSpace
from tuner.search.surrogate import Prior, suggest

Kind = Literal["llmtune", "tpe", "random"]
Direction = Literal["maximize", "minimize"]
Screen = Callable[[EngineConfig], Infeasible | None]

_ATTEMPTS = 32
_STARTUP = 6
_ENUMERABLE = 50_000
_DRAWS = 10_000
_SEEDS = 1 << 32
_RUNS = "runs"
_WORSE_THAN_ANY_LIMIT = 1e9


class Proposal:
    """A point that was not tried yet: `ruled_out` when it cannot work, so that it is noted and never launched."""

    def __init__(self, point: dict[str, Choice], config: EngineConfig, ruled_out: Infeasible | None) -> None:
        self.point = point
        self.config = config
        self.ruled_out = ruled_out


def propose(
    space: OpenSpace,
    seen: Sequence[Observed],
    *,
    kind: Kind = "llmtune",
    direction: Direction,
    seed: int,
    tried: set[str],
    screen: Screen,
    prior: Prior | None = None,
    with_ruled_out: bool = True,
) -> Proposal | None:
    """Return the next configuration to note or launch, or None when every one was.

    `tried` holds the keys of configurations that are not proposed again; `prior` predicts the logarithm of a score,
    for llmtune's own sampler. Faults of the machine belong in neither `seen` nor `tried`. Without `with_ruled_out` only
    what can be launched is proposed: what cannot work teaches the sampler after a few examples.
    """
    for point in _candidates(space, seen, kind=kind, direction=direction, seed=seed, prior=prior):
        config = space.config(point)
        if config.key in tried:
            continue
        ruled_out = screen(config)
        if with_ruled_out or ruled_out is None:
            return Proposal(point, config, ruled_out)
    return None


def _candidates(
    space: OpenSpace, seen: Sequence[Observed], *, kind: Kind, direction: Direction, seed: int, prior: Prior | None
) -> Iterator[dict[str, Choice]]:
    match kind:
        case "llmtune":
            yield from suggest(space, seen, direction=direction, seed=seed, prior=prior)
        case "tpe":
            yield from _tpe(space, seen, direction, seed)
            yield from _shuffled(space, seed + len(seen))
        case "random":
            yield from _shuffled(space, seed + len(seen))


def _tpe(space: OpenSpace, seen: Sequence[Observed], direction: Direction, seed: int) -> Iterator[dict[str, Choice]]:
    """Yield what multivariate TPE asks for, on a throw-away study: points that are not wanted leave no trace.

    Failures, and runs that were cut off, are violated constraints with the state PRUNED, so that TPE learns from them
    and never sees a number; it would ignore the state FAIL.
    """
    sampler = TPESampler(seed=(seed * 100_003 + len(seen)) % _SEEDS, multivariate=True, n_startup_trials=_STARTUP)
    study = optuna.create_study(direction=direction, sampler=sampler)
    known = distributions(space)
    for one in seen:
        if one.state == "running" or set(one.point) != set(known):
            continue
        measured = one.state == "measured"
        violations = one.violations or ({"slo": one.violation} if one.violation is not None else {})
        study.add_trial(
            optuna.trial.create_trial(
                state=TrialState.COMPLETE if measured else TrialState.PRUNED,
                value=one.score if measured else None,
                params=dict(one.point),
                distributions=dict(known),
                constraints={_RUNS: -1.0, **violations} if measured else {_RUNS: _WORSE_THAN_ANY_LIMIT},
            )
        )
    for _ in range(_ATTEMPTS):
        trial = study.ask(known)
        yield dict(trial.params)
        study.tell(trial, state=TrialState.FAIL)


def _shuffled(space: OpenSpace, seed: int) -> Iterator[dict[str, Choice]]:
    """Yield every point once in random order, or many random ones of a space that is too large for that."""
    rng = random.Random(seed)  # noqa: S311  (a seeded choice, not a secret)
    if space.size <= _ENUMERABLE:
        points = list(space.points())
        rng.shuffle(points)
        yield from points
        return
    for _ in range(_DRAWS):
        yield {dimension.flag: rng.choice(dimension.values) for dimension in space.dimensions}
