"""vLLM: its flags, log lines and metric names.

Flags are written the way vLLM's own parser reads them back: `--flag value`, `--flag` for true and `--no-flag` for false
(`--flag false` would stay on), JSON as one argument.
"""

from __future__ import annotations

import re

from tuner.domain.engine import (
    ENV_PREFIX,
    EngineConfig,
    Footprint,
    LaunchSpec,
    Nodes,
    ServerMetrics,
    Setting,
    StartupFacts,
    Value,
)
from tuner.domain.json_text import parse_json
from tuner.domain.model import ModelSpec
from tuner.domain.study import EngineInstall
from tuner.engines.base import Diagnosis
from tuner.engines.common import fatal_line, furthest_phase, root_cause, without_known_cause
from tuner.engines.prometheus import Samples, parse
from tuner.errors import FlagError
from tuner.facts.catalog import image_of
from tuner.facts.flags import flag_table, human_int

_GIB = 1 << 30
_RESERVED = {
    "model": "it is what --model of llmtune says",
    "host": "servers under test listen on loopback; deployment files say where to listen",
    "port": "llmtune picks a free port; deployment files say where to listen",
    "api-key": "a key must not stand in a command line; set VLLM_API_KEY in the environment of the deployment",
    "hf-token": "a token must not stand in a command line; set HF_TOKEN in the environment",
    "served-model-name": "llmtune names the model; give --model-name",
    "config": "its settings would not be seen; list them one by one",
}
_SECRET = re.compile(r"SECRET|(?:^|[_:])(?:TOKEN|PASSWORD|PASSWD|CREDENTIALS?|KEY|KEY_ID)$")
_KV_BITS = {"auto": None, "bfloat16": 16.0, "float16": 16.0, "nvfp4": 4.5}
_DTYPE_BITS = {"float32": 32.0, "float": 32.0, "bfloat16": 16.0, "float16": 16.0, "half": 16.0}


