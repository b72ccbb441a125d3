"""What the search knows of one configuration: the only view of the past that samplers get."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tuner.search.spaces import Choice

State = Literal["measured", "dropped", "failed", "ruled_out", "running"]


@dataclass(frozen=True)
class Observed:
    """One configuration and what came of it. `point` holds the open dimensions; scores are in the objective's unit.

    `measured`: `score` with its 95 % interval, and `violation`, the worst relative excess over a limit of the SLO (zero
    or less keeps it). `dropped`: ended early because it could not win; `low`..`high` is what was known then, if
    anything, and never to be compared with full measurements as if it were one. `failed`: the engine refused or died;
    `reason` is its root cause. `ruled_out`: never launched, a rule or the memory model speaks against it. `running`:
    somebody is at it.
    """

    point: dict[str, Choice]
    state: State
    score: float | None = None
    low: float | None = None
    high: float | None = None
    violation: float | None = None
    violations: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    start_s: float | None = None
    load_s: float | None = None
