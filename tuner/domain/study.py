"""StudySpec: the frozen question that a study answers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tuner.domain.engine import EngineConfig, Setting
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.domain.record import Record, content_hash
from tuner.domain.slo import Slo
from tuner.domain.space import SearchSpace
from tuner.domain.workload import Workload

Objective = Literal[
    "output_tokens_per_s",
    "requests_per_s",
    "goodput_per_s",
    "max_concurrency",
    "max_rate",
    "p95_ttft",
    "p95_itl",
    "p95_e2e",
    "mean_e2e",
    "cost_per_mtok",
    "joules_per_token",
]
KNEES = ("max_concurrency", "max_rate")
"""Objectives that are a load level: the highest that keeps the SLO, found by a search over levels on one start."""


class EngineInstall(Record):
    """An engine found on this machine: how it is started and which version it is. `python` runs its own interpreter."""

    engine: str
    version: str
    build: Literal["cuda", "cpu", "unknown"] = "unknown"
    program: tuple[str, ...]
    image: str | None = None


class Budget(Record):
    """When to stop searching. `trials` counts configurations that were launched, the default and baseline included.

    `device_hours` counts every device of the machine for as long as the study runs. `soak_s` is how long the winner is
    loaded after the verification; 0 leaves that out. With `accept_busy` a measurement that other programs may have
    disturbed is taken, with its warning, and not done again.
    """

    trials: int = Field(ge=1)
    seconds: float | None = Field(default=None, gt=0)
    finalists: int = Field(default=2, ge=1)
    verify_rounds: int = Field(default=3, ge=2)
    repeats: int = Field(default=1, ge=1)
    start_timeout_s: float | None = Field(default=None, gt=0)
    device_hours: float | None = Field(default=None, gt=0)
    max_failures: int | None = Field(default=None, ge=1)
    soak_s: float = Field(default=0.0, ge=0)
    accept_busy: bool = False


class StudySpec(Record):
    """The question. Two specs with the same `question` may share a study; budgets may differ between runs."""

    schema_version: Literal[1] = 1
    name: str
    model: ModelSpec
    hardware: Hardware
    engine: EngineInstall
    workload: Workload
    slo: Slo = Slo()
    objective: Objective = "output_tokens_per_s"
    also: tuple[Objective, ...] = ()
    """Further objectives: the first one decides, and the Pareto front over all of them is kept and shown."""
    price_per_hour: float | None = Field(default=None, gt=0)
    """USD for one device and hour, for `cost_per_mtok`."""
    space: SearchSpace
    pins: tuple[Setting, ...] = ()
    baseline: EngineConfig | None = None
    budget: Budget
    seed: int = 0
    sources: dict[str, str] = Field(default_factory=dict)
    """Where each value came from: `option`, `study.yaml:12`, `preset chat`, `default`, `detected`."""

    @property
    def question(self) -> str:
        """Hash of what must be equal for two runs to belong to the same study."""
        return content_hash(
            [
                self.model.model_dump(mode="json", exclude={"requested"}),
                [self.hardware.kind, [[gpu.name, gpu.memory_bytes] for gpu in self.hardware.gpus], self.hardware.cpu],
                [self.engine.engine, self.engine.version],
                self.workload,
                self.slo,
                self.objective,
                self.space.model_dump(mode="json", exclude={"origin": True, "settings": {"__all__": {"line": True}}}),
                [[pin.flag, pin.value] for pin in self.pins],
                self.baseline.key if self.baseline else None,
                *([["also", *self.also]] if self.also else []),
                *([["price", self.price_per_hour]] if self.price_per_hour else []),
            ]
        )
