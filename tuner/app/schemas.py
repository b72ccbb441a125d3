"""JSON schemas of the files that people write, for editors and for review."""

from __future__ import annotations

from typing import Any

from tuner.app.ask import Ask
from tuner.domain.space import SearchSpace
from tuner.domain.workload import Workload


def input_schemas() -> dict[str, dict[str, Any]]:
    """Return file name to schema: the study file, the search space and the workload file."""
    space = SearchSpace.model_json_schema()
    for name in ("origin", "line"):
        for part in (space, *space["$defs"].values()):
            part["properties"].pop(name, None)
    study = Ask.model_json_schema()
    study["properties"]["schema_version"] = {"const": 1}
    workload = Workload.model_json_schema()
    workload["required"] = [name for name in workload["required"] if name != "name"]
    return {
        "study.schema.json": {"title": "llmtune study file", **study},
        "space.schema.json": {"title": "llmtune search space", **space},
        "workload.schema.json": {"title": "llmtune workload", **workload},
    }
