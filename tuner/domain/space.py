"""SearchSpace: which settings may take which values, and when."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tuner.domain.engine import Value
from tuner.domain.record import Record


class Condition(Record):
    """When a setting (or one of its values) is open. All that is said must hold; nothing said is always."""

    hardware: Literal["cuda", "cpu"] | None = None
    min_capability: float | None = None
    min_devices: int | None = None
    versions: str | None = None
    """PEP 440 range of engine versions, e.g. `>=0.17`."""
    model: tuple[Literal["moe", "dense", "quantized", "unquantized"], ...] = ()
    cpu_features: tuple[str, ...] = ()
    settings: dict[str, tuple[Value, ...]] = Field(default_factory=dict)
    """Other flags that must have one of these values for this one to be searched."""


class SpaceSetting(Record):
    """One dimension: a flag and the values tried. `unset` among `values` (None) leaves the flag to the engine."""

    flag: str
    values: tuple[Value | None, ...]
    when: Condition = Condition()
    values_when: dict[str, Condition] = Field(default_factory=dict)
    """Further conditions of single values, by the value's text."""
    why: str = ""
    line: int = 0


class SearchSpace(Record):
    """The space of one engine. `versions` is the PEP 440 range it was written for."""

    schema_version: Literal[1] = 1
    engine: str
    versions: str = ""
    settings: tuple[SpaceSetting, ...]
    origin: str = ""

    @property
    def size(self) -> int:
        """Number of combinations, conditions between settings not counted out."""
        total = 1
        for setting in self.settings:
            total *= len(setting.values)
        return total
