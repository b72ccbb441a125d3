"""TensorRT-LLM: trtllm-serve, its configuration file, log lines and metrics.

A setting has the name of its YAML key, parts of a section after a dot (`kv_cache_config.dtype`). All settings that have
a key stand in one file; only what no key covers stands on the command line. Weights are quantized by choosing a
checkpoint that is, so quantization is no setting here.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from tuner.domain.engine import (
    EngineConfig,
    Footprint,
    LaunchFile,
    LaunchSpec,
    Nodes,
    ServerMetrics,
    Setting,
    StartupFacts,
    Value,
)
from tuner.domain.model import ModelSpec
from tuner.domain.study import EngineInstall
from tuner.domain.trial import FailureKind
from tuner.engines.base import Diagnosis
from tuner.engines.common import (
    fatal_line,
    furthest_phase,
    gib,
    last,
    matching_lines,
    refuse_secret,
    root_cause,
    without_known_cause,
)
from tuner.engines.trtllm_build import build_script
from tuner.engines.trtllm_config import NULL, yaml_text
from tuner.engines.trtllm_metrics import last_iteration, prometheus_metrics
from tuner.errors import FlagError
from tuner.facts.catalog import image_of
from tuner.facts.flags import FlagTable, flag_table
from tuner.facts.read import data

CONFIG_FILE = "trtllm-config.yaml"
BUILD_FILE = "build-engine.sh"
_DEFAULT_FRACTION = 0.9
_ULIMITS = {"memlock": -1, "stack": 64 << 20}
"""Of the vendor's own `docker run` line: memory that GPUs share is pinned."""
_MPI = ("trtllm-llmapi-launch",)
"""What every rank runs when Slurm or mpirun starts a server on several hosts (docs/source/commands/trtllm-serve)."""
_NO_TELEMETRY = "TRTLLM_NO_USAGE_STATS"
_RESERVED = {
    "model": "it is what --model of llmtune says",
    "revision": "it belongs to the model",
    "host": "servers under test listen on loopback; deployment files say where to listen",
    "port": "llmtune picks a free port; deployment files say where to listen",
    "served_model_name": "llmtune names the model; give --model-name",
    "config": "its settings would not be seen; list them one by one",
    "extra_llm_api_options": "its settings would not be seen; list them one by one",
    "server_role": "llmtune tunes one server; parts of a disaggregated one are started otherwise",
    "grpc": "the load speaks HTTP",
}
_BITS = {"float32": 32.0, "float": 32.0, "fp8": 8.0, "fp8_ds_mla": 8.0, "nvfp4": 4.5}
_RESOLVED = {
    name: rf"[ \]]{name}=(\d+)" for name in ("max_seq_len", "max_num_requests", "max_num_tokens", "max_batch_size")
} | {"tokens_per_block": r"Number of tokens per block: (\d+)", "attn_backend": r"attn_backend='(\w+)'"}


