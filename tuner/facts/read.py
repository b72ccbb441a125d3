"""Reads the packaged data files. Each carries its source; none is read twice."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C one reads the same ten times as fast; not every build of PyYAML has it."""


@cache
def data(name: str) -> Any:  # noqa: ANN401  (each reader validates what it takes)
    """Return the parsed content of `facts/data/<name>` (JSON or YAML)."""
    text = resources.files("tuner.facts").joinpath("data", name).read_text(encoding="utf-8")
    return json.loads(text) if name.endswith(".json") else yaml.load(text, Loader=_LOADER)  # noqa: S506  (safe ones)


@cache
def bundled(folder: str) -> Path:
    """Return the directory of bundled files (`templates`, `search_spaces`), in a checkout or in a wheel."""
    package = Path(__file__).parents[1]
    checkout = package.parent
    return checkout / folder if (checkout / "pyproject.toml").is_file() else package / "_bundled" / folder
