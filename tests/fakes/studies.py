"""Whole studies for tests: the fake adapter's question, and an onlooker that keeps what it is told."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fakes import fake_adapter, plans
from tuner.app.events import Event, Note, PhaseEntered, TrialEnded, TrialStarted
from tuner.app.resolve import Resolved
from tuner.domain.engine import EngineConfig, LaunchSpec, Setting
from tuner.domain.model import ModelSpec
from tuner.domain.slo import Slo
from tuner.domain.space import SearchSpace, SpaceSetting
from tuner.domain.study import Budget, StudySpec
from tuner.domain.workload import ClosedLoop, Fixed, Workload
from tuner.search.spaces import Choice, Dimension, OpenSpace

WORKLOAD = Workload(
    name="tiny", input_tokens=Fixed(tokens=8), output_tokens=Fixed(tokens=6), arrivals=ClosedLoop(concurrency=4),
    requests=12, warmup_requests=2, timeout_s=20,
)
Dimensions = dict[str, tuple[Choice, ...]]


def config(**settings: Any) -> EngineConfig:
    return EngineConfig(
        engine="fake", version="1.0",
        settings=tuple(Setting(flag=flag.replace("_", "-"), value=value) for flag, value in settings.items()),
    )


def question(
    out: Path, dimensions: Dimensions, *, name: str = "s", pins: tuple[Setting, ...] = (), storage: str | None = None,
    trials: int = 4, finalists: int = 1, verify_rounds: int = 2, seconds: float | None = None, **changes: Any,
) -> Resolved:
    """Ask about the fake engine, without looking at this machine."""
    fields: dict[str, Any] = {
        "name": name,
        "model": ModelSpec(requested="m", name="tiny", location="/models/tiny", source="directory", vocab_size=1000),
        "hardware": plans.CPU,
        "engine": fake_adapter.install(),
        "workload": WORKLOAD,
        "slo": Slo(),
        "objective": "output_tokens_per_s",
        "space": SearchSpace(engine="fake", settings=tuple(
            SpaceSetting(flag=flag, values=values) for flag, values in dimensions.items())),
        "pins": pins,
        "budget": Budget(trials=trials, finalists=finalists, verify_rounds=verify_rounds, seconds=seconds,
                         start_timeout_s=30),
        **changes,
    }
    space = OpenSpace(
        engine="fake", version="1.0", pins=pins, closed=(),
        dimensions=tuple(Dimension(flag=flag, values=values, why="because") for flag, values in dimensions.items()),
    )
    return Resolved(spec=StudySpec(**fields), space=space, notes=(), out=out, storage=storage, command="llmtune optimize")


def setting_of(spec: LaunchSpec, flag: str) -> str | None:
    """Return what a launch of the fake engine gives for a flag."""
    words = list(spec.arguments)
    return words[words.index(f"--{flag}") + 1] if f"--{flag}" in words else None


@contextmanager
def light_collector() -> Iterator[None]:
    """Let every load's garbage collection pass over what the test run itself has made so far, which is a lot."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class Onlooker:
    """Keeps every event; `when` may raise at one, as a signal or the end of the process would."""

    def __init__(self, when: Callable[[Event], None] = lambda _: None) -> None:
        self.events: list[Event] = []
        self._when = when

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._when(event)

    @property
    def notes(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Note)]

    @property
    def starts(self) -> list[TrialStarted]:
        return [event for event in self.events if isinstance(event, TrialStarted)]

    @property
    def searched(self) -> list[TrialStarted]:
        return [event for event in self.starts if not event.label.startswith("verify")]

    @property
    def ends(self) -> list[TrialEnded]:
        return [event for event in self.events if isinstance(event, TrialEnded)]

    @property
    def phases(self) -> list[str]:
        return [event.phase for event in self.events if isinstance(event, PhaseEntered)]
