"""The committed JSON schema of plan.json."""

from __future__ import annotations

from tuner.domain.plan import Plan
from tuner.output.quoting import dump_json


def plan_schema() -> str:
    """Return the text of `docs/schemas/plan.schema.json`."""
    schema = Plan.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "llmtune plan"
    return dump_json(schema)
