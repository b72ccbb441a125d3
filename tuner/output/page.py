"""report.html: the report as one page, without script, network or image.

Charts are rows of HTML whose positions are percentages: text keeps its size on a phone, a printer needs nothing, and
the same plan gives the same bytes everywhere, which a plotting library does not promise from one release to the next.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from tuner.domain.plan import Plan, TrialRow
from tuner.domain.trial import Estimate
from tuner.output import numbers, words
from tuner.output.render import render
from tuner.output.report import contents

_LOWER_IS_BETTER = ("p95_ttft", "p95_itl", "p95_e2e", "mean_e2e")
_REASONS = 3


def page(plan: Plan) -> str:
    """Return the text of report.html. The same plan gives the same bytes."""
    name, unit = words.OBJECTIVES[plan.study.objective]
    return render(
        "report.html.j2",
        **contents(plan),
        kind=plan.verdict.kind,
        plan_id=plan.plan_id,
        tool_version=plan.tool_version,
        better="lower" if plan.study.objective in _LOWER_IS_BETTER else "higher",
        objective_name=name,
        objective_unit=unit,
        tiles=_tiles(plan),
        comparisons=_comparisons(plan),
        timeline=_timeline(plan),
        failures=_failures(plan),
        effects=_effects(plan),
        time_bars=_time_bars(plan),
        memory=_memory(plan),
    )


def axis(values: Iterable[float], *, zero: bool) -> tuple[float, float]:
    """Return the ends of a scale that holds all values with room to spare, from zero if asked."""
    found = list(values) or [0.0, 1.0]
    low, high = (0.0 if zero else min(found)), max(found)
    room = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    return (0.0 if zero else low - room), high + room


def place(value: float, ends: tuple[float, float]) -> str:
    """Return the position of a value on a scale, in percent from the left."""
    low, high = ends
    return f"{min(100.0, max(0.0, 100 * (value - low) / (high - low))):.2f}"


def track(estimate: Estimate, ends: tuple[float, float]) -> dict[str, str]:
    """Return dot, start and width of an interval on a scale, in percent."""
    left, right = place(estimate.low, ends), place(estimate.high, ends)
    return {"dot": place(estimate.value, ends), "left": left, "width": f"{max(0.3, float(right) - float(left)):.2f}"}


def _tiles(plan: Plan) -> list[dict[str, str]]:
    """Return the few numbers that a reader looks for first."""
    label = numbers.label(plan)
    arm, row = numbers.deployed_arm(plan), numbers.deployed_trial(plan)
    tiles: list[dict[str, str]] = []
    score = arm.score if arm is not None else row.score if row is not None else None
    if score is not None:
        name, unit = words.OBJECTIVES[plan.study.objective]
        tiles.append({"name": f"{name}, {unit}", "value": f"{score.value:.4g}",
                      "note": f"{score.low:.4g} to {score.high:.4g} ({label}, n={score.n})"})
    if arm is not None and arm.ratio is not None:
        tiles.append({"name": f"against the {plan.verdict.reference}", "value": f"{arm.ratio.value:.4g} x",
                      "note": f"{arm.ratio.low:.4g} to {arm.ratio.high:.4g} ({label})"})
    if arm is not None:
        tiles += [
            {"name": reading.name.removeprefix("limit "), "note": f"{reading.unit} ({label})",
             "value": f"{reading.estimate.value:.4g}"}
            for reading in numbers.limit_readings(plan, arm) if reading.estimate is not None
        ]
    start = f"{plan.sizing.start_s:.0f} s"
    tiles.append({"name": "start", "value": start, "note": numbers.start_label(plan)})
    return tiles


def _comparisons(plan: Plan) -> list[dict[str, Any]]:
    """Return one chart for the objective and each limit of the SLO, one row an arm."""
    arms = [arm for arm in plan.arms if arm.rounds]
    charts: list[tuple[str, list[tuple[str, Estimate]], float | None]] = []
    name, unit = words.OBJECTIVES[plan.study.objective]
    charts.append((f"{name}, {unit}", [(arm.label, arm.score) for arm in arms], None))
    for index, limit in enumerate(plan.study.slo.limits):
        rows = [(arm.label, numbers.limit_readings(plan, arm)[index].estimate) for arm in arms]
        maximum = limit.maximum * 100 if limit.metric == "error_rate" else limit.maximum
        charts.append((limit.text, [(label, item) for label, item in rows if item is not None], maximum))
    return [_chart(plan, title, rows, limit) for title, rows, limit in charts if rows]


def _chart(plan: Plan, title: str, rows: Sequence[tuple[str, Estimate]], limit: float | None) -> dict[str, Any]:
    ends = axis([end for _, item in rows for end in (item.low, item.high)] + ([limit] if limit else []), zero=True)
    best = numbers.deployed_arm(plan)
    return {
        "title": title,
        "limit": None if limit is None else place(limit, ends),
        "limit_text": "" if limit is None else f"{limit:g}",
        "end": f"{ends[1]:.3g}",
        "rows": [{"label": label, "deployed": best is not None and best.label == label, "text": item.format(),
                  **track(item, ends)} for label, item in rows],
    }


def _timeline(plan: Plan) -> list[dict[str, Any]]:
    """Return one row a trial in the order they ran, with the best so far marked."""
    scored = [row.score for row in plan.trials if row.score is not None]
    ends = axis([end for item in scored for end in (item.low, item.high)], zero=True)
    rows: list[dict[str, Any]] = []
    best: float | None = None
    lower = plan.study.objective in _LOWER_IS_BETTER
    for row in plan.trials:
        found: dict[str, Any] = {
            "number": row.number, "purpose": row.purpose, "state": _state(row),
            "text": "", "track": None, "best": False,
            "start": "" if row.start_s is None else f"start {row.start_s:.0f} s",
            "deployed": row.key == plan.config.key,
        }
        if row.score is not None:
            value = row.score.value
            better = best is None or (value < best if lower else value > best)
            if better and row.meets_slo is not False:
                best, found["best"] = value, True
            found |= {"text": row.score.format(), "track": track(row.score, ends)}
        else:
            found["text"] = row.failure.value.replace("_", " ") if row.failure else row.outcome
        rows.append(found)
    return rows


def _state(row: TrialRow) -> str:
    if row.outcome != "measured":
        return row.outcome
    return "missed" if row.meets_slo is False else "measured"


def _failures(plan: Plan) -> list[dict[str, Any]]:
    """Return every way in which trials gave no measurement: how often, and examples of why."""
    groups: dict[str, list[TrialRow]] = defaultdict(list)
    for row in plan.trials:
        if row.outcome != "measured":
            groups[row.failure.value.replace("_", " ") if row.failure else "ruled out before a launch"].append(row)
    found = []
    for name, rows in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        reasons = Counter(words.public(plan, " ".join(row.reason.split()))[:300] for row in rows)
        found.append({"name": name, "count": numbers.count(len(rows), "trial"),
                      "numbers": ", ".join(str(row.number) for row in rows),
                      "reasons": [{"text": text, "count": times} for text, times in reasons.most_common(_REASONS)]})
    return found


def _effects(plan: Plan) -> list[dict[str, Any]]:
    """Return for each setting the mean score of the trials that had each of its values; the strongest first."""
    measured = [(row, row.score.value) for row in plan.trials if row.score is not None]
    flags = sorted({flag for row, _ in measured for flag in row.settings})
    found: list[tuple[float, dict[str, Any]]] = []
    ends = axis([score for _, score in measured], zero=True)
    for flag in flags:
        by_value: dict[str, list[float]] = defaultdict(list)
        for row, score in measured:
            by_value[row.settings.get(flag, "(engine decides)")].append(score)
        if len(by_value) < 2:
            continue
        means = {value: sum(scores) / len(scores) for value, scores in by_value.items()}
        rows = [{"value": words.public(plan, value), "mean": f"{means[value]:.4g}", "n": len(scores),
                 "bar": place(means[value], ends), "dots": [place(score, ends) for score in scores]}
                for value, scores in sorted(by_value.items(), key=lambda item: _order(item[0]))]
        found.append((max(means.values()) - min(means.values()), {"flag": flag, "rows": rows}))
    return [effect for _, effect in sorted(found, key=lambda item: (-item[0], item[1]["flag"]))]


def _order(value: str) -> tuple[int, float, str]:
    try:
        number = float(value)
    except ValueError:
        return 1, 0.0, value
    return (0, number, value) if math.isfinite(number) else (1, 0.0, value)


def _time_bars(plan: Plan) -> list[dict[str, str]]:
    """Return the share of each kind of time of all that the plan knows of."""
    rows = contents(plan)["times"]
    total = sum(float(row["total"]) for row in rows) or 1.0
    return [{**row, "share": f"{100 * float(row['total']) / total:.1f}"} for row in rows]


def _memory(plan: Plan) -> list[dict[str, str]]:
    """Return what the engine said it holds in the memory of its devices."""
    facts = plan.startup
    parts = [("weights", facts.weight_bytes), ("KV cache", facts.kv_cache_bytes), ("CUDA graphs", facts.graph_bytes)]
    known = [(name, size) for name, size in parts if size]
    total = sum(size for _, size in known)
    return [{"name": name, "size": f"{size / 2**30:.2f} GiB", "share": f"{100 * size / total:.1f}"}
            for name, size in known]
