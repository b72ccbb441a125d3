"""The figures of a plan, each with a title and what to see in it. Nothing is drawn that the plan has no numbers for."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from tuner.domain.plan import Arm, Plan, TrialRow
from tuner.domain.study import Objective
from tuner.domain.trial import Estimate, LoadPoint
from tuner.measure.objective import direction
from tuner.output import figures, numbers, words
from tuner.output.plots import load_curves

_EFFECTS = 4
_VALUES = 12
_WITH_START = 2


class Drawing(NamedTuple):
    """One figure: a title, SVG text, and what it shows in words."""

    title: str
    svg: str
    caption: str


def comparison(plan: Plan) -> Drawing | None:
    """Return the objective and every limit of the SLO, arm by arm, the reference first."""
    arms = [arm for arm in numbers.arms(plan) if arm.rounds]
    panels = [figures.Panel(_objective(plan), tuple((_name(plan, arm), arm.score) for arm in arms))] if arms else []
    for index, limit in enumerate(plan.study.slo.limits):
        rows = [(_name(plan, arm), numbers.limit_readings(plan, arm)[index].estimate) for arm in arms]
        found = tuple((name, item) for name, item in rows if item is not None)
        is_share = limit.metric == "error_rate"
        unit = "%" if is_share else "ms"
        if found:
            panels.append(figures.Panel(f"{limit.text}, {unit}", found, limit.maximum * (100 if is_share else 1)))
    if not panels:
        return None
    better = "lower" if lower_is_better(plan.study.objective) else "higher"
    caption = f"Means and 95 % intervals; of the objective, {better} is better."
    caption += " The dashed line is the limit of the SLO." if len(panels) > 1 else ""
    return Drawing("Against each other", figures.comparison(tuple(panels)), caption)


def curves(plan: Plan) -> Drawing | None:
    """Return throughput and latency over the load of each arm that was swept."""
    arms = [arm for arm in numbers.arms(plan) if arm.levels]
    if not arms:
        return None
    svg = load_curves([(_name(plan, arm), machine_levels(arm)) for arm in arms], plan.study.slo.limits)
    caption = ("Hollow marks missed the SLO. The dotted line is the knee: the highest level below the first that "
               "missed. Bars are 95 % intervals.")
    if any(arm.replicas > 1 for arm in arms):
        caption += " Loads and rates are those of all replicas on the machine together."
    return Drawing("Load curves", svg, caption)


def fronts(plan: Plan) -> list[Drawing]:
    """Return the trials that kept the SLO by the first objective and each further one."""
    wanted = (plan.study.objective, *plan.study.also)
    kept = [row for row in plan.trials if row.outcome == "measured" and row.meets_slo and row.values]
    found = []
    for other in wanted[1:]:
        spots = tuple(
            figures.Spot(row.number, row.values[other], row.values[wanted[0]], row.on_front,
                         row.key == plan.config.key)
            for row in kept if other in row.values and wanted[0] in row.values
        )
        if spots:
            svg = figures.front(spots, _objective(plan, other), _objective(plan), len(wanted) == _WITH_START,
                                lower_is_better(other))
            ways = ", ".join(f"{words.OBJECTIVES[one][0]} {'lower' if lower_is_better(one) else 'higher'}"
                             for one in (wanted[0], other))
            found.append(Drawing(
                "Pareto front", svg,
                f"Trials that kept the SLO; better is {ways}. Diamonds are beaten by no other in every objective"
                f"{', joined by a line' if len(wanted) == _WITH_START else ''}; the ring is what is deployed."))
    return found


def importance(plan: Plan) -> Drawing | None:
    """Return how much of the objective goes with each setting."""
    if not plan.importances:
        return None
    rows = tuple((one.flag, one.share, f"{one.share:.0%}") for one in plan.importances[:_VALUES])
    return Drawing("Settings by their share", figures.bars("importance", "Share of each setting", rows),
                   f"How much of the spread of the {words.OBJECTIVES[plan.study.objective][0]} over the trials goes "
                   "with each setting, from the search's own model. With few trials it is a hint.")


def effects(plan: Plan) -> Drawing | None:
    """Return the scores by the values of the settings whose means differ most."""
    measured = [(row, row.score.value) for row in plan.trials if row.score is not None]
    found: list[tuple[float, figures.Effect]] = []
    for flag in sorted({flag for row, _ in measured for flag in row.settings}):
        by_value: dict[str, list[float]] = defaultdict(list)
        for row, score in measured:
            by_value[row.settings.get(flag, "(engine decides)")].append(score)
        if 1 < len(by_value) <= _VALUES:
            means = [sum(scores) / len(scores) for scores in by_value.values()]
            ordered = sorted(by_value, key=_order)
            values = tuple((words.public(plan, value), tuple(by_value[value])) for value in ordered)
            found.append((max(means) - min(means), figures.Effect(flag, values)))
    shown = tuple(effect for _, effect in sorted(found, key=lambda item: (-item[0], item[1].flag))[:_EFFECTS])
    if not shown:
        return None
    return Drawing("Scores by value", figures.effects(shown, _objective(plan)),
                   "Bars are means of the trials that had each value, dots the trials. Other settings changed with "
                   "them: a hint where to look, not a proof.")


def timeline(plan: Plan) -> Drawing | None:
    """Return every trial in its order, and how long each took."""
    if not plan.trials:
        return None
    better = "lower" if lower_is_better(plan.study.objective) else "higher"
    caption = f"{better.capitalize()} is better. The ring is the deployed configuration."
    caption += " PREDICTED is what was expected before the launch." if any(row.predicted for row in plan.trials) else ""
    return Drawing("In the order they ran", figures.timeline(_tried(plan), _objective(plan)), caption)


def agreement(plan: Plan) -> Drawing | None:
    """Return what was PREDICTED of the trials against what was measured."""
    rows = tuple(row for row in _tried(plan) if row.predicted is not None and row.score is not None)
    if not rows:
        return None
    return Drawing("PREDICTED against measured", figures.agreement(rows, _objective(plan)),
                   "On the dashed line a prediction is exact. PREDICTED numbers chose what to try, not what to deploy.")


def time_spent(rows: list[dict[str, str]]) -> Drawing | None:
    """Return the share of each kind of time; `rows` are those of the report's table."""
    total = sum(float(row["total"]) for row in rows)
    if not total:
        return None
    spent = [(row["name"], float(row["total"])) for row in rows]
    shown = tuple((name, seconds, f"{seconds:.1f} s, {seconds / total:.0%}") for name, seconds in spent)
    return Drawing("Where the time went", figures.bars("time", "Where the time went", shown), "")