class TrtllmEngine:
    """The adapter. It holds no state."""

    name = "trtllm"

    def check(self, flag: str, value: Value, version: str) -> None:
        """Check one setting against the keys of this version.

        Raises:
            FlagError: not a key of this version, not a value of it, a secret, or one that llmtune sets itself.

        """
        refuse_secret(flag)
        name = flag.replace("-", "_").removeprefix("__")
        if name in _RESERVED:
            raise FlagError(f"{name} cannot be set here: {_RESERVED[name]}")
        flag_table(self.name, version).check(flag, value)

    def launch(self, model: ModelSpec, config: EngineConfig, install: EngineInstall) -> LaunchSpec:
        """Say how `trtllm-serve` is started for this model and configuration.

        Raises:
            FlagError: a section is set as a whole and in parts.

        """
        table = flag_table(self.name, config.version)
        named = table.find("served_model_name") is not None
        arguments = [model.location, *(("--served_model_name", model.name) if named else ())]
        flags = [setting for setting in config.settings if not setting.is_env]
        in_file = [setting for setting in flags if not _on_command_line(table, setting)]
        if model.revision and not model.is_local:
            in_file.append(Setting(flag="revision", value=model.revision))
        text = yaml_text(in_file, config.version)
        files = (LaunchFile(name=CONFIG_FILE, text=text),) if text else ()
        arguments += [table.file_option, files[0].mark] if files else []
        for setting in flags:
            arguments += _option(table, setting) if _on_command_line(table, setting) else []
        env = {setting.env_name: str(setting.value) for setting in config.settings if setting.is_env}
        if config.get("telemetry") is None:
            if table.find("telemetry") is not None:
                arguments.append("--no-telemetry")
            else:
                env.setdefault(_NO_TELEMETRY, "1")
        if config.get("backend") == "tensorrt":
            files = (*files, LaunchFile(name=BUILD_FILE, text=build_script(model, config)))
        image = image_of(self.name, install.version, install.build)
        devices = _world(config) if install.build != "cpu" else 0
        return LaunchSpec(
            program=install.program,
            arguments=tuple(arguments),
            bind=("--host", "{host}", "--port", "{port}"),
            env=env,
            secret_env=() if model.is_local else ("HF_TOKEN",),
            model=model.location,
            model_is_local=model.is_local,
            served_name=model.name if named else _own_name(model),
            image=install.image or (image[0] if image else None),
            image_program=image[1] if image else (),
            image_runs_commands=True,
            files=files,
            metrics_path="/prometheus/metrics" if config.get("return_perf_metrics") is True else "/metrics",
            devices=devices,
            needs_shared_memory=devices > 0,
            ulimits=_ULIMITS if devices else {},
            nodes=_nodes(config, devices),
        )

    def footprint(self, model: ModelSpec, config: EngineConfig) -> Footprint:
        """Give the neutral view; sizes that the engine decides by itself stay None.

        So does a context length that is not set: the engine shortens the model's to what its cache holds, and starts.
        """
        dtype = str(config.get("dtype") or "auto")
        bits = _BITS.get(model.dtype or "" if dtype == "auto" else dtype, 16.0)
        kv = str(config.get("kv_cache_config.dtype") or "auto")
        kv = (model.kv_quantization or "auto") if kv == "auto" else kv
        fraction = _number(config, "kv_cache_config.free_gpu_memory_fraction")
        return Footprint(
            version=config.version,
            tensor_parallel=_count(config, "tensor_parallel_size") or 1,
            pipeline_parallel=_count(config, "pipeline_parallel_size") or 1,
            weight_bits=_weight_bits(model) or bits,
            kv_bits=bits if kv == "auto" else _BITS.get(kv.lower(), 16.0),
            kv_dtype=None if kv == "auto" else kv,
            max_sequences=_count(config, "max_batch_size"),
            max_context=_count(config, "max_seq_len"),
            batched_tokens=_count(config, "max_num_tokens"),
            free_memory_fraction=_DEFAULT_FRACTION if fraction is None else fraction,
            kv_bytes=_count(config, "kv_cache_config.max_gpu_total_bytes") or None,
            block_size=_count(config, "kv_cache_config.tokens_per_block"),
            eager=config.get("cuda_graph_config") == NULL,
            chunked_prefill=config.get("enable_chunked_prefill") is True,
            expert_parallel=(_count(config, "moe_expert_parallel_size") or 1) > 1,
            speculative_tokens=_count(config, "speculative_config.max_draft_len") or 0,
        )

    def startup_facts(self, log: str, metrics: str) -> StartupFacts:
        """Read the log's own words; where it is silent, the KV cache statistics of the metrics."""
        tokens = last(log, r"in paged KV cache \((\d+)\)")
        iteration = last_iteration(metrics)
        resolved = {name: found for name, pattern in _RESOLVED.items() if (found := last(log, pattern)) is not None}
        return StartupFacts(
            kv_cache_tokens=int(tokens) if tokens else iteration.kv_tokens if iteration else None,
            kv_cache_bytes=gib(log, r"Allocated ([\d.]+) GiB for max tokens in paged KV cache"),
            weight_bytes=gib(log, r"after loading model weights \(inside torch\)[^:]*: ([\d.]+) GiB"),
            attention_backend=resolved.pop("attn_backend", None),
            resolved=resolved,
            warnings=matching_lines(log, data("trtllm/failures.yaml")["warnings"]),
        )

    def server_metrics(self, text: str) -> ServerMetrics:
        """Read `/prometheus/metrics`, or the iteration statistics (JSON) of `/metrics`, of which the last counts."""
        iteration = last_iteration(text)
        return prometheus_metrics(text) if iteration is None else iteration.metrics

    def fatal(self, log: str) -> str | None:
        """Return the line after which a start cannot succeed any more."""
        return fatal_line(self.name, log, complaint)

    def phase(self, log: str) -> str:
        """Return the furthest phase that the log mentions."""
        return furthest_phase(self.name, log)

    def classify(self, log: str, exit_code: int | None) -> Diagnosis:
        """Find the root cause: a key that the file must not hold, the first known pattern, else the exit code."""
        refused = re.search(r"validation errors? for (\w+)\n(\S+)\n\s+(.+?)(?: \[type=|\n|$)", log)
        if refused:
            return Diagnosis((FailureKind.BAD_FLAG, f"{refused[2]}: {refused[3]} ({refused[1]})"))
        return root_cause(self.name, log, complaint) or without_known_cause(exit_code)

    def start_timeout_s(self, model: ModelSpec, config: EngineConfig) -> float:
        """Fifteen minutes, one second for each 25 MB of weights, and an hour more where an engine is built first."""
        size = model.weight_bytes or 2 * (model.parameters or 0)
        return 900.0 + size / 25e6 + (3600.0 if config.get("backend") == "tensorrt" else 0.0)


