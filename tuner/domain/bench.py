"""BenchResult: what loading one running server gave, level by level."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tuner.domain.engine import ServerMetrics
from tuner.domain.record import Record
from tuner.domain.slo import Slo
from tuner.domain.trial import Environment, Measurement
from tuner.domain.workload import Workload


class GpuReading(Record):
    """One GPU at one moment: power in W, temperature in degrees Celsius, utilization 0..1. None: it does not say.

    `held_back` names what keeps its clocks below what was asked for: `power_cap`, `thermal`, `power_brake`.
    """

    clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    utilization: float | None = None
    memory_bytes: int | None = None
    held_back: tuple[str, ...] = ()


class Reading(Record):
    """The server's own gauges and the machine's at one moment of a run, `at_s` seconds after its start."""

    at_s: float
    server: ServerMetrics
    gpus: tuple[GpuReading, ...] = ()
    cpu_share: float | None = None
    memory_available_bytes: int | None = None


class Level(Record):
    """One load level: its workload (which holds the arrivals), the measurement, and the server's own counts."""

    label: str
    workload: Workload
    measurement: Measurement
    meets_slo: bool
    before: ServerMetrics
    after: ServerMetrics
    readings: tuple[Reading, ...] = ()
    environment: Environment = Environment()
    client_workers: int = 1
    stopped: str | None = None
    requests_file: str = ""
    first_words: dict[str, str] = Field(default_factory=dict, exclude_if=lambda words: not words)
    """What the server said, or what went wrong in words, at the first failure of each kind."""

    @property
    def queue_ms(self) -> float | None:
        """Mean time that the server's own requests waited to be scheduled, in ms, by its counters."""
        return _scaled(_share(self.before, self.after, "queue_s", "queue_left"), 1000.0)

    @property
    def accepted_share(self) -> float | None:
        """Share of the drafted tokens that speculation kept, by the server's counters."""
        return _share(self.before, self.after, "accepted_tokens", "draft_tokens")

    @property
    def concurrency(self) -> int | None:
        """Clients of a closed loop, None for other arrivals."""
        return getattr(self.workload.arrivals, "concurrency", None)


def _share(before: ServerMetrics, after: ServerMetrics, part: str, whole: str) -> float | None:
    readings = [getattr(reading, name) for reading in (before, after) for name in (part, whole)]
    if any(reading is None for reading in readings):
        return None
    gained = readings[3] - readings[1]
    return float((readings[2] - readings[0]) / gained) if gained > 0 else None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


class BenchResult(Record):
    """Everything about one call of `bench`. The URL holds no credentials."""

    schema_version: Literal[1] = 1
    tool_version: str
    url: str
    model: str
    dialect: str
    api: Literal["completions", "chat"]
    seed: int
    slo: Slo = Slo()
    levels: tuple[Level, ...]
    interrupted: bool = False
    """Whether the user stopped it: what is here is the finished part."""
    knee: str | None = None
    """Label of the highest level that keeps the SLO, when levels were swept."""
