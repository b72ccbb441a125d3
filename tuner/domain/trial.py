"""Trial: one configuration that was tried, and what came of it. Outcomes are values, matched exhaustively."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from tuner.domain.engine import EngineConfig, ServerMetrics, StartupFacts
from tuner.domain.record import Record


class Estimate(Record):
    """A measured number with its 95 % interval [low, high], from `n` independent pieces (requests, slices, rounds)."""

    value: float
    low: float
    high: float
    n: int

    def format(self, unit: str = "") -> str:
        """`12.3 [11.8, 12.9]`, for people."""
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]{' ' + unit if unit else ''}"


class Warn(StrEnum):
    """Everything that can make a measurement less trustworthy; `tuner.measure` holds the advice for each."""

    CLIENT_LIMITED = "client_limited"
    FEW_REQUESTS = "few_requests"
    NOT_STEADY = "not_steady"
    SATURATED = "saturated"
    TRUNCATED = "truncated"
    COUNT_MISMATCH = "count_mismatch"
    NO_USAGE = "no_usage"
    PREEMPTIONS = "preemptions"
    PREFIX_HITS = "prefix_hits"
    HOST_BUSY = "host_busy"
    ERRORS = "errors"
    THROTTLED = "throttled"
    LENGTHS_OFF = "lengths_off"


class MeasureWarning(Record):
    """One warning with the reading that caused it."""

    kind: Warn
    detail: str


class LatencySummary(Record):
    """One latency in ms: the mean and percentiles, each from all samples, each with its interval."""

    mean: Estimate
    p50: Estimate
    p90: Estimate
    p95: Estimate
    p99: Estimate


class GroupMeasurement(Record):
    """The latencies of one class of requests, one shared prefix or one adapter; times in ms."""

    requests: int
    failed: int
    ttft_ms: LatencySummary | None
    itl_ms: LatencySummary | None
    tpot_ms: LatencySummary | None
    e2e_ms: LatencySummary | None
    slo_attainment: Estimate | None = None


class Measurement(Record):
    """What one load run gave. Times in ms, rates per second; see `tuner.measure.requests` for every formula."""

    requests: int
    completed: int
    failed: int
    errors: dict[str, int] = Field(default_factory=dict)
    duration_s: float
    window_s: float
    input_tokens: int
    output_tokens: int
    output_tokens_per_s: Estimate
    total_tokens_per_s: Estimate
    requests_per_s: Estimate
    goodput_per_s: Estimate | None = None
    slo_attainment: Estimate | None = None
    ttft_ms: LatencySummary | None
    itl_ms: LatencySummary | None
    tpot_ms: LatencySummary | None
    e2e_ms: LatencySummary | None
    normalized_ms: LatencySummary | None = None
    """End-to-end latency per output token."""
    groups: dict[str, GroupMeasurement] = Field(default_factory=dict)
    """The same for each class of a mix, when there is more than one."""
    limits: dict[str, Estimate] = Field(default_factory=dict)
    """What each limit of the SLO came to, by `Limit.text`; a limit without samples is missing."""
    knee: Estimate | None = None
    """Highest load that kept the SLO, where levels were searched: clients or requests per second, as the objective
    says; the interval reaches from the highest level that kept it to the lowest that did not."""
    joules_per_token: Estimate | None = None
    """Energy of the GPUs per output token, where their power can be read."""
    client_lag_ms: float
    client_cpu_share: float
    stopped: str | None = None
    """Why the run ended before all its requests were done."""
    warnings: tuple[MeasureWarning, ...] = ()


class LoadPoint(Record):
    """One load level on one start of a server: `clients` of a closed loop, or requests at `rate_per_s`.

    `in_flight` is the mean number of requests under way (Little's law), latencies in ms.
    """

    clients: int | None = None
    rate_per_s: float | None = None
    in_flight: float
    requests: int
    output_tokens_per_s: Estimate
    requests_per_s: Estimate
    p95_ttft_ms: Estimate | None = None
    p95_itl_ms: Estimate | None = None
    limits: dict[str, Estimate] = Field(default_factory=dict)
    meets_slo: bool
    note: str = ""
    """Why the level was ended early, when it was."""

    @property
    def load(self) -> float:
        """The level in its own unit."""
        return float(self.clients or 0) if self.rate_per_s is None else self.rate_per_s


class FailureKind(StrEnum):
    """Why a server did not give a measurement. MACHINE says nothing about the configuration and is retried."""

    OUT_OF_MEMORY = "out_of_memory"
    BAD_FLAG = "bad_flag"
    UNSUPPORTED = "unsupported"
    NOT_READY = "not_ready"
    CRASHED = "crashed"
    HUNG = "hung"
    LOAD_BROKEN = "load_broken"
    MACHINE = "machine"


class Measured(Record):
    """The server ran and was measured."""

    kind: Literal["measured"] = "measured"
    measurement: Measurement
    startup: StartupFacts
    metrics_before: ServerMetrics | None = None
    metrics_after: ServerMetrics | None = None
    start_s: float
    peak_memory_bytes: int | None = None
    levels: tuple[LoadPoint, ...] = ()
    """Every load level that was run on this start, lowest first; empty when there was only the workload's own."""


class Dropped(Record):
    """Ended early, because it could not win any more: what was seen until then, which is no result.

    `rule` is `slo` (a limit is out of reach), `objective` (the incumbent is out of reach) or `level` (it does not keep
    the SLO at the incumbent's own load). `bound` is the interval of the objective when it was dropped, where one could
    be given, and `measurement` what the shortened run showed.
    """

    kind: Literal["dropped"] = "dropped"
    rule: Literal["slo", "objective", "level"]
    reason: str
    bound: Estimate | None = None
    measurement: Measurement | None = None
    startup: StartupFacts = StartupFacts()
    start_s: float
    levels: tuple[LoadPoint, ...] = ()


class Infeasible(Record):
    """Ruled out without a launch: it cannot work, and `reason` says why."""

    kind: Literal["infeasible"] = "infeasible"
    rule: str
    reason: str
    fix: str = ""


class Failed(Record):
    """The server refused, died, or did not hold the load. Never a number."""

    kind: Literal["failed"] = "failed"
    failure: FailureKind
    reason: str
    phase: str
    exit_code: int | None = None
    log_tail: str = ""


Outcome = Annotated[Measured | Dropped | Infeasible | Failed, Field(discriminator="kind")]


class Phase(Record):
    """How long one named part of a trial took. `own` is llmtune's own time, not the engine's or the load's."""

    name: str
    seconds: float
    own: bool = False


class Environment(Record):
    """The state of the machine around a trial."""

    load_1m: float | None = None
    cpu_steal_share: float | None = None
    host_cpu_share: float | None = None
    memory_available_bytes: int | None = None
    gpu_clocks_mhz: tuple[int, ...] = ()


class Trial(Record):
    """One configuration that was tried."""

    schema_version: Literal[1] = 1
    number: int
    purpose: Literal["default", "baseline", "recipe", "search", "verify"]
    config: EngineConfig
    outcome: Outcome
    phases: tuple[Phase, ...] = ()
    environment: Environment = Environment()
    attempts: int = 1
    evidence: str = ""
    """The trial's folder, relative to the study's."""
    predicted: Estimate | None = Field(default=None, exclude_if=lambda predicted: predicted is None)
    """What the model of this machine expected of the objective before the launch, from `n` trials. PREDICTED."""

    @property
    def counts(self) -> bool:
        """Whether it says something about a configuration that was launched, and so counts against the budget."""
        machine = isinstance(self.outcome, Failed) and self.outcome.failure is FailureKind.MACHINE
        return not machine and not isinstance(self.outcome, Infeasible)

    @property
    def own_seconds(self) -> float:
        """Time that llmtune itself added."""
        return sum(phase.seconds for phase in self.phases if phase.own)
