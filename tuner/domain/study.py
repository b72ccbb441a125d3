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
    "output_tokens_per_s", "requests_per_s", "goodput_per_s", "p95_ttft", "p95_itl", "p95_e2e", "mean_e2e"
]


class EngineInstall(Record):
    """An engine found on this machine: how it is started and which version it is. `python` runs its own interpreter."""

    engine: str
    version: str
    build: Literal["cuda", "cpu", "unknown"] = "unknown"
    program: tuple[str, ...]
    image: str | None = None


class Budget(Record):
    """When to stop searching. `trials` counts configurations that were launched, the default and baseline included."""

    trials: int = Field(ge=1)
    seconds: float | None = Field(default=None, gt=0)
    finalists: int = Field(default=2, ge=1)
    verify_rounds: int = Field(default=3, ge=2)
    repeats: int = Field(default=1, ge=1)
    start_timeout_s: float | None = Field(default=None, gt=0)


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
            ]
        )
