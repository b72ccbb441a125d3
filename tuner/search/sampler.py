"""What to try next: a pure function of the study so far and the seed, so a resumed study goes on as it would have."""

from __future__ import annotations

import random
from collections.abc import Callable
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
) -> Proposal | None:
    """Return the next configuration to note or launch, or None when every one was.

    Asks TPE on a copy of the study, so that points which are already known cost nothing and leave no trace; when it
    keeps naming known points, a random one of the rest is taken.
    """
    history = ledger.study.get_trials(deepcopy=True, states=(TrialState.COMPLETE, TrialState.PRUNED))
    inside = [trial for trial in history if trial.params]
    sampler = TPESampler(seed=seed * 100_003 + len(seen), multivariate=True, n_startup_trials=_STARTUP)
    copy = optuna.create_study(direction=_direction(ledger), sampler=sampler)
    copy.add_trials(inside)
    for _ in range(_ATTEMPTS):
        trial = copy.ask(distributions(space))
        config = space.config(trial.params)
        if config.key not in seen:
            return Proposal(dict(trial.params), config, screen(config))
        copy.tell(trial, state=TrialState.FAIL)
    return _random_rest(space, seed=seed + len(seen), seen=seen, screen=screen)


def _random_rest(
    space: OpenSpace, *, seed: int, seen: set[str], screen: Callable[[EngineConfig], Infeasible | None]
) -> Proposal | None:
    rng = random.Random(seed)  # noqa: S311  (a seeded choice, not a secret)
    if space.size <= _ENUMERABLE:
        rest = [(point, config) for point in space.points() if (config := space.config(point)).key not in seen]
        if not rest:
            return None
        point, config = rng.choice(rest)
        return Proposal(point, config, screen(config))
    for _ in range(10_000):
        point = {dimension.flag: rng.choice(dimension.values) for dimension in space.dimensions}
        config = space.config(point)
        if config.key not in seen:
            return Proposal(point, config, screen(config))
    return None


def _direction(ledger: Ledger) -> Literal["maximize", "minimize"]:
    maximize = ledger.study.direction == optuna.study.StudyDirection.MAXIMIZE
    return "maximize" if maximize else "minimize"
