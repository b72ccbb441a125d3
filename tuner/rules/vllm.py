"""What vLLM refuses or silently changes, as far as it can be known without a launch. One function a rule.

Sources name files of vLLM 0.33.0 unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tuner.domain.engine import EngineConfig, Value
from tuner.domain.finding import Finding
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.facts.flags import human_int
from tuner.facts.read import data

Rule = Callable[[EngineConfig, ModelSpec, Hardware], Iterator[Finding]]


def _count(config: EngineConfig, flag: str, default: int | None = None) -> int | None:
    value = human_int(config.get(flag))
    return default if value is None else value


def counts_are_positive(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Counts start at one; the engine's parser takes zero and dies later."""
    del model, hardware
    for flag in _COUNTS:
        value = _count(config, flag)
        if value is not None and value < 1:
            yield Finding(
                rule="counts_are_positive",
                severity="error",
                reason=f"--{flag} is {value}",
                fix=f"set --{flag} to 1 or more",
                source="vllm/config/scheduler.py, parallel.py",
            )


def utilization_is_a_fraction(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """The share of the device is above 0 and at most 1."""
    del model, hardware
    value = config.get("gpu-memory-utilization")
    if isinstance(value, (int, float)) and not 0 < value <= 1:
        yield Finding(
            rule="utilization_is_a_fraction",
            severity="error",
            reason=f"--gpu-memory-utilization is {value:g}, a share of the device must be in (0, 1]",
            fix="use a value such as 0.92",
            source="vllm/config/cache.py",
        )


def heads_divide(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Tensor parallelism splits attention heads evenly."""
    del hardware
    size = _count(config, "tensor-parallel-size", 1) or 1
    if model.attention_heads and size > 1 and model.attention_heads % size:
        fits = [str(n) for n in range(1, 17) if model.attention_heads % n == 0]
        yield Finding(
            rule="heads_divide",
            severity="error",
            reason=f"{model.attention_heads} attention heads cannot be split over --tensor-parallel-size {size}",
            fix=f"use {', '.join(fits)}",
            source="vllm/config/model.py verify_with_parallel_config",
        )


def world_fits_devices(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Tensor x pipeline x data parallel ranks need a GPU each."""
    del model
    world = 1
    for flag in ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"):
        world *= _count(config, flag, 1) or 1
    if hardware.kind == "cuda" and world > hardware.devices:
        yield Finding(
            rule="world_fits_devices",
            severity="error",
            reason=f"{world} ranks (tensor x pipeline x data parallel) on {hardware.devices} GPUs",
            fix="lower the parallel sizes",
            source="vllm/config/parallel.py",
        )


def stages_have_layers(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Each pipeline stage needs a layer."""
    del hardware
    stages = _count(config, "pipeline-parallel-size", 1) or 1
    if model.layers and stages > model.layers:
        yield Finding(
            rule="stages_have_layers",
            severity="error",
            reason=f"{stages} pipeline stages for {model.layers} layers",
            fix=f"use at most {model.layers}",
            source="vllm/distributed/utils.py",
        )


def batch_holds_sequences(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """A step needs a token for each sequence."""
    del model, hardware
    tokens, sequences = _count(config, "max-num-batched-tokens"), _count(config, "max-num-seqs")
    if tokens is not None and sequences is not None and tokens < sequences:
        yield Finding(
            rule="batch_holds_sequences",
            severity="error",
            reason=f"--max-num-batched-tokens {tokens} is below --max-num-seqs {sequences}",
            fix=f"raise the token budget to {sequences} or more",
            source="vllm/config/scheduler.py",
        )


def whole_prefill_fits(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Without chunked prefill the longest prompt must fit one step."""
    del hardware
    tokens = _count(config, "max-num-batched-tokens")
    context = _count(config, "max-model-len") or model.max_context
    off = config.get("enable-chunked-prefill") is False
    if off and tokens is not None and context is not None and tokens < context:
        yield Finding(
            rule="whole_prefill_fits",
            severity="error",
            reason=f"with chunked prefill off, --max-num-batched-tokens {tokens} is below the context length {context}",
            fix=f"raise it to {context}, or leave chunked prefill on",
            source="vllm/config/scheduler.py",
        )


def context_fits_model(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """The context length is at most what the model was made for, unless the engine is told to take more."""
    del hardware
    context = _count(config, "max-model-len")
    if str(config.get("env:VLLM_ALLOW_LONG_MAX_MODEL_LEN") or "0") != "0":
        return
    if context is not None and model.max_context is not None and context > model.max_context:
        yield Finding(
            rule="context_fits_model",
            severity="error",
            reason=f"--max-model-len {context} is above the model's {model.max_context}",
            fix=f"use at most {model.max_context}",
            source="vllm/config/model.py _get_and_verify_max_len",
        )


def cpu_block_size(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """The CPU attention backend takes blocks in multiples of 32."""
    del model
    size = _count(config, "block-size")
    if hardware.kind == "cpu" and size is not None and size % 32:
        yield Finding(
            rule="cpu_block_size",
            severity="error",
            reason=f"--block-size {size}: the CPU attention backend takes multiples of 32",
            fix="use 32, 64 or 128",
            source="vllm/v1/attention/backends/cpu_attn.py; seen with 0.32.0",
        )


def fp8_kv_needs_kernels(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """On a CPU an fp8 KV cache needs AVX-512 or AMX."""
    del model
    kv = str(config.get("kv-cache-dtype") or "auto")
    has_kernels = {"avx512f", "amx_tile"} & set(hardware.cpu_features)
    if hardware.kind == "cpu" and kv.startswith("fp8") and not has_kernels:
        yield Finding(
            rule="fp8_kv_needs_kernels",
            severity="error",
            reason=f"--kv-cache-dtype {kv} on a CPU needs AVX-512 or AMX, and this one has neither",
            fix="leave --kv-cache-dtype out",
            source="vllm/v1/attention/backends/cpu_attn.py; seen with 0.32.0",
        )


def kv_dtype_matches(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """A 16-bit KV cache has the model's own type."""
    del hardware
    kv, dtype = config.get("kv-cache-dtype"), config.get("dtype") or "auto"
    effective = model.dtype if dtype == "auto" else str(dtype)
    if kv in ("float16", "bfloat16") and effective is not None and _TYPES.get(effective, effective) != kv:
        yield Finding(
            rule="kv_dtype_matches",
            severity="error",
            reason=f"--kv-cache-dtype {kv} with a model that runs in {effective}",
            fix="leave --kv-cache-dtype at auto",
            source="vllm/config/vllm.py",
        )


def quantization_matches_checkpoint(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """A quantized checkpoint keeps its own method; some methods need a checkpoint made for them."""
    del hardware
    method = config.get("quantization")
    if method is None:
        return
    own = model.quantization
    if own is not None and _family(method) != _family(own) and method not in _CONVERTS:
        yield Finding(
            rule="quantization_matches_checkpoint",
            severity="error",
            reason=f"--quantization {method}, but the checkpoint is quantized with {own}",
            fix="leave --quantization out",
            source="vllm/config/model.py _verify_quantization",
        )
    elif own is None and model.architecture is not None and _family(method) in _NEED_CHECKPOINT:
        yield Finding(
            rule="quantization_matches_checkpoint",
            severity="error",
            reason=f"--quantization {method} needs a checkpoint quantized that way, and this one is not",
            fix=f"choose a {method} checkpoint, or fp8 to quantize while loading",
            source="vllm/config/model.py; seen with 0.32.0",
        )


def capability_of_method(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Each quantization method has a least compute capability; fp8 below 8.9 runs as weight-only."""
    method = config.get("quantization") or model.quantization
    have = hardware.capability
    if method is None or have is None:
        return
    need = data("vllm/capabilities.yaml")["quantization"].get(str(method))
    if need is not None and have < need:
        yield Finding(
            rule="capability_of_method",
            severity="error",
            reason=f"quantization {method} needs compute capability {need}, the GPU has {have}",
            fix="choose another method or checkpoint",
            source="vllm/model_executor/layers/quantization",
        )
    elif str(method).startswith("fp8") and have < 8.9:
        yield Finding(
            rule="capability_of_method",
            severity="warning",
            reason=f"fp8 weights on compute capability {have} run as weight-only kernels",
            fix="expect memory savings, not speed",
            source="quantization/fp8.py, utils/marlin_utils_fp8.py",
        )


def experts_need_moe(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Expert parallelism needs experts."""
    del hardware
    if config.get("enable-expert-parallel") is True and model.architecture is not None and not model.is_moe:
        yield Finding(
            rule="experts_need_moe",
            severity="error",
            reason="--enable-expert-parallel on a dense model",
            fix="leave it out",
            source="vllm/config/model.py",
        )


_COUNTS = (
    "max-num-seqs",
    "max-num-batched-tokens",
    "block-size",
    "tensor-parallel-size",
    "pipeline-parallel-size",
    "data-parallel-size",
)
_TYPES = {"half": "float16", "float": "float32"}
_CONVERTS = {"moe_wna16", "humming", "inc", "gpt_oss_mxfp4", "deepseek_v4_fp8"}
"""Methods that take checkpoints of other methods (override_quantization_method)."""
_NEED_CHECKPOINT = {"awq", "gptq", "compressed-tensors", "modelopt", "quark"}


def _family(method: Value) -> str:
    text = str(method).replace("auto_", "").replace("_marlin", "")
    return "modelopt" if text.startswith("modelopt") else text


RULES: tuple[Rule, ...] = (
    counts_are_positive,
    utilization_is_a_fraction,
    heads_divide,
    world_fits_devices,
    stages_have_layers,
    batch_holds_sequences,
    whole_prefill_fits,
    context_fits_model,
    cpu_block_size,
    fp8_kv_needs_kernels,
    kv_dtype_matches,
    quantization_matches_checkpoint,
    capability_of_method,
    experts_need_moe,
)
