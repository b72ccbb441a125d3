"""Finding: one thing that static validity has to say about a configuration; Judged: what the engine itself says."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tuner.domain.engine import Value
from tuner.domain.record import Record


class Finding(Record):
    """`error` cannot work; `warning` works, but not as it reads. `source` says where the rule was learnt."""

    rule: str
    severity: Literal["error", "warning"]
    reason: str
    fix: str = ""
    source: str = ""


class Judged(Record):
    """The verdict of the engine's own configuration layer, in its own words. Kernels and memory are not judged.

    `cannot_say`: it could not be asked, or failed over something else than the settings; that speaks neither way.
    """

    verdict: Literal["accepted", "refused", "cannot_say"]
    reason: str = ""
    resolved: dict[str, Value] = Field(default_factory=dict)
    """For `accepted`: what a server would use, by flag, the engine's defaults included."""
