"""What TensorRT-LLM refuses or silently changes, as far as it can be known without a launch. One function a rule.

Sources name files or threads of NVIDIA/TensorRT-LLM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tuner.domain.engine import EngineConfig, Value
from tuner.domain.finding import Finding
from tuner.domain.hardware import Hardware
from tuner.domain.json_text import parse_json
from tuner.domain.model import ModelSpec
from tuner.facts.flags import flag_table

Rule = Callable[[EngineConfig, ModelSpec, Hardware], Iterator[Finding]]
_DEFAULT_TOKENS = 8192
_LLM_ARGS = "tensorrt_llm/llmapi/llm_args.py"
_REMOVAL = "docs/source/legacy/tensorrt-backend-removal.md"
_BLACKWELL, _ADA = 10.0, 8.9


def _count(config: EngineConfig, flag: str, default: int = 1) -> int:
    value = config.get(flag)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _sizes(value: Value | None) -> list[int]:
    try:
        found = parse_json(value) if isinstance(value, str) else []
    except ValueError:
        return []
    return [size for size in found if isinstance(size, int)] if isinstance(found, list) else []


def heads_divide(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Tensor parallelism splits attention heads evenly, unless attention is data parallel."""
    del hardware
    size = _count(config, "tensor_parallel_size")
    if config.get("enable_attention_dp") is True or not model.attention_heads or model.attention_heads % size == 0:
        return
    fits = [str(n) for n in range(1, 17) if model.attention_heads % n == 0]
    yield Finding(
        rule="heads_divide",
        severity="error",
        reason=f"{model.attention_heads} attention heads cannot be split over tensor_parallel_size {size}",
        fix=f"use {', '.join(fits)}",
        source="tensorrt_llm/_torch/modules/attention.py",
    )


