"""What an emitter must do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tuner.domain.plan import Plan


class Emitter(Protocol):
    """One output format. Pure: the same plan gives the same bytes."""

    name: str
    summary: str
    """What it writes, in a few words."""

    def refusal(self, plan: Plan) -> str | None:
        """Say why this plan cannot be written in this form; None when it can. `files` is then empty."""
        ...

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return relative path to text. Paths that end in `.sh` are written executable."""
        ...
