"""The one way JSON that others wrote is read: whatever is wrong with it is a ValueError."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

_DEEPEST = 100
"""More than any file of this trade nests, and little enough for everything that walks it later."""


def parse_json(text: str | bytes, *, constant: Callable[[str], Any] | None = None) -> Any:  # noqa: ANN401  (JSON is dynamic)
    """Return the value that a JSON text holds; `constant` makes what stands for NaN and the infinities.

    Raises:
        ValueError: not JSON (then a json.JSONDecodeError, with a line), not UTF-8, nested too deeply, or a number with
            thousands of digits.

    """
    try:
        found = json.loads(text, parse_constant=constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level, depth = [found], 0
    while level:
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        level = [item for node in level for item in _inside(node)]
        depth += 1
    return found


def _inside(node: object) -> list[object]:
    inside = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [item for item in inside if isinstance(item, (dict, list))]
