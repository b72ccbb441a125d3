"""Rows of facts that hold from one release on."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from packaging.version import Version

from tuner.facts.flags import parse_version
from tuner.facts.read import data


@lru_cache(maxsize=512)
def release(version: str) -> Version:
    """Read a release number, remembering it: a search asks for the same few thousands of times.

    Raises:
        EngineError: not a version.

    """
    return parse_version(version)


@lru_cache(maxsize=512)
def holding(file: str, table: str, version: str | None) -> dict[str, Any]:
    """Return the row of a table in a facts file that holds for a release.

    It is the last whose `since` the release has reached; the newest when no release is named; the first for a release
    before all of them.
    """
    rows: list[dict[str, Any]] = data(file)[table]
    if version is None:
        return rows[-1]
    reached = [row for row in rows if release(str(row["since"])) <= release(version)]
    return reached[-1] if reached else rows[0]
