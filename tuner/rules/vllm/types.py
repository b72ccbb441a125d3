"""Types and quantization against the checkpoint and the GPU. Sources name files of vLLM 0.33.0."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.domain.engine import EngineConfig
from tuner.domain.finding import Finding
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.facts.read import data
from tuner.facts.versions import release
from tuner.rules.base import Rule, effective_dtype, family, finding, method_of, since

_CONVERTS = {"moe_wna16", "humming", "inc", "gpt_oss_mxfp4", "deepseek_v4_fp8"}
"""Methods that take checkpoints of other methods (override_quantization_method)."""
_NEED_CHECKPOINT = {"awq", "gptq", "compressed-tensors", "modelopt", "quark"}
_ADA, _AMPERE, _BLACKWELL = 8.9, 8.0, 10.0


def kv_dtype_matches(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """A 16-bit KV cache has the model's own type."""
    del hardware
    kv, effective = config.get("kv-cache-dtype"), effective_dtype(config, model)
    if kv in ("float16", "bfloat16") and effective is not None and effective != kv:
        yield finding(
            kv_dtype_matches,
            "error" if since(config, "0.33.0") else "warning",
            f"--kv-cache-dtype {kv} with a model that runs in {effective}",
            "leave --kv-cache-dtype at auto",
            "vllm/config/vllm.py _reject_mismatched_float_kv_cache, new in 0.33.0; 0.32.0 takes it",
        )


def quantization_matches_checkpoint(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """A quantized checkpoint keeps its own method; some methods need a checkpoint made for them."""
    del hardware
    method = config.get("quantization")
    if method is None:
        return
    own = model.quantization
    if own is not None and family(method) != family(own) and method not in _CONVERTS:
        yield Finding(
            rule="quantization_matches_checkpoint",
            severity="error",
            reason=f"--quantization {method}, but the checkpoint is quantized with {own}",
            fix="leave --quantization out",
            source="vllm/config/model.py _verify_quantization",
        )
    elif own is None and model.architecture is not None and family(method) in _NEED_CHECKPOINT:
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


def quantization_is_known(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """The method is one that this release knows; the parser takes any word."""
    del hardware
    method = method_of(config, model)
    if method is None:
        return
    table = data("vllm/quantization.yaml")
    row, version = table["methods"].get(method), release(config.version)
    source = "QUANTIZATION_METHODS of each release"
    if row is None and config.get("quantization") is not None:
        yield finding(
            quantization_is_known,
            "error",
            f"{method!r} is not a quantization method of any release",
            f"use one of {', '.join(name for name, entry in table['methods'].items() if 'last' not in entry)}",
            source,
        )
    elif row is not None and ("last" in row and version > release(row["last"])):
        note = table["notes"].get(method)
        yield finding(
            quantization_is_known,
            "error",
            f"release {row['last']} was the last that knows quantization {method}",
            note or "choose another checkpoint",
            source,
        )
    elif row is not None and version < release(row["since"]):
        yield finding(
            quantization_is_known,
            "error",
            f"quantization {method} is known since {row['since']} only",
            f"use {row['since']} or later",
            source,
        )


def quantization_is_not_deprecated(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Methods on their way out need a word of consent."""
    del hardware
    method, table = method_of(config, model), data("vllm/quantization.yaml")["deprecated"]
    if (
        method not in table["names"]
        or config.get(table["allowed_by"]) is True
        or not since(config, str(table["since"]))
    ):
        return
    yield finding(
        quantization_is_not_deprecated,
        "error",
        f"quantization {method} is deprecated and refused",
        f"add --{table['allowed_by']}, or choose another checkpoint",
        "vllm/config/model.py _verify_quantization",
    )


def fp4_needs_blackwell(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """NVFP4 weights below Blackwell run as weight-only kernels; W4A8 needs Hopper."""
    method, have = method_of(config, model), hardware.capability
    form = (model.quantization_format or "").lower()
    if have is None or method is None or not ("fp4" in method or "nvfp4" in form) or method == "mxfp4":
        return
    if have < _BLACKWELL:
        yield finding(
            fp4_needs_blackwell,
            "warning",
            f"NVFP4 weights on compute capability {have} run as weight-only kernels",
            "expect memory savings, not speed; FP8 is faster on Hopper",
            "quantization/modelopt.py",
        )


def bfloat16_needs_ampere(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Compute capability below 8.0 has no bfloat16."""
    have, stated = hardware.capability, str(config.get("dtype") or "auto")
    if have is None or have >= _AMPERE or effective_dtype(config, model) != "bfloat16":
        return
    falls_back = stated == "auto" and since(config, "0.9.0")
    yield finding(
        bfloat16_needs_ampere,
        "warning" if falls_back else "error",
        f"bfloat16 needs compute capability 8.0, the GPU has {have}"
        + (": the engine runs the checkpoint in float16, which may overflow" if falls_back else ""),
        "set --dtype half and check the quality; not --dtype float, which doubles the memory",
        "vllm/config/model.py _resolve_auto_dtype; issues 1157, 946",
    )


def gpu_is_supported(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """CUDA builds start at compute capability 7.0."""
    del config, model
    have = hardware.capability
    if hardware.kind == "cuda" and have is not None and have < 7.0:
        yield finding(
            gpu_is_supported,
            "error",
            f"compute capability {have} is below 7.0, the least that vLLM is built for",
            "serve with llama.cpp or Ollama on this GPU",
            "vllm issue 1284",
        )


def awq_needs_half(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """The plain AWQ kernel of old releases works in float16 only."""
    method = method_of(config, model)
    if method != "awq" or effective_dtype(config, model) != "bfloat16" or since(config, "0.22.0"):
        return
    converts = since(config, "0.4.2") and config.get("quantization") is None and (hardware.capability or 0) >= _AMPERE
    if not converts:
        yield finding(
            awq_needs_half,
            "error",
            f"awq in {config.version} takes float16, and the model runs in bfloat16",
            "set --dtype half, or leave --quantization out on compute capability 8.0 and later (awq_marlin)",
            "quantization/awq.py; issues 1823, 1114",
        )


RULES: tuple[Rule, ...] = (
    kv_dtype_matches,
    quantization_matches_checkpoint,
    capability_of_method,
    quantization_is_known,
    quantization_is_not_deprecated,
    fp4_needs_blackwell,
    bfloat16_needs_ampere,
    gpu_is_supported,
    awq_needs_half,
)
