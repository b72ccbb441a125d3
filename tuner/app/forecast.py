"""What the study is going to do and how long it may take, before it does it."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import assert_never

from tuner.app.events import WorkPlan
from tuner.app.resolve import Resolved
from tuner.domain.engine import EngineConfig
from tuner.domain.study import Budget, StudySpec
from tuner.domain.trial import Measured, Trial
from tuner.domain.workload import ClosedLoop, OpenLoop, RateProfile, Sessions, Trace, Workload
from tuner.search.screen import screen
from tuner.search.spaces import Choice, OpenSpace

_COUNT_AT_MOST = 3_000
_SAMPLE = 1_500
_START_GUESS_S = 60.0
_TOKENS_PER_S_GUESS = 20.0
_TRACE_RATE_GUESS = 5.0
_HOPELESS = "every configuration that was counted is ruled out, so at most the engine's own defaults can be tried"


def work_plan(resolved: Resolved, trials: Sequence[Trial]) -> WorkPlan:
    """Count the space, what is ruled out and why, the starts to come, and estimate the time."""
    spec, space = resolved.spec, resolved.space
    rules: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    seen: set[str] = set()
    whole = space.size <= _COUNT_AT_MOST
    for point in space.points() if whole else _sample(space, spec.seed):
        config = space.config(point)
        if config.key in seen:
            continue
        seen.add(config.key)
        ruled_out = screen(config, spec.model, spec.hardware)
        if ruled_out is not None:
            rules[ruled_out.rule] += 1
            reasons.setdefault(ruled_out.rule, ruled_out.reason)
    hopeless = rules.total() == len(seen)
    fitting = (0 if hopeless else spec.budget.trials) if not whole else len(seen) - rules.total()
    done = sum(trial.counts for trial in trials)
    each = trial_seconds(trials) or guess_seconds(spec, space.config({}))
    finals, soak = final_starts(spec.budget), spec.budget.soak_s
    searching = min(max(0, min(spec.budget.trials, fitting) - done), _within(spec, each, each * finals + soak))
    starts = searching + finals
    return WorkPlan(
        spec=spec,
        size=len(seen) if whole else space.size,
        ruled_out=rules.total(),
        counted=len(seen),
        by_rule=tuple((rule, count, reasons[rule]) for rule, count in rules.most_common()),
        closed=space.closed,
        starts=starts,
        seconds=starts * each + soak,
        known=done,
        notes=(*resolved.notes, *([_HOPELESS] if hopeless else [])),
    )


def final_starts(budget: Budget) -> int:
    """Return the starts after the search: default and finalists in turns, and the one that is soaked."""
    return (1 + budget.finalists) * budget.verify_rounds + (1 if budget.soak_s else 0)


def _within(spec: StudySpec, each: float, after: float) -> int:
    """Return the starts that the budgets of time leave for the search, one at least; `after` seconds are kept."""
    own, hours = spec.budget.seconds or math.inf, spec.budget.device_hours or math.inf
    left = (min(own, hours * 3600 / max(1, spec.hardware.devices)) - after) / each
    return max(1, math.ceil(left)) if math.isfinite(left) else spec.budget.trials


def _sample(space: OpenSpace, seed: int) -> Iterator[dict[str, Choice]]:
    """Yield points of a space that is too large to count, each as likely as the other."""
    rng = random.Random(seed)  # noqa: S311  (a seeded choice, not a secret)
    for _ in range(_SAMPLE):
        yield {dimension.flag: rng.choice(dimension.values) for dimension in space.dimensions}


def trial_seconds(trials: Sequence[Trial]) -> float | None:
    """Mean duration of the trials that were launched so far, in seconds; None before the first."""
    durations = [
        sum(phase.seconds for phase in trial.phases) for trial in trials if isinstance(trial.outcome, Measured)
    ]
    return sum(durations) / len(durations) if durations else None


def guess_seconds(spec: StudySpec, config: EngineConfig) -> float:
    """Guess the duration of one trial before any was measured. PREDICTED, from rules of thumb."""
    size = spec.model.weight_bytes or 2 * (spec.model.parameters or 0)
    start = _START_GUESS_S + size / 1e9 + (0 if config.get("enforce-eager") else 45)
    return start + _guess_load(spec.workload)


def _guess_load(workload: Workload) -> float:
    arrivals = workload.arrivals
    match arrivals:
        case OpenLoop():
            return workload.requests / arrivals.rate_per_s
        case RateProfile():
            return max(arrivals.points[-1].at_s, workload.requests / max(one.rate_per_s for one in arrivals.points))
        case ClosedLoop(concurrency=parallel) | Sessions(users=parallel):
            rounds = -(-workload.requests // parallel)
            thinking = arrivals.think_s if isinstance(arrivals, Sessions) else 0.0
            return rounds * (workload.output_tokens.longest / _TOKENS_PER_S_GUESS + thinking)
        case Trace():
            return workload.requests / _TRACE_RATE_GUESS
        case _:
            assert_never(arrivals)