def memory(plan: Plan) -> Drawing | None:
    """Return what the engine said it holds in the memory of each device, and what it leaves."""
    facts = plan.startup
    parts = [("weights", facts.weight_bytes), ("KV cache", facts.kv_cache_bytes), ("CUDA graphs", facts.graph_bytes)]
    known = [(name, size) for name, size in parts if size]
    gpus = plan.study.hardware.gpus
    held = sum(size for _, size in known)
    if known and gpus and plan.launch.devices and held < gpus[0].memory_bytes:
        known.append(("the rest of the device", gpus[0].memory_bytes - held))
    rows = tuple((name, size / 2**30, f"{size / 2**30:.2f} GiB") for name, size in known)
    where = f" of one {gpus[0].name}" if gpus and plan.launch.devices else ""
    return Drawing("Memory", figures.bars("memory", "Memory", rows), f"As the engine said{where}.") if rows else None


def lower_is_better(objective: Objective) -> bool:
    """Whether the objective is to be small."""
    return direction(objective) == "minimize"


def machine_levels(arm: Arm) -> tuple[LoadPoint, ...]:
    """Return the load levels of all replicas together: one of them was measured under its share."""
    by = arm.replicas
    if by == 1:
        return arm.levels
    return tuple(point.model_copy(update={
        "clients": None if point.clients is None else point.clients * by,
        "rate_per_s": None if point.rate_per_s is None else point.rate_per_s * by,
        "in_flight": point.in_flight * by,
        "output_tokens_per_s": _times(point.output_tokens_per_s, by),
        "requests_per_s": _times(point.requests_per_s, by),
    }) for point in arm.levels)


def state(row: TrialRow) -> str:
    """Return what became of a trial, in the words of the figures."""
    match row.outcome:
        case "measured":
            return "missed" if row.meets_slo is False else "measured"
        case "infeasible":
            return "ruled out"
        case _:
            return row.outcome


def _tried(plan: Plan) -> tuple[figures.Tried, ...]:
    better: Callable[[float, float], bool] = (
        (lambda new, old: new < old) if lower_is_better(plan.study.objective) else (lambda new, old: new > old))
    best: float | None = None
    found = []
    for row in plan.trials:
        new = row.score is not None and row.meets_slo is not False and (best is None or better(row.score.value, best))
        best = row.score.value if new and row.score is not None else best
        found.append(figures.Tried(
            row.number, state(row), row.score, row.predicted, new, row.key == plan.config.key and row.score is not None,
            row.start_s, row.own_s, row.seconds))
    return tuple(found)


def _name(plan: Plan, arm: Arm) -> str:
    return f"{arm.label}, deployed" if arm == numbers.deployed_arm(plan) else arm.label


def _objective(plan: Plan, objective: Objective | None = None) -> str:
    return ", ".join(words.OBJECTIVES[objective or plan.study.objective])


def _times(estimate: Estimate, by: int) -> Estimate:
    return Estimate(value=estimate.value * by, low=estimate.low * by, high=estimate.high * by, n=estimate.n)


def _order(value: str) -> tuple[int, float, str]:
    try:
        number = float(value)
    except ValueError:
        return 1, 0.0, value
    return (0, number, value) if math.isfinite(number) else (1, 0.0, value)