def world_fits_devices(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Tensor x pipeline x context parallel ranks need a GPU each; trtllm-serve starts them itself."""
    del model
    world = 1
    for kind in ("tensor", "pipeline", "context"):
        world *= _count(config, f"{kind}_parallel_size")
    if hardware.kind == "cuda" and world > hardware.devices:
        yield Finding(
            rule="world_fits_devices",
            severity="error",
            reason=f"{world} ranks (tensor x pipeline x context parallel) on {hardware.devices} GPUs",
            fix="lower the parallel sizes",
            source="tensorrt_llm/mapping.py",
        )


def stages_have_layers(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Each pipeline stage needs a layer."""
    del hardware
    stages = _count(config, "pipeline_parallel_size")
    if model.layers and stages > model.layers:
        yield Finding(
            rule="stages_have_layers",
            severity="error",
            reason=f"{stages} pipeline stages for {model.layers} layers",
            fix=f"use at most {model.layers}",
            source="tensorrt_llm/mapping.py",
        )


def experts_share_tensor_ranks(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Expert and expert-tensor ranks multiply to the tensor ranks, and a dense model has no experts."""
    del hardware
    tensor = _count(config, "tensor_parallel_size")
    expert, inner = config.get("moe_expert_parallel_size"), config.get("moe_tensor_parallel_size")
    if expert is None and inner is None:
        return
    if model.architecture is not None and not model.is_moe:
        yield Finding(
            rule="experts_share_tensor_ranks",
            severity="error",
            reason="expert parallelism is set, and the model is dense",
            fix="leave moe_expert_parallel_size and moe_tensor_parallel_size out",
            source=_LLM_ARGS,
        )
    elif tensor % (_count(config, "moe_expert_parallel_size") * _count(config, "moe_tensor_parallel_size")):
        yield Finding(
            rule="experts_share_tensor_ranks",
            severity="error",
            reason=f"moe_expert_parallel_size {expert or 1} x moe_tensor_parallel_size {inner or 1} does not divide "
            f"tensor_parallel_size {tensor}",
            fix="choose sizes whose product is the tensor parallel size",
            source="tensorrt_llm/mapping.py",
        )


def whole_prompt_fits(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Without chunked prefill a prompt longer than max_num_tokens is refused, and that is the default."""
    del hardware
    tokens = _count(config, "max_num_tokens", _DEFAULT_TOKENS)
    length = _count(config, "max_seq_len", model.max_context or 0)
    if config.get("enable_chunked_prefill") is not True and length > tokens:
        yield Finding(
            rule="whole_prompt_fits",
            severity="warning",
            reason=f"chunked prefill is off, so prompts above max_num_tokens {tokens} are refused, and a sequence may "
            f"have {length}",
            fix="set enable_chunked_prefill: true, or max_num_tokens to the longest prompt",
            source="issues 9277 and 4947: the sum of prompt length should not exceed max_num_tokens",
        )


def batch_fits_tokens(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """A step has a token for each sequence."""
    del model, hardware
    batch, tokens = _count(config, "max_batch_size", 0), _count(config, "max_num_tokens", _DEFAULT_TOKENS)
    if batch > tokens:
        yield Finding(
            rule="batch_fits_tokens",
            severity="warning",
            reason=f"max_batch_size {batch} is above max_num_tokens {tokens}, which caps it",
            fix=f"lower max_batch_size to {tokens}, or raise max_num_tokens",
            source=f"{_LLM_ARGS} validate_runtime_args",
        )


def block_is_power_of_two(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Tokens of a KV block are a power of two."""
    del model, hardware
    size = _count(config, "kv_cache_config.tokens_per_block")
    if size < 1 or size & (size - 1):
        yield Finding(
            rule="block_is_power_of_two",
            severity="error",
            reason=f"kv_cache_config.tokens_per_block is {size}, and it must be a power of two",
            fix="use 16, 32, 64 or 128",
            source="docs/source/features/kvcache.md",
        )


def graphs_agree(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """CUDA graphs are off as a whole or set in parts, and their largest batch is said once."""
    del model, hardware
    parts = [flag for flag in config.values if flag.startswith("cuda_graph_config.")]
    if config.get("cuda_graph_config") is not None and parts:
        yield Finding(
            rule="graphs_agree",
            severity="error",
            reason=f"cuda_graph_config is null (graphs off), and {', '.join(parts)} is set",
            fix="set either the one or the other",
            source=_LLM_ARGS,
        )
    sizes, largest = config.get("cuda_graph_config.batch_sizes"), _count(config, "cuda_graph_config.max_batch_size", 0)
    if largest and max(_sizes(sizes), default=largest) != largest:
        yield Finding(
            rule="graphs_agree",
            severity="error",
            reason=f"cuda_graph_config.max_batch_size {largest} is not the largest of batch_sizes {sizes}",
            fix="leave max_batch_size out",
            source=f"{_LLM_ARGS} validate_cuda_graph_config",
        )


def formats_fit_gpu(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """NVFP4 needs Blackwell, FP8 needs Ada or newer; there is no slow way round them here."""
    have = hardware.capability
    if have is None:
        return
    weights = f"{model.quantization or ''} {model.quantization_format or ''}".lower()
    kv = str(config.get("kv_cache_config.dtype") or "")
    wanted = [
        (f"the checkpoint's {weights.strip()}", _BLACKWELL, "fp4" in weights and "mxfp4" not in weights),
        (f"the checkpoint's {weights.strip()}", _ADA, "fp8" in weights and "fp4" not in weights),
        (f"kv_cache_config.dtype {kv}", _BLACKWELL, kv == "nvfp4"),
        (f"kv_cache_config.dtype {kv}", _ADA, kv.startswith("fp8")),
    ]
    for what, need, applies in wanted:
        if applies and have < need:
            yield Finding(
                rule="formats_fit_gpu",
                severity="error",
                reason=f"{what} needs compute capability {need:g}, the GPU has {have:g}",
                fix="choose another checkpoint" if what.startswith("the") else "leave kv_cache_config.dtype out",
                source="docs/source/features/quantization.md, hardware support matrix",
            )


def statistics_need_statistics(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Statistics of requests come with those of iterations."""
    del model, hardware
    if config.get("enable_iter_req_stats") is True and config.get("enable_iter_perf_stats") is not True:
        yield Finding(
            rule="statistics_need_statistics",
            severity="warning",
            reason="enable_iter_req_stats has no effect without enable_iter_perf_stats",
            fix="set both, or neither",
            source=_LLM_ARGS,
        )


def smaller_cache_wins(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Two limits of the KV cache: the smaller one holds."""
    del model, hardware
    if config.get("kv_cache_config.max_tokens") and config.get("kv_cache_config.free_gpu_memory_fraction"):
        yield Finding(
            rule="smaller_cache_wins",
            severity="warning",
            reason="kv_cache_config.max_tokens and free_gpu_memory_fraction both limit the KV cache; the smaller holds",
            fix="set one of them",
            source=_LLM_ARGS,
        )


def backend_takes_keys(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """The TensorRT backend knows fewer keys, and it ended with 1.2."""
    del model, hardware
    if config.get("backend") != "tensorrt":
        if config.get("scheduler_config.dynamic_batch_config") is not None:
            yield Finding(
                rule="backend_takes_keys",
                severity="error",
                reason="scheduler_config.dynamic_batch_config is for the TensorRT backend only",
                fix="leave it out",
                source=_LLM_ARGS,
            )
        return
    yield Finding(
        rule="backend_takes_keys",
        severity="warning",
        reason="the TensorRT backend is legacy: 1.2 was its last line, and no newer release starts this configuration",
        fix="leave backend to the engine (pytorch)",
        source=_REMOVAL,
    )
    table = flag_table(config.engine, config.version)
    for name in config.values:
        flag = None if name.startswith("env:") else table.find(name)
        if flag is not None and flag.backend == "pytorch":
            yield Finding(
                rule="backend_takes_keys",
                severity="error",
                reason=f"{name} is a key of the PyTorch backend; with backend tensorrt it stops the start",
                fix=f"leave {name} or backend out",
                source=_LLM_ARGS,
            )


def deprecated_keys(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Keys that the engine itself calls deprecated."""
    del model, hardware
    table = flag_table(config.engine, config.version)
    for name in config.values:
        flag = None if name.startswith("env:") else table.find(name)
        if flag is not None and flag.status == "deprecated" and name != "backend":
            yield Finding(
                rule="deprecated_keys",
                severity="warning",
                reason=f"{name} is deprecated in {config.version}" + (f": {flag.note}" if flag.note else ""),
                fix="leave it out",
                source="tests/unittest/api_stability/references/llm.yaml",
            )


RULES: tuple[Rule, ...] = (
    heads_divide,
    world_fits_devices,
    stages_have_layers,
    experts_share_tensor_ranks,
    whole_prompt_fits,
    batch_fits_tokens,
    block_is_power_of_two,
    graphs_agree,
    formats_fit_gpu,
    statistics_need_statistics,
    smaller_cache_wins,
    backend_takes_keys,
    deprecated_keys,
)