class VllmEngine:
    """The adapter. It holds no state."""

    name = "vllm"

    def check(self, flag: str, value: Value, version: str) -> None:
        """Check one setting against the flags of this version.

        Raises:
            FlagError: not a flag of this version, not a value of it, a secret, or one that llmtune sets itself.

        """
        if flag.startswith(ENV_PREFIX) and _SECRET.search(flag):
            raise FlagError(
                f"{flag} looks like a secret, and settings are written to files",
                hint="set it in the environment; deployment files pass it on by name",
            )
        name = flag.replace("_", "-").removeprefix("--")
        if name in _RESERVED:
            raise FlagError(f"--{name} cannot be set here: {_RESERVED[name]}")
        flag_table(self.name, version).check(flag, value)

    def launch(self, model: ModelSpec, config: EngineConfig, install: EngineInstall) -> LaunchSpec:
        """Say how `vllm serve` is started for this model and configuration."""
        arguments: list[str] = [model.location, "--served-model-name", model.name]
        if model.revision and not model.is_local:
            arguments += ["--revision", model.revision]
        env: dict[str, str] = {}
        nodes = _nodes(config, self.footprint(model, config).devices)
        for setting in config.settings:
            if setting.is_env:
                env[setting.env_name] = str(setting.value)
            elif nodes is None or setting.flag not in _NODE_FLAGS:
                arguments += _argument(setting)
        image = image_of(self.name, install.version, install.build)
        footprint = self.footprint(model, config)
        return LaunchSpec(
            program=install.program,
            arguments=tuple(arguments),
            bind=("--host", "{host}", "--port", "{port}"),
            env=env,
            secret_env=() if model.is_local else ("HF_TOKEN",),
            model=model.location,
            model_is_local=model.is_local,
            served_name=model.name,
            image=install.image or (image[0] if image else None),
            image_program=image[1] if image else (),
            devices=footprint.devices if install.build != "cpu" else 0,
            needs_shared_memory=footprint.devices > 1,
            nodes=nodes,
        )

    def footprint(self, model: ModelSpec, config: EngineConfig) -> Footprint:
        """Give the neutral view; sizes that the engine decides by itself stay None."""
        dtype = str(config.get("dtype") or "auto")
        bits = _DTYPE_BITS.get(model.dtype or "" if dtype == "auto" else dtype, 16.0)
        quantization = config.get("quantization") or model.quantization
        kv = str(config.get("kv-cache-dtype") or "auto")
        chunked, lora = config.get("enable-chunked-prefill"), config.get("enable-lora") is True
        return Footprint(
            tensor_parallel=human_int(config.get("tensor-parallel-size")) or 1,
            pipeline_parallel=human_int(config.get("pipeline-parallel-size")) or 1,
            data_parallel=human_int(config.get("data-parallel-size")) or 1,
            weight_bits=_weight_bits(str(quantization)) if quantization else bits,
            kv_bits=_KV_BITS.get(kv, 8.0) or bits,
            max_sequences=human_int(config.get("max-num-seqs")),
            max_context=_context(config, model),
            batched_tokens=human_int(config.get("max-num-batched-tokens")),
            memory_fraction=_as_float(config.get("gpu-memory-utilization")),
            kv_bytes=_kv_bytes(config),
            version=config.version,
            kv_dtype=None if kv == "auto" else kv,
            block_size=human_int(config.get("block-size")),
            eager=config.get("enforce-eager") is True,
            chunked_prefill=None if chunked is None else chunked is True,
            context_parallel=human_int(config.get("decode-context-parallel-size")) or 1,
            expert_parallel=config.get("enable-expert-parallel") is True,
            speculative_tokens=_speculative_tokens(config),
            lora_adapters=(human_int(config.get("max-loras")) or 1) if lora else 0,
            lora_rank=(human_int(config.get("max-lora-rank")) or 16) if lora else 0,
        )

    def startup_facts(self, log: str, metrics: str) -> StartupFacts:
        """Read the log's own words and the labels of `vllm:cache_config_info`."""
        info = next(iter(parse(metrics).get("vllm:cache_config_info", [])), None)
        resolved = dict(info.labels) if info else {}
        shown = {key: resolved[key] for key in _RESOLVED if key in resolved}
        for key, pattern in _LOG_RESOLVED.items():
            found = re.findall(pattern, log)
            if found:
                shown[key] = found[-1]
        tokens = re.findall(r"(?:GPU|CPU) KV cache size: ([\d,]+) tokens", log)
        logged_tokens = int(tokens[-1].replace(",", "")) if tokens else None
        logged_bytes = _gib(log, r"Available KV cache memory: ([\d.]+) GiB")
        return StartupFacts(
            kv_cache_tokens=_digits(resolved.get("kv_cache_size_tokens")) or logged_tokens,
            kv_cache_bytes=logged_bytes or _digits(resolved.get("kv_cache_memory_bytes")),
            weight_bytes=_gib(log, r"Model loading took ([\d.]+) GiB"),
            graph_bytes=_gib(log, r"Graph capturing finished in .*? took ([\d.]+) GiB"),
            attention_backend=_last(log, r"Using (\w+) (?:attention )?backend"),
            resolved=shown,
        )

    def server_metrics(self, text: str) -> ServerMetrics:
        """Read one scrape; counters and gauges are summed over data-parallel engines, usage is averaged."""
        samples = parse(text)
        return ServerMetrics(
            prompt_tokens=samples.total("vllm:prompt_tokens_total"),
            generation_tokens=samples.total("vllm:generation_tokens_total"),
            running=samples.total("vllm:num_requests_running"),
            waiting=samples.total("vllm:num_requests_waiting"),
            preemptions=samples.total("vllm:num_preemptions_total"),
            kv_usage=_first(samples, "mean", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
            prefix_queries=_first(samples, "total", *(f"vllm:{gpu}prefix_cache_queries_total" for gpu in ("", "gpu_"))),
            prefix_hits=_first(samples, "total", *(f"vllm:{gpu}prefix_cache_hits_total" for gpu in ("", "gpu_"))),
            requests_finished=samples.total("vllm:request_success_total"),
            queue_s=samples.total("vllm:request_queue_time_seconds_sum"),
            queue_left=samples.total("vllm:request_queue_time_seconds_count"),
            draft_tokens=samples.total("vllm:spec_decode_num_draft_tokens_total"),
            accepted_tokens=samples.total("vllm:spec_decode_num_accepted_tokens_total"),
        )

    def fatal(self, log: str) -> str | None:
        """Return the line after which a start cannot succeed any more."""
        return fatal_line(self.name, log, complaint)

    def phase(self, log: str) -> str:
        """Return the furthest phase that the log mentions."""
        return furthest_phase(self.name, log)

    def classify(self, log: str, exit_code: int | None) -> Diagnosis:
        """Find the root cause: the first line that a known pattern matches, else the exit code."""
        return root_cause(self.name, log, complaint) or without_known_cause(exit_code)

    def start_timeout_s(self, model: ModelSpec, config: EngineConfig) -> float:
        """Ten minutes, and one second for each 25 MB of weights (a slow network disk), and time to compile."""
        size = model.weight_bytes or 2 * (model.parameters or 0)
        compiling = 0.0 if config.get("enforce-eager") else 300.0
        return 600.0 + size / 25e6 + compiling


_RESOLVED = (
    "block_size",
    "cache_dtype",
    "enable_prefix_caching",
    "gpu_memory_utilization",
    "kv_cache_size_tokens",
    "num_gpu_blocks",
    "kv_cache_memory_bytes",
)
_LOG_RESOLVED = {
    "dtype": r"config: model=.*?[ ,]dtype=torch\.(\w+)",
    "max_model_len": r"Using max model len (\d+)",
    "max_num_batched_tokens": r"max_num_batched_tokens=(\d+)",
    "tensor_parallel_size": r"config: model=.*?[ ,]tensor_parallel_size=(\d+)",
    "quantization": r"config: model=.*?[ ,]quantization=(\w+)",
    "enforce_eager": r"config: model=.*?[ ,]enforce_eager=(\w+)",
}


_NODE_FLAGS = ("nnodes", "node-rank", "master-addr", "headless")


def _nodes(config: EngineConfig, devices: int) -> Nodes | None:
    """Return how the server spreads over hosts, which it does without Ray since 0.11.1; None on one host."""
    count = human_int(config.get("nnodes")) or 1
    if count < 2:
        return None
    arguments = ("--nnodes", "{count}", "--node-rank", "{rank}", "--master-addr", "{leader}")
    return Nodes(count=count, devices=max(1, devices // count), arguments=arguments, follower=("--headless",))


def _argument(setting: Setting) -> list[str]:
    if setting.value is True:
        return [f"--{setting.flag}"]
    if setting.value is False:
        return [f"--no-{setting.flag}"]
    text = str(setting.value)
    return [f"--{setting.flag}={text}"] if text.startswith("-") else [f"--{setting.flag}", text]


def _as_float(value: Value | None) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _context(config: EngineConfig, model: ModelSpec) -> int | None:
    """Return the context length, or None when the engine fits it to its memory (`auto`, -1)."""
    wanted = config.get("max-model-len")
    return model.max_context if wanted is None else None if wanted in ("auto", -1) else human_int(wanted)


def _kv_bytes(config: EngineConfig) -> int | None:
    direct = human_int(config.get("kv-cache-memory-bytes"))
    space = human_int(config.get("env:VLLM_CPU_KVCACHE_SPACE"), scale=_GIB)
    return direct if direct is not None else space


def _speculative_tokens(config: EngineConfig) -> int:
    """Return how many tokens are proposed a step, 0 without speculation or when the config does not say."""
    stated = human_int(config.get("spec-tokens")) or human_int(config.get("speculative-config.num_speculative_tokens"))
    try:
        parsed = parse_json(str(config.get("speculative-config") or "{}"))
    except ValueError:
        return stated or 0
    inside = parsed.get("num_speculative_tokens") if isinstance(parsed, dict) else None
    return stated or (inside if isinstance(inside, int) and inside > 0 else 0)


def _weight_bits(method: str) -> float:
    if any(part in method for part in ("awq", "gptq", "mxfp4", "nvfp4", "fp4")):
        return 4.5
    return 16.0 if method in ("compressed-tensors", "quark", "inc", "modelopt_mixed") else 8.0


def _last(log: str, pattern: str) -> str | None:
    found = re.findall(pattern, log)
    return found[-1] if found else None


def _gib(log: str, pattern: str) -> int | None:
    found = _last(log, pattern)
    return int(float(found) * _GIB) if found else None


def _digits(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _first(samples: Samples, how: str, *names: str) -> float | None:
    for name in names:
        value: float | None = samples.mean(name) if how == "mean" else samples.total(name)
        if value is not None:
            return value
    return None


def complaint(line: str) -> str | None:
    """Drop `(EngineCore pid=1) ERROR 12-01 13:44:24 [core.py:1] ` in front; None for what is only said in passing."""
    match = re.match(r"^(?:\([\w ./-]+ pid=\d+\) ?)?(?:(ERROR|INFO|WARNING|DEBUG)[: ][^\[]*\[[^\]]*\] ?)?", line)
    if match is None or match[1] in ("INFO", "WARNING", "DEBUG"):
        return None
    return line[match.end() :].strip() or None
