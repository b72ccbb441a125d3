"""EngineConfig and LaunchSpec: what is asked of an engine, in its own words, and what is started."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from tuner.domain.record import Record, content_hash

Value = bool | int | float | str
Source = Literal["default", "user", "baseline", "recipe", "trial", "rule"]
ENV_PREFIX = "env:"


class Setting(Record):
    """One setting under the engine's own flag name without dashes in front, e.g. `max-num-seqs`.

    An environment variable of the engine is written `env:NAME`. A flag that is not in a config is unset: the engine
    decides.
    """

    flag: str
    value: Value
    source: Source = "user"
    why: str = ""

    @property
    def is_env(self) -> bool:
        """Whether this is an environment variable."""
        return self.flag.startswith(ENV_PREFIX)

    @property
    def env_name(self) -> str:
        """The variable's name, for `is_env`."""
        return self.flag.removeprefix(ENV_PREFIX)


class EngineConfig(Record):
    """Settings of one engine version, sorted by flag, each flag at most once."""

    engine: str
    version: str
    settings: tuple[Setting, ...] = ()

    @field_validator("settings")
    @classmethod
    def _sorted_and_unique(cls, settings: tuple[Setting, ...]) -> tuple[Setting, ...]:
        ordered = tuple(sorted(settings, key=lambda setting: setting.flag))
        flags = [setting.flag for setting in ordered]
        if len(set(flags)) != len(flags):
            raise ValueError("a flag is set twice")
        return ordered

    @property
    def key(self) -> str:
        """Hash of engine, version and values: equal keys are the same configuration, whoever asked for it."""
        return content_hash([self.engine, self.version, [[s.flag, s.value] for s in self.settings]])

    @property
    def values(self) -> dict[str, Value]:
        """Flag to value."""
        return {setting.flag: setting.value for setting in self.settings}

    def get(self, flag: str) -> Value | None:
        """Return the flag's value, or None when it is unset."""
        return self.values.get(flag)

    def with_settings(self, *settings: Setting) -> EngineConfig:
        """Return a config in which these settings replace or join the present ones."""
        merged = {setting.flag: setting for setting in (*self.settings, *settings)}
        return EngineConfig(engine=self.engine, version=self.version, settings=tuple(merged.values()))


class LaunchSpec(Record):
    """Everything needed to start one server, for launchers to run and emitters to print.

    `program` is looked up by whoever starts it (a path here, an image's entry point there); `arguments` follow it.
    `bind` holds the arguments that say where to listen, with `{host}` and `{port}` to fill in.
    No value here is ever a secret: `secret_env` names variables that are passed through by name.
    """

    program: tuple[str, ...]
    arguments: tuple[str, ...]
    bind: tuple[str, ...]
    env: dict[str, str] = Field(default_factory=dict)
    secret_env: tuple[str, ...] = ()
    model: str
    """The directory or hub id that `arguments` name, so that emitters can mount a directory."""
    model_is_local: bool
    served_name: str
    image: str | None = None
    image_program: tuple[str, ...] = ()
    """The part of `program` that the image's entry point already runs."""
    port: int = 8000
    health_path: str = "/health"
    devices: int = 0
    """GPUs to reserve: tensor x pipeline x data parallel size; 0 on a CPU."""
    needs_shared_memory: bool = False

    def command(self, host: str, port: int) -> tuple[str, ...]:
        """Program, arguments and where to listen."""
        return (*self.program, *self.arguments, *(part.format(host=host, port=port) for part in self.bind))


class Footprint(Record):
    """The neutral view of a config that memory arithmetic and scoring need."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    weight_bits: float | None = None
    kv_bits: float | None = None
    max_sequences: int | None = None
    max_context: int | None = None
    batched_tokens: int | None = None
    memory_fraction: float | None = None
    kv_bytes: int | None = None

    @property
    def devices(self) -> int:
        """Devices that one server of this config takes."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel


class StartupFacts(Record):
    """What the engine said of itself while starting, from its log and metrics. None: it did not say."""

    kv_cache_tokens: int | None = None
    kv_cache_bytes: int | None = None
    weight_bytes: int | None = None
    graph_bytes: int | None = None
    attention_backend: str | None = None
    resolved: dict[str, str] = Field(default_factory=dict)
    """Values that the running engine reports as its own, by the engine's names (e.g. `block_size`)."""
    warnings: tuple[str, ...] = ()


class ServerMetrics(Record):
    """A reading of the engine's own counters and gauges; counters count since its start. None: not exported."""

    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    running: float | None = None
    waiting: float | None = None
    preemptions: float | None = None
    kv_usage: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    requests_finished: float | None = None
