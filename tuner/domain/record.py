"""The base of every record, and the one way records become canonical text and hashes."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError


class Record(BaseModel):
    """A frozen value. Unknown keys are errors, so a typo in a file never passes silently."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_inf_nan="null", revalidate_instances="never", defer_build=True
    )


class Stated(Record):
    """A record that people write: its numbers are finite."""

    model_config = ConfigDict(allow_inf_nan=False)


def canonical_json(value: object) -> str:
    """One text per value: sorted keys, no spaces, no NaN; `true` and `1` stay different."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def content_hash(value: object, length: int = 12) -> str:
    """Hex digest (SHA-256, shortened) of `canonical_json(value)`."""
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()[:length]


def problems(error: ValidationError, whole: str) -> str:
    """Say the first three things that do not fit, each with the field's path; `whole` names the record itself."""
    found = [f"{'.'.join(map(str, item['loc'])) or whole}: {item['msg'].removeprefix('Value error, ')}"
             for item in error.errors(include_url=False)]
    rest = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
    return "; ".join(found[:3]) + rest


def _plain(value: object) -> Any:  # noqa: ANN401  (JSON is dynamic by nature)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
