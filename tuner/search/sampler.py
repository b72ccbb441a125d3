"""What to try next: a pure function of the study so far and the seed, so a resumed study goes on as it would have."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import optuna
from optuna.samplers import TPESampler
from optuna.trial import TrialState

from tuner.domain.engine import EngineConfig
from tuner.domain.trial import Infeasible
from tuner.search.ledger import Ledger, distributions
from tuner.search.spaces import Choice, OpenSpace

_ATTEMPTS = 32
_STARTUP = 6
_ENUMERABLE = 50_000
_DRAWS = 10_000
_SEEDS = 1 << 32


class Proposal:
    """A point that was not tried yet: `ruled_out` when it cannot work, so that it is noted and never launched."""

    def __init__(self, point: dict[str, Choice], config: EngineConfig, ruled_out: Infeasible | None) -> None:
        self.point = point
        self.config = config
        self.ruled_out = ruled_out


def propose(
    ledger: Ledger,
    space: OpenSpace,
    *,
    seed: int,
    seen: set[str],
    screen: Callable[[EngineConfig], Infeasible | None],
    with_ruled_out: bool = True,
) -> Proposal | None:
    """Return the next configuration to note or launch, or None when every one was.

    Asks TPE on a copy of the study, so that points which are already known cost nothing and leave no trace; when it
    keeps naming known points, a random one of the rest is taken. Without `with_ruled_out` only what can be launched
    is proposed: what cannot work teaches the sampler after a few examples, and a study full of it would be slow.
    """
    history = ledger.study.get_trials(deepcopy=True, states=(TrialState.COMPLETE, TrialState.PRUNED))
    inside = [trial for trial in history if trial.params]
    sampler = TPESampler(seed=(seed * 100_003 + len(seen)) % _SEEDS, multivariate=True, n_startup_trials=_STARTUP)
    copy = optuna.create_study(direction=_direction(ledger), sampler=sampler)
    copy.add_trials(inside)
    for _ in range(_ATTEMPTS):
        trial = copy.ask(distributions(space))
        proposal = _new(space, trial.params, seen, screen)
        if proposal is not None and (with_ruled_out or proposal.ruled_out is None):
            return proposal
        copy.tell(trial, state=TrialState.FAIL)
    for point in _shuffled(space, seed + len(seen)):
        proposal = _new(space, point, seen, screen)
        if proposal is not None and (with_ruled_out or proposal.ruled_out is None):
            return proposal
    return None


def _new(
    space: OpenSpace,
    point: Mapping[str, Choice],
    seen: set[str],
    screen: Callable[[EngineConfig], Infeasible | None],
) -> Proposal | None:
    config = space.config(point)
    return None if config.key in seen else Proposal(dict(point), config, screen(config))


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


def _direction(ledger: Ledger) -> Literal["maximize", "minimize"]:
    maximize = ledger.study.direction == optuna.study.StudyDirection.MAXIMIZE
    return "maximize" if maximize else "minimize"
