"""report.html: the report as one page, without script or network. Its figures are SVG inside the page."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import Any

from tuner.domain.plan import Plan, TrialRow
from tuner.output import canvas, drawings, numbers, words
from tuner.output.render import render
from tuner.output.report import contents

_REASONS = 3
_FIGURE = re.compile(rb"<svg .*?</svg>", re.DOTALL)


def page(plan: Plan) -> str:
    """Return the text of report.html. The same plan and the same matplotlib give the same bytes."""
    shown = contents(plan)
    return render(
        "report.html.j2",
        **shown,
        kind=plan.verdict.kind,
        plan_id=plan.plan_id,
        tool_version=plan.tool_version,
        colours=canvas.style(),
        tiles=_tiles(plan),
        failures=_failures(plan),
        comparison=drawings.comparison(plan),
        curves=drawings.curves(plan),
        fronts=drawings.fronts(plan),
        timeline=drawings.timeline(plan),
        importance=drawings.importance(plan),
        effects=drawings.effects(plan),
        agreement=drawings.agreement(plan),
        time_spent=drawings.time_spent(shown["times"]),
        memory=drawings.memory(plan),
    )


def without_figures(content: bytes) -> bytes:
    """Return a page without the inside of its figures, which another release of matplotlib may place differently."""
    return _FIGURE.sub(b"<svg></svg>", content)


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
    if plan.sizing.knee_in_flight is not None and plan.measured:
        tiles.append({"name": "in flight at the knee", "value": f"{plan.sizing.knee_in_flight:.4g}",
                      "note": "highest load within the SLO, a server (MEASURED)"})
    if plan.sizing.replicas > 1:
        tiles.append({"name": "replicas", "value": str(plan.sizing.replicas), "note": "on the machine's devices"})
    tiles.append({"name": "start", "value": f"{plan.sizing.start_s:.0f} s", "note": numbers.start_label(plan)})
    return tiles


def _failures(plan: Plan) -> list[dict[str, Any]]:
    """Return every way in which trials gave no measurement: how often, and examples of why."""
    groups: dict[str, list[TrialRow]] = defaultdict(list)
    for row in plan.trials:
        if row.outcome != "measured":
            groups[_group(row)].append(row)
    found = []
    for name, rows in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        reasons = Counter(words.public(plan, " ".join(row.reason.split()))[:300] for row in rows)
        found.append({"name": name, "count": numbers.count(len(rows), "trial"),
                      "numbers": ", ".join(str(row.number) for row in rows),
                      "reasons": [{"text": text, "count": times} for text, times in reasons.most_common(_REASONS)]})
    return found


def _group(row: TrialRow) -> str:
    if row.failure:
        return row.failure.value.replace("_", " ")
    return {"dropped": "dropped early: it could not win any more", "infeasible": "ruled out before a launch"}.get(
        row.outcome, row.outcome)
