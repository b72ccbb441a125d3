"""What an emitter must do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tuner.domain.plan import Plan


class Emitter(Protocol):
    """One output format. Pure: the same plan gives the same bytes."""

    name: str

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return relative path to text. Paths that end in `.sh` are written executable."""
        ...
