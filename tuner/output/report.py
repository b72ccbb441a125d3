"""report.md and what report.html shares with it: the verdict, what it rests on, and how to get it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tuner.domain.plan import Arm, Plan, TrialRow
from tuner.domain.trial import Estimate
from tuner.output import numbers, study_tables, words
from tuner.output.render import render

_REASON_LENGTH = 300


def report(plan: Plan) -> str:
    """Return the text of report.md, readable as it is. The same plan gives the same bytes."""
    return render("report.md.j2", **contents(plan))


def contents(plan: Plan) -> dict[str, Any]:
    """Return everything that a report shows, as plain text that nothing is escaped in yet."""
    unit = words.OBJECTIVES[plan.study.objective][1]
    reference = plan.verdict.reference
    return {
        "title": f"{plan.study.model.name} on {plan.config.engine} {plan.config.version}: study {plan.study.name}",
        "verdict_words": words.VERDICTS[plan.verdict.kind],
        "verdict": words.public(plan, plan.verdict.text),
        "standing": _standing(plan),
        "doubts": words.doubts(plan),
        "label": numbers.label(plan),
        "change_from": "baseline" if reference == "baseline" else "engine's default",
        "changes": [_change(plan, index) for index in range(len(plan.changes))],
        "warnings": [words.public(plan, text) for text in plan.warnings],
        "arms": [_arm(plan, arm) for arm in numbers.arms(plan)],
        "metrics": _metrics(plan),
        "deployed_score": _deployed_score(plan),
        "question": _question(plan),
        "objective": f"{words.OBJECTIVES[plan.study.objective][0]}, {unit}",
        "trial_counts": _trial_counts(plan),
        "trials": [_trial(plan, row) for row in plan.trials],
        "times": _times(plan),
        **study_tables.tables(plan),
        "environment": _environment(plan),
        "command": words.public(plan, plan.command),
        "reproduce": "`llmtune emit` on this directory writes every file here again; with `--check` it says whether "
                     "they still are what `plan.json` says.",
    }


def _standing(plan: Plan) -> str:
    if not plan.measured:
        return "Every performance number here is PREDICTED. Nothing was measured."
    verified = numbers.deployed_arm(plan)
    parts = ["Every performance number here is MEASURED, on the hardware and under the workload below."]
    if verified is None:
        parts.append("The deployed configuration was not verified on fresh servers.")
    if not plan.complete:
        parts.append("The study is not complete: the same command goes on with it.")
    return " ".join(parts)


def _change(plan: Plan, index: int) -> dict[str, str | None]:
    change = plan.changes[index]
    return {"flag": change.flag, "before": change.before, "after": change.after, "why": words.public(plan, change.why)}


def _arm(plan: Plan, arm: Arm) -> dict[str, Any]:
    marks = [arm.label, f"trial {arm.trial}"]
    if arm == numbers.deployed_arm(plan):
        marks.append("deployed")
    if arm.replicas > 1:
        marks.append(f"{arm.replicas} replicas")
    return {"title": ", ".join(marks), "failures": [_short(words.public(plan, text)) for text in arm.failures]}


def _metrics(plan: Plan) -> list[dict[str, Any]]:
    """Return one row a metric, one cell an arm."""
    arms = numbers.arms(plan)
    if not arms:
        return []
    table = [numbers.readings(plan, arm) for arm in arms]
    rows = [
        {"name": f"{reading.name}, {reading.unit}", "cells": [_cell(column[index].estimate) for column in table]}
        for index, reading in enumerate(table[0])
        if any(column[index].estimate is not None for column in table)
    ]
    reference = plan.verdict.reference
    if any(arm.ratio for arm in arms):
        rows.insert(1, {"name": f"ratio to {reference}", "cells": [_cell(arm.ratio) for arm in arms]})
    facts: list[tuple[str, Callable[[Arm], str]]] = [
        ("within the SLO", lambda arm: "yes" if arm.meets_slo else "no"),
        ("rounds", lambda arm: str(len(arm.rounds))),
        ("requests measured", lambda arm: str(sum(run.requests for run in arm.rounds))),
        ("requests failed", lambda arm: str(sum(run.failed for run in arm.rounds))),
        ("starts, s", lambda arm: ", ".join(f"{start:.1f}" for start in arm.start_s) or "none"),
        ("measurement warnings", _measure_warnings),
        ("ended early", _ended_early),
    ]
    return rows + [{"name": name, "cells": [say(arm) for arm in arms]} for name, say in facts]


def _measure_warnings(arm: Arm) -> str:
    counts = Counter(warning.kind.value for run in arm.rounds for warning in run.warnings)
    return ", ".join(f"{kind} in {numbers.count(times, 'round')}" for kind, times in sorted(counts.items())) or "none"


def _ended_early(arm: Arm) -> str:
    return "; ".join(_short(run.stopped) for run in arm.rounds if run.stopped) or "no"


def _cell(estimate: Estimate | None) -> str:
    return "-" if estimate is None else f"{estimate.format()} n={estimate.n}"


def _deployed_score(plan: Plan) -> str:
    row = numbers.deployed_trial(plan)
    if row is None or row.score is None:
        return ""
    name, unit = words.OBJECTIVES[plan.study.objective]
    return f"{numbers.label(plan)}: {name} {row.score.format(unit)}, n={row.score.n}, trial {row.number}"


def _question(plan: Plan) -> list[dict[str, str]]:
    study = plan.study
    pins = ", ".join(f"{pin.flag}={pin.value}" for pin in study.pins) or "none"
    values = {
        "model": words.model_words(study),
        "workload": words.workload_words(study.workload),
        "slo": words.slo_words(study),
        "objective": words.OBJECTIVES[study.objective][0],
        "space": f"{numbers.count(len(study.space.settings), 'setting')}, "
                 f"at most {study.space.size} combinations{f', {study.space.origin}' if study.space.origin else ''}",
        "pins": pins,
        "trials": str(study.budget.trials),
        "seed": str(study.seed),
        "study": f"{study.name}, question {study.question}",
    }
    rows = [{"name": name, "value": value, "source": study.sources.get(name, "")} for name, value in values.items()]
    rows += [{"name": name, "value": "(see plan.json)", "source": source}
             for name, source in sorted(study.sources.items()) if name not in values]
    return [{key: words.public(plan, text) for key, text in row.items()} for row in rows]


def _trial(plan: Plan, row: TrialRow) -> dict[str, Any]:
    outcome = row.outcome if row.failure is None else f"{row.outcome}: {row.failure.value}"
    return {
        "number": str(row.number),
        "purpose": row.purpose,
        "outcome": outcome,
        "score": _cell(row.score),
        "slo": {True: "yes", False: "no", None: "-"}[row.meets_slo],
        "settings": [words.public(plan, f"{flag}={value}") for flag, value in sorted(row.settings.items())],
        "reason": _short(words.public(plan, row.reason)),
    }


def _trial_counts(plan: Plan) -> str:
    counts: Counter[str] = Counter(row.outcome for row in plan.trials)
    kinds = ("measured", "dropped", "failed", "infeasible")
    said = ", ".join(f"{counts[kind]} {kind}" for kind in kinds if counts[kind])
    return f"{numbers.count(len(plan.trials), 'trial')}: {said}."


def _times(plan: Plan) -> list[dict[str, str]]:
    """Return sums over everything the plan has times of."""
    found = {
        "engine starts of trials": [row.start_s for row in plan.trials if row.start_s is not None],
        "load and the rest of trials": [
            max(0.0, row.seconds - (row.start_s or 0.0) - (row.own_s or 0.0))
            for row in plan.trials if row.seconds is not None],
        "engine starts of the verification": [start for arm in plan.arms for start in arm.start_s],
        "load of the verification": [run.duration_s for arm in plan.arms for run in arm.rounds],
        "llmtune itself, in trials": [row.own_s for row in plan.trials if row.own_s is not None],
    }
    return [
        {"name": name, "total": f"{sum(times):.1f}", "count": str(len(times)), "longest": f"{max(times):.2f}"}
        for name, times in found.items() if times
    ]


def _environment(plan: Plan) -> list[tuple[str, str]]:
    hardware = plan.study.hardware
    facts = plan.startup
    rows = [
        ("hardware", words.hardware_words(hardware)),
        ("engine", f"{words.engine_words(plan)}, build {plan.study.engine.build}"),
        ("llmtune", f"{plan.tool_version}, plan {plan.plan_id}"),
        (f"start ({numbers.start_label(plan)})", numbers.start_words(plan)),
    ]
    if hardware.cpu_features:
        rows.append(("CPU features", ", ".join(hardware.cpu_features)))
    said = numbers.label(plan)
    optional: list[tuple[str, object]] = [
        (f"peak memory ({said})", _gib(plan.sizing.peak_memory_bytes)),
        ("KV cache, as the engine said", f"{facts.kv_cache_tokens} tokens" if facts.kv_cache_tokens else None),
        ("weights, as the engine said", _gib(facts.weight_bytes)),
        ("graphs, as the engine said", _gib(facts.graph_bytes)),
        ("attention backend, as the engine said", facts.attention_backend),
        ("resolved, as the engine said", ", ".join(f"{k}={v}" for k, v in sorted(facts.resolved.items()))),
    ]
    rows += [(name, str(value)) for name, value in optional if value]
    rows += [("engine warning", _short(text)) for text in facts.warnings]
    return [(words.public(plan, name), words.public(plan, text)) for name, text in rows]


def _gib(size: int | None) -> str | None:
    return None if size is None else f"{size / 2**30:.2f} GiB"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _REASON_LENGTH else f"{line[:_REASON_LENGTH]} ..."
