"""Where a file came from: the provenance that stands at the top of everything that is emitted.

No wall-clock time and no path of the machine that tuned: the same plan gives the same bytes everywhere.
"""

from __future__ import annotations

from tuner.domain.plan import Plan
from tuner.output import numbers, words

_WIDTH = 10
_HEADLINE = ("output throughput", "p95 TTFT", "p95 ITL", "p95 TPOT")


def provenance(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return label and text of each line. Lines with measured or predicted numbers are labelled so."""
    study = plan.study
    lines = [
        ("tool", f"llmtune {plan.tool_version}"),
        ("plan", f"{plan.plan_id}, study {study.name}, question {study.question}"),
        ("model", words.model_words(study)),
        ("engine", words.engine_words(plan)),
        ("hardware", words.hardware_words(study.hardware)),
        ("workload", words.workload_words(study.workload)),
        ("SLO", words.slo_words(study)),
        ("objective", words.OBJECTIVES[study.objective][0]),
        *([("replicas", numbers.replica_words(plan))] if plan.sizing.replicas > 1 else []),
        ("verdict", f"{plan.verdict.kind}{'' if plan.complete else ' (study not complete)'}: {plan.verdict.text}"),
        *_number_lines(plan),
        ("command", plan.command),
    ]
    return tuple((label, words.public(plan, text)) for label, text in lines)


def header_lines(plan: Plan) -> tuple[str, ...]:
    """Return the header as lines of plain text, without comment signs."""
    lines = [*_first_lines(plan), *words.doubts(plan)]
    for label, text in provenance(plan):
        if label == "tool":
            continue
        first, *rest = text.split("\n")
        lines.append(f"{label:<{_WIDTH}} {first}".rstrip())
        lines += [f"{'':<{_WIDTH}} | {line}" for line in rest]
    return tuple(lines)


def short_header(plan: Plan, where: str) -> tuple[str, ...]:
    """Return a header for a file beside others, the first of which (`where`) holds the whole one."""
    return (
        *_first_lines(plan), *words.doubts(plan),
        f"Model, engine, hardware, workload and {numbers.label(plan)} numbers: see {where}.",
    )


def written_by(plan: Plan) -> str:
    """Return the line that names tool and plan."""
    return f"Written by llmtune {plan.tool_version} from plan {plan.plan_id}."


def _first_lines(plan: Plan) -> tuple[str, ...]:
    return written_by(plan), "Do not edit: `llmtune emit` writes this file again from plan.json."


def _number_lines(plan: Plan) -> list[tuple[str, str]]:
    label = numbers.label(plan)
    arm = numbers.deployed_arm(plan)
    lines: list[tuple[str, str]] = []
    if arm is not None:
        score, *others = numbers.readings(plan, arm)
        lines.append((label, f"{score.name} {score.text}"))
        lines += [(label, f"{reading.name} {reading.text}") for reading in others
                  if (reading.name in _HEADLINE or reading.name.startswith("limit ")) and reading.estimate is not None]
        if arm.ratio is not None:
            rounds = numbers.count(len(arm.rounds), "round")
            lines.append((label, f"ratio to {plan.verdict.reference} {arm.ratio.format()}, {rounds}"))
    elif (row := numbers.deployed_trial(plan)) is not None and row.score is not None:
        name, unit = words.OBJECTIVES[plan.study.objective]
        lines.append((label, f"{name} {row.score.format(unit)}, n={row.score.n}, 1 trial, not verified"))
    lines.append((numbers.start_label(plan), numbers.start_words(plan)))
    return lines
