"""Finding: one thing that static validity has to say about a configuration."""

from __future__ import annotations

from typing import Literal

from tuner.domain.record import Record


class Finding(Record):
    """`error` cannot work; `warning` works, but not as it reads. `source` says where the rule was learnt."""

    rule: str
    severity: Literal["error", "warning"]
    reason: str
    fix: str = ""
    source: str = ""
