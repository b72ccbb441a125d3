"""What an engine adapter must do. Adapters are pure: text and records in, records out."""

from __future__ import annotations

from typing import Protocol

from tuner.domain.engine import EngineConfig, Footprint, LaunchSpec, ServerMetrics, StartupFacts, Value
from tuner.domain.model import ModelSpec
from tuner.domain.study import EngineInstall
from tuner.domain.trial import FailureKind


class Diagnosis(tuple[FailureKind, str]):
    """A failure's kind and its root cause in one line, as far as the log tells."""

    __slots__ = ()

    @property
    def failure(self) -> FailureKind:
        """The kind."""
        return self[0]

    @property
    def reason(self) -> str:
        """The root cause in one line."""
        return self[1]


class Engine(Protocol):
    """One inference engine."""

    name: str

    def check(self, flag: str, value: Value, version: str) -> None:
        """Check one setting against what this version of the engine has.

        Raises:
            FlagError: not a flag of this version, not a value of it, or one that llmtune sets itself.

        """
        ...

    def launch(self, model: ModelSpec, config: EngineConfig, install: EngineInstall) -> LaunchSpec:
        """Say how a server of this configuration is started."""
        ...

    def footprint(self, model: ModelSpec, config: EngineConfig) -> Footprint:
        """Give the neutral view of a configuration."""
        ...

    def startup_facts(self, log: str, metrics: str) -> StartupFacts:
        """Read what the engine said of itself while starting: its log and one scrape of its metrics."""
        ...

    def server_metrics(self, text: str) -> ServerMetrics:
        """Read one scrape of the engine's metrics (Prometheus text)."""
        ...

    def fatal(self, log: str) -> str | None:
        """Return the line that says the start has failed for good, if there is one; the process may still be alive."""
        ...

    def phase(self, log: str) -> str:
        """Return where the start stands, for progress: `starting`, `loading weights`, `compiling`, `warming up`."""
        ...

    def classify(self, log: str, exit_code: int | None) -> Diagnosis:
        """Say why a server that did not become ready, or died, failed. `exit_code` is None while it still runs."""
        ...

    def start_timeout_s(self, model: ModelSpec, config: EngineConfig) -> float:
        """Longest time a start may take before it counts as hung, scaled to the model."""
        ...
