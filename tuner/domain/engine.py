"""EngineConfig and LaunchSpec: what is asked of an engine, in its own words, and what is started."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from pydantic import Field, field_validator

from tuner.domain.record import Record, content_hash

Value = bool | int | float | str
Source = Literal["default", "user", "baseline", "recipe", "trial", "rule"]
ENV_PREFIX = "env:"


def plain(value: object) -> str:
    """Return a value as people write it in options and files: booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


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
        return next((setting.value for setting in self.settings if setting.flag == flag), None)

    def with_settings(self, *settings: Setting) -> EngineConfig:
        """Return a config in which these settings replace or join the present ones."""
        merged = {setting.flag: setting for setting in (*self.settings, *settings)}
        return EngineConfig(engine=self.engine, version=self.version, settings=tuple(merged.values()))


class LaunchFile(Record):
    """A text file that the program reads; launchers write it beside the trial, emitters beside the other files.

    An argument that is `mark` stands for its path. Lines of the text that begin with `#` are comments in its language.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9]+)+$")
    text: str

    @property
    def mark(self) -> str:
        """The argument that stands for the file's path."""
        return f"{{file:{self.name}}}"


class Nodes(Record):
    """How one server spreads over several hosts: the same program on each, the first one answering."""

    count: int = Field(ge=2)
    devices: int = Field(ge=0)
    """GPUs of each host."""
    arguments: tuple[str, ...]
    """For every host, with `{count}`, `{rank}` and `{leader}` (the first host's address) to fill in."""
    follower: tuple[str, ...] = ()
    """More, for every host but the first."""
    launcher: tuple[str, ...] = Field(default=(), exclude_if=lambda words: not words)
    """Words before the program where MPI starts it, once for each GPU of every host; it then has no ranks to set."""


class LaunchSpec(Record):
    """Everything needed to start one server, for launchers to run and emitters to print.

    `program` is looked up by whoever starts it (a path here, an image's entry point there); `arguments` follow it.
    Where an argument is the mark of one of `files`, the path of that file is meant.
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
    image_runs_commands: bool = False
    """The image's entry point prepares the container and then runs whatever words it is given."""
    files: tuple[LaunchFile, ...] = ()
    port: int = 8000
    health_path: str = "/health"
    metrics_path: str = "/metrics"
    devices: int = 0
    """GPUs to reserve: tensor x pipeline x data parallel size; 0 on a CPU."""
    needs_shared_memory: bool = False
    ulimits: dict[str, int] = Field(default_factory=dict)
    """Limits that its container needs raised, by the names of `docker run --ulimit`; -1 is none."""
    nodes: Nodes | None = None
    """None: one host holds all devices."""

    def command(self, host: str, port: int, folder: str = "") -> tuple[str, ...]:
        """Program, arguments and where to listen; `folder` is where the files lie."""
        return (*self.program, *self.in_folder(folder), *(part.format(host=host, port=port) for part in self.bind))

    def in_folder(self, folder: str) -> tuple[str, ...]:
        """Arguments with the paths of files that lie in `folder`."""
        paths = {file.mark: str(PurePosixPath(folder, file.name)) for file in self.files}
        return tuple(paths.get(argument, argument) for argument in self.arguments)


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
    """Share of the whole device that the server may take (vLLM)."""
    free_memory_fraction: float | None = None
    """Share of what is free after weights and activations that becomes KV cache (TensorRT-LLM)."""
    kv_bytes: int | None = None
    version: str | None = None
    """Release of the engine that the config is for: memory laws differ between them."""
    kv_dtype: str | None = None
    block_size: int | None = None
    eager: bool = False
    """Without CUDA graphs."""
    chunked_prefill: bool | None = None
    context_parallel: int = 1
    """Ranks of tensor parallelism that share the tokens of one sequence while decoding."""
    expert_parallel: bool = False
    speculative_tokens: int = 0
    lora_adapters: int = 0
    lora_rank: int = 0

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
    queue_s: float | None = None
    """Seconds that all requests together waited to be scheduled; divide by the requests that left the queue."""
    queue_left: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
