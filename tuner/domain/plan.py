"""Plan: the answer of a study, complete in itself. `emit` needs nothing else."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tuner.domain.engine import EngineConfig, LaunchSpec, StartupFacts
from tuner.domain.record import Record, content_hash
from tuner.domain.study import StudySpec
from tuner.domain.trial import Estimate, FailureKind, Measurement


class Change(Record):
    """One setting of the winner that differs from the engine's default or the user's baseline."""

    flag: str
    before: str | None
    after: str | None
    why: str = ""


class Arm(Record):
    """One configuration in the verification: every round on a fresh server, rounds of all arms interleaved."""

    label: Literal["default", "baseline", "best", "runner-up"]
    trial: int
    config: EngineConfig
    score: Estimate
    """The objective over all rounds."""
    ratio: Estimate | None = None
    """Objective divided by the reference arm's in the same round: geometric mean and interval over rounds."""
    meets_slo: bool
    rounds: tuple[Measurement, ...]
    start_s: tuple[float, ...]
    failures: tuple[str, ...] = ()


class Verdict(Record):
    """What may be said. `no_clear_winner` keeps the configuration with the fewest changed settings."""

    kind: Literal["winner", "no_clear_winner", "keep_baseline", "nothing_meets_slo", "not_verified"]
    text: str
    reference: Literal["default", "baseline", "none"]


class TrialRow(Record):
    """One line of the study's history in the plan."""

    number: int
    purpose: str
    key: str
    settings: dict[str, str]
    outcome: Literal["measured", "infeasible", "failed"]
    failure: FailureKind | None = None
    reason: str = ""
    score: Estimate | None = None
    meets_slo: bool | None = None
    start_s: float | None = None
    own_s: float | None = None


class Sizing(Record):
    """Numbers for the deployment files that come from measurement."""

    start_s: float
    """The longest measured start, in seconds."""
    start_n: int
    peak_memory_bytes: int | None = None
    """Host memory of the whole process tree."""
    knee_in_flight: float | None = Field(default=None, gt=0)
    """Requests in flight at the highest load that still kept the SLO, from a sweep of load levels."""


class Plan(Record):
    """The answer. `measured` is False for a plan made by prediction alone; every header then says PREDICTED."""

    schema_version: Literal[1] = 1
    tool_version: str
    complete: bool
    measured: bool
    study: StudySpec
    config: EngineConfig
    launch: LaunchSpec
    startup: StartupFacts = StartupFacts()
    sizing: Sizing
    verdict: Verdict
    arms: tuple[Arm, ...] = ()
    changes: tuple[Change, ...] = ()
    trials: tuple[TrialRow, ...] = ()
    warnings: tuple[str, ...] = ()
    command: str = Field(description="The normalised command that asks the same question again")

    @property
    def plan_id(self) -> str:
        """Hash of the deployed configuration and the question it answers.

        Fields at their defaults do not count, so that a field that a later version adds does not change old plans.
        """
        launch = self.launch.model_dump(mode="json", exclude_defaults=True)
        return content_hash([self.study.question, self.config.key, launch])
