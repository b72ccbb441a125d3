"""What a study found beside its verdict, as rows of text: load levels, front, settings, noise, soak, predictions."""

from __future__ import annotations

from typing import Any

from tuner.domain.plan import NoiseFloor, Plan, Soak, TrialRow
from tuner.domain.trial import Estimate, LoadPoint
from tuner.output import numbers, words
from tuner.output.drawings import lower_is_better, machine_levels

_REPLICAS = ("The objective and the load levels of a configuration with several replicas are those of all of them "
             "together. One server was measured under its share, and the other metrics are that server's.")


def tables(plan: Plan) -> dict[str, Any]:
    """Return the rows of every such table, empty where the plan has nothing to say."""
    return {
        "levels": _levels(plan),
        "level_limits": _level_limits(plan),
        "front": _front(plan),
        "front_names": [", ".join(words.OBJECTIVES[name]) for name in (plan.study.objective, *plan.study.also)],
        "importances": [(one.flag, f"{one.share:.0%}") for one in plan.importances],
        "noise": noise_words(plan.noise) if plan.noise else "",
        "soak": _soak(plan.soak) if plan.soak else [],
        "soak_problems": [words.public(plan, text) for text in plan.soak.problems] if plan.soak else [],
        "predictions": _predictions(plan),
        "replicas_note": _REPLICAS if any(arm.replicas > 1 for arm in plan.arms) else "",
    }


def noise_words(noise: NoiseFloor) -> str:
    """Say from where on a gain is claimed."""
    return (f"No gain below {noise.share:.1%} is claimed: by that much a configuration differs from itself between "
            f"starts (half of the 95 % interval of a ratio over {numbers.count(noise.rounds, 'round')}, from the "
            f"spread of {numbers.count(noise.boots, 'start')}; MEASURED).")


def _levels(plan: Plan) -> list[dict[str, Any]]:
    """Return one row a load level, arm by arm."""
    keys = _level_limits(plan)
    rows = []
    for arm in numbers.arms(plan):
        for point in machine_levels(arm):
            row = {"arm": arm.label, "load": _load(point), "in_flight": f"{point.in_flight:.3g}",
                   "throughput": _cell(point.output_tokens_per_s), "ttft": _cell(point.p95_ttft_ms),
                   "itl": _cell(point.p95_itl_ms), "slo": "yes" if point.meets_slo else "no", "note": point.note,
                   "limits": [_cell(_shown(key, point.limits.get(key))) for key in keys]}
            rows.append({**row, "note": words.public(plan, point.note)})
    return rows


def _level_limits(plan: Plan) -> list[str]:
    """Return the limits that the levels were judged by and that no other column shows."""
    taken = {key for arm in plan.arms for point in arm.levels for key in point.limits}
    shown = {"p95 ttft", "p95 itl"}
    return [limit.text for limit in plan.study.slo.limits
            if limit.text in taken and limit.text.partition("<=")[0] not in shown]


def _shown(key: str, found: Estimate | None) -> Estimate | None:
    return found.model_copy(update={name: getattr(found, name) * 100 for name in ("value", "low", "high")}) if (
        found is not None and key.startswith("error_rate")) else found


def _load(point: LoadPoint) -> str:
    return f"{point.clients} clients" if point.rate_per_s is None else f"{point.rate_per_s:g} requests/s"


def _front(plan: Plan) -> list[dict[str, Any]]:
    names = (plan.study.objective, *plan.study.also)
    if len(names) == 1:
        return []
    rows = [row for row in plan.trials if row.on_front]
    rows.sort(key=lambda row: _order(row, names[0], lower_is_better(names[0])))
    return [{"number": f"{row.number}{', deployed' if row.key == plan.config.key else ''}",
             "cells": [_cell(row.values.get(name)) for name in names],
             "settings": [words.public(plan, f"{flag}={value}") for flag, value in sorted(row.settings.items())]}
            for row in rows]


def _order(row: TrialRow, name: str, lower: bool) -> float:
    value = row.values[name].value if name in row.values else 0.0
    return value if lower else -value


def _soak(soak: Soak) -> list[tuple[str, str]]:
    """Return what the long run and the longest request came to."""
    rows = [
        ("time under load", f"{soak.seconds:.0f} s"),
        ("requests", f"{soak.requests}, {soak.failed} of them failed"),
        ("throughput, last third against first", f"{soak.throughput_change:+.1%}"),
    ]
    if soak.p95_ttft_change is not None:
        rows.append(("p95 TTFT, last third against first", f"{soak.p95_ttft_change:+.1%}"))
    if soak.memory_growth_bytes is not None:
        rows.append(("host memory, last third against first", f"{soak.memory_growth_bytes / 2**20:+.0f} MiB"))
    if soak.preemptions is not None:
        rows.append(("preemptions", f"{soak.preemptions:g}"))
    if soak.fill_tokens is not None:
        said = f"failed: {' '.join(soak.fill.split())}" if soak.fill else "answered"
        rows.append((f"one request that fills the context, {soak.fill_tokens} tokens", said))
    return rows


def _predictions(plan: Plan) -> list[dict[str, str]]:
    """Return what was expected of each trial and what came."""
    rows = []
    for row in plan.trials:
        if row.predicted is None:
            continue
        measured = row.score
        off = f"{row.predicted.value / measured.value - 1:+.1%}" if measured is not None and measured.value else "-"
        rows.append({"number": str(row.number), "predicted": f"PREDICTED {row.predicted.format()}",
                     "measured": f"MEASURED {measured.format()}" if measured else row.outcome, "error": off})
    return rows


def _cell(estimate: Estimate | None) -> str:
    return "-" if estimate is None else estimate.format()
