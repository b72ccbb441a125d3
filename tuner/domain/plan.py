"""Plan: the answer of a study, complete in itself. `emit` needs nothing else."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tuner.domain.engine import EngineConfig, LaunchSpec, StartupFacts
from tuner.domain.record import Record, content_hash
from tuner.domain.study import StudySpec
from tuner.domain.trial import Estimate, FailureKind, LoadPoint, Measurement


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
    replicas: int = Field(default=1, ge=1)
    """Servers of this configuration that fill the machine; one of them was measured under its share of the load."""
    levels: tuple[LoadPoint, ...] = ()
    """Load levels that were swept on one start of this arm, lowest first."""


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
    outcome: Literal["measured", "dropped", "infeasible", "failed"]
    failure: FailureKind | None = None
    reason: str = ""
    score: Estimate | None = None
    meets_slo: bool | None = None
    start_s: float | None = None
    own_s: float | None = None
    seconds: float | None = None
    """Wall clock of the whole trial."""
    values: dict[str, Estimate] = Field(default_factory=dict)
    """Every objective of the study by name, when there are several; a dropped trial has none."""
    on_front: bool = False
    """Whether no other trial that keeps the SLO is better in every objective."""
    predicted: Estimate | None = None
    """What the model of this machine expected of the objective before the launch. PREDICTED."""


class Importance(Record):
    """How much of the objective's spread over the trials goes with one setting: 0 none of it, 1 all of it.

    From the search's own model of the objective, fitted to the trials; with few trials it is a hint.
    """

    flag: str
    share: float = Field(ge=0, le=1)


class NoiseFloor(Record):
    """How much the same configuration differs from itself between starts, as a share of the objective.

    `share` is the half width of the 95 % interval of a ratio of two means over `rounds` starts each, computed from the
    spread of the reference and the best over their own starts, `boots` in all. No gain below it is claimed.
    """

    share: float = Field(ge=0)
    boots: int
    rounds: int


class Soak(Record):
    """The winner under the study's load for longer, and once at the longest context that it promises.

    Changes are the last third of the time against the first, as shares; memory is the host memory of the process tree.
    """

    seconds: float
    requests: int
    failed: int
    throughput_change: float
    p95_ttft_change: float | None = None
    memory_growth_bytes: int | None = None
    preemptions: float | None = None
    fill_tokens: int | None = None
    """Tokens of the request that filled the whole context."""
    fill: str = ""
    """Why that request failed; empty when it was answered."""
    problems: tuple[str, ...] = ()


class Sizing(Record):
    """Numbers for the deployment files that come from measurement."""

    start_s: float
    """The longest measured start, in seconds."""
    start_n: int
    peak_memory_bytes: int | None = None
    """Host memory of the whole process tree."""
    replicas: int = Field(default=1, ge=1)
    """Servers of this configuration that the machine's devices hold."""
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
    importances: tuple[Importance, ...] = ()
    """Settings by how much the objective goes with them, most first."""
    noise: NoiseFloor | None = None
    soak: Soak | None = None
    warnings: tuple[str, ...] = ()
    command: str = Field(description="The normalised command that asks the same question again")

    @property
    def plan_id(self) -> str:
        """Hash of the deployed configuration and the question it answers.

        Fields at their defaults do not count, so that a field that a later version adds does not change old plans.
        """
        launch = self.launch.model_dump(mode="json", exclude_defaults=True)
        return content_hash([self.study.question, self.config.key, launch])
