"""Rows of facts that hold from one release on."""

from __future__ import annotations

from typing import Any

from tuner.facts.flags import parse_version


def holding(rows: list[dict[str, Any]], version: str | None) -> dict[str, Any]:
    """Return the row that holds for a release: the last whose `since` it has reached; the newest when not known.

    A release before the first row gets the first.
    """
    if version is None:
        return rows[-1]
    wanted = parse_version(version)
    reached = [row for row in rows if parse_version(str(row["since"])) <= wanted]
    return reached[-1] if reached else rows[0]
