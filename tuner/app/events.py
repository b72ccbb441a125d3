"""What a running study tells its onlooker. Plain values; the command line draws them, tests collect them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tuner.domain.study import StudySpec
from tuner.domain.trial import Estimate, Trial
from tuner.search.spaces import Closed


@dataclass(frozen=True)
class WorkPlan:
    """What is about to be done, before the first launch."""

    spec: StudySpec
    size: int
    ruled_out: int
    """Points that cannot work, out of the `counted` ones: all of a small space, a random sample of a large one."""
    counted: int
    by_rule: tuple[tuple[str, int, str], ...]
    """Rule, how many of the counted points it refuses first, and one of its reasons."""
    closed: tuple[Closed, ...]
    starts: int
    seconds: float
    known: int
    """Trials that an earlier run of this study has already done."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrialStarted:
    """A configuration is about to be launched. `index` of `total` counts starts."""

    label: str
    settings: str
    index: int
    total: int
    seconds_left: float | None
    device_hours: float | None = None
    """What the study's trials have taken so far, times the machine's devices."""
    expected: Estimate | None = None
    """What the objective should come to. PREDICTED."""


@dataclass(frozen=True)
class PhaseEntered:
    """The running trial entered a phase."""

    phase: str


@dataclass(frozen=True)
class LoadProgress:
    """How far the load of the running trial is."""

    done: int
    total: int
    output_tokens: int
    elapsed_s: float


@dataclass(frozen=True)
class TrialEnded:
    """A trial is over and stored."""

    trial: Trial
    score: Estimate | None
    unit: str
    meets_slo: bool
    best: bool


@dataclass(frozen=True)
class Note:
    """Something worth a line."""

    text: str


Event = WorkPlan | TrialStarted | PhaseEntered | LoadProgress | TrialEnded | Note
Listener = Callable[[Event], None]