def _on_command_line(table: FlagTable, setting: Setting) -> bool:
    return table.require(setting.flag).where == "cli"


def _option(table: FlagTable, setting: Setting) -> list[str]:
    flag = table.require(setting.flag)
    option = flag.cli[0]
    if isinstance(setting.value, bool):
        return [option if setting.value else flag.cli[-1]]
    if flag.kind == "list":
        return [part for word in str(setting.value).split() for part in (option, word)]
    text = str(setting.value)
    return [f"{option}={text}"] if text.startswith("-") else [option, text]


def _own_name(model: ModelSpec) -> str:
    """Return what the server calls a model by itself: the directory's name, or the hub id."""
    return PurePath(model.location).name if model.is_local else model.location


def _nodes(config: EngineConfig, devices: int) -> Nodes | None:
    """Return how the server spreads over hosts when `gpus_per_node` says that one does not hold it; else None."""
    each = _count(config, "gpus_per_node")
    if not each or devices <= each or devices % each:
        return None
    return Nodes(count=devices // each, devices=each, arguments=(), launcher=_MPI)


def _world(config: EngineConfig) -> int:
    sizes = (_count(config, f"{kind}_parallel_size") or 1 for kind in ("tensor", "pipeline", "context"))
    total = 1
    for size in sizes:
        total *= size
    return total


def _count(config: EngineConfig, flag: str) -> int | None:
    value = config.get(flag)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(config: EngineConfig, flag: str) -> float | None:
    value = config.get(flag)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _weight_bits(model: ModelSpec) -> float | None:
    if model.quantization is None:
        return None
    if model.quantization_bits is not None:
        return model.quantization_bits
    four = ("awq", "gptq", "fp4", "int4", "w4")
    text = f"{model.quantization} {model.quantization_format or ''}".lower()
    return 4.5 if any(part in text for part in four) else 8.0


def complaint(line: str) -> str | None:
    """Drop `[12/20/2025-03:40:47] [TRT-LLM] [E] ` in front; None for what is only said in passing."""
    found = re.match(r"^(?:\[[\d/:-]+\] )?\[(?:TRT-LLM|TensorRT-LLM|TRT)\] ?\[(\w+)\] ?", line)
    if found is None:
        return None if re.match(r"^(?:INFO|WARNING|DEBUG):? ", line) else line.strip() or None
    return line[found.end() :].strip() or None if found[1] in ("E", "F", "ERROR", "FATAL") else None
