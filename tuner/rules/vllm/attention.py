"""Attention backends, the KV cache's type and its blocks. Sources name files of vLLM 0.33.0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tuner.domain.engine import EngineConfig
from tuner.domain.finding import Finding
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.facts.read import data
from tuner.rules.base import Rule, count, effective_dtype, finding, kv_dtype, method_of, since

_ADA, _HOPPER = 8.9, 9.0
_OWN_KV_SCALES = ("fp8", "modelopt", "compressed-tensors", "quark", "fbgemm_fp8")
_CUDA = "vllm/platforms/cuda.py; v1/attention/backends"


def cpu_block_size(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """The CPU attention backend takes blocks in multiples of 32."""
    del model
    size = count(config, "block-size")
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


def asked_backend(config: EngineConfig) -> str | None:
    """Return the attention backend that is asked for, by flag or (until 0.14.1) by environment."""
    stated = config.get("attention-backend") or config.get("attention-config.backend")
    if stated is None and not since(config, "0.14.2"):
        stated = config.get("env:VLLM_ATTENTION_BACKEND")
    return str(stated).upper() if stated is not None else None


def backend_fits(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """A backend that is asked for has to take the model, the types, the block size and the GPU."""
    name, table = asked_backend(config), data("vllm/attention.yaml")
    row = table["backends"].get(name)
    if row is None or hardware.kind != "cuda":
        return
    why = _misfit(row, config, model, hardware.capability)
    if why is None:
        return
    sure = since(config, str(table["known_since"])) or (name == "FLASH_ATTN" and "fp8" in why)
    fitting = _fitting(config, model, hardware.capability)
    yield finding(
        backend_fits,
        "error" if sure else "warning",
        f"attention backend {name}: {why}",
        f"leave --attention-backend out, or use {', '.join(fitting) or 'another type of KV cache'}",
        _CUDA,
    )


def _fitting(config: EngineConfig, model: ModelSpec, capability: float | None) -> list[str]:
    table = data("vllm/attention.yaml")
    kind = "latent" if model.is_latent else "plain"
    major = int(capability or 0)
    order = table["order"].get(f"{kind}_{major}", table["order"][kind])
    return [name for name in order if _misfit(table["backends"][name], config, model, capability) is None]


def _misfit(row: dict[str, Any], config: EngineConfig, model: ModelSpec, capability: float | None) -> str | None:
    if model.architecture is not None and bool(row.get("latent")) != model.is_latent:
        return "it is for latent attention (MLA)" if row.get("latent") else "the model has latent attention (MLA)"
    if capability is not None and not row.get("least", 0) <= capability <= row.get("most", 99):
        return f"it does not run on compute capability {capability}"
    return _type_misfit(row, config, model, capability) or _size_misfit(row, config, model, capability)


def _type_misfit(row: dict[str, Any], config: EngineConfig, model: ModelSpec, capability: float | None) -> str | None:
    dtype, kv = effective_dtype(config, model), kv_dtype(config, model)
    if dtype is not None and dtype not in row.get("dtypes", [dtype]):
        return f"it does not take {dtype}"
    if kv not in row.get("kv", [kv]):
        return f"it does not take a KV cache of {kv}"
    if capability is None or not kv.startswith("fp8"):
        return None
    if "fp8_from" in row and (capability < row["fp8_from"] or not since(config, "0.8.0")):
        return f"it takes no fp8 KV cache on compute capability {capability} in {config.version}"
    if "e4m3_from" in row and kv != "fp8_e5m2" and capability < row["e4m3_from"]:
        return f"fp8_e4m3 is not supported on compute capability {capability} (fp8e4nv)"
    return None


def _size_misfit(row: dict[str, Any], config: EngineConfig, model: ModelSpec, capability: float | None) -> str | None:
    head, block = model.head_dim, count(config, "block-size")
    if head is not None and not row.get("latent"):
        listed = row.get("heads")
        wrong = (
            head > row.get("most_head", head) or head < row.get("least_head", 0) or head % row.get("head_multiple", 1)
        )
        if wrong or (listed is not None and head not in listed):
            return f"it does not take heads of {head}"
    if block is None:
        return None
    more = (capability or 0) >= row.get("more_blocks_from", 99)
    if "blocks" in row and block not in row["blocks"] and not more:
        return f"it takes blocks of {', '.join(map(str, row['blocks']))}, not {block}"
    if block % row.get("multiple", 1):
        return f"it takes blocks in multiples of {row['multiple']}, not {block}"
    return None


def some_backend_fits(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Without a wish the engine takes the first backend that fits; there may be none, or a slower one."""
    if hardware.capability is None or asked_backend(config) is not None or model.architecture is None:
        return
    if not since(config, str(data("vllm/attention.yaml")["known_since"])):
        return
    asked = config.get("block-size") is not None or config.get("kv-cache-dtype") not in (None, "auto")
    if not asked or str(config.get("kv-cache-dtype")).startswith(
        ("turboquant", "octave", "ultraquant", "fp8_ds", "nvfp4_ds")
    ):
        return
    fitting = _fitting(config, model, hardware.capability)
    without = config.model_copy(
        update={"settings": tuple(s for s in config.settings if s.flag not in ("block-size", "kv-cache-dtype"))}
    )
    usual = _fitting(without, model.model_copy(update={"kv_quantization": None}), hardware.capability)
    wish = " and ".join(f"--{flag} {config.get(flag)}" for flag in ("block-size", "kv-cache-dtype") if config.get(flag))
    if not fitting and usual:
        yield finding(
            some_backend_fits,
            "error",
            f"no attention backend takes {wish} for this model on this GPU",
            "leave it out, or choose a block size of 16, 32 or 64",
            _CUDA,
        )
    elif fitting and usual and fitting[0] != usual[0]:
        yield finding(
            some_backend_fits,
            "warning",
            f"{wish} makes the engine take {fitting[0]} instead of {usual[0]}, in silence",
            "compare both live; the log names the backend that was taken",
            _CUDA,
        )


def e5m2_needs_plain_checkpoint(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """A checkpoint that brings scales for the KV cache takes e4m3 only."""
    del hardware
    method = method_of(config, model)
    if kv_dtype(config, model) != "fp8_e5m2" or method is None or not method.startswith(_OWN_KV_SCALES):
        return
    if method == "compressed-tensors" and model.kv_quantization is None and since(config, "0.30.0"):
        return
    yield finding(
        e5m2_needs_plain_checkpoint,
        "error",
        f"an fp8_e5m2 KV cache is not supported with a {method} checkpoint",
        "use --kv-cache-dtype fp8, or int8_per_token_head from 0.22 on",
        "vllm/model_executor/layers/attention/attention.py",
    )


def fp8_kv_has_scales(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """An e4m3 KV cache without scales in the checkpoint uses 1.0, in silence; e5m2 needs none."""
    if hardware.kind != "cuda" or config.get("kv-cache-dtype") not in ("fp8", "fp8_e4m3"):
        return
    if model.kv_quantization is None:
        yield finding(
            fp8_kv_has_scales,
            "warning",
            "the checkpoint brings no scales for an fp8 KV cache: 1.0 is used, in silence",
            "check the quality of answers, or choose a checkpoint with KV scales",
            "quantization/kv_cache.py",
        )


def e4m3_kernels_exist(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Below 8.9 only FlashInfer reads an e4m3 KV cache; Triton stops with `fp8e4nv not supported`."""
    have = hardware.capability
    if have is None or have >= _ADA or kv_dtype(config, model) not in ("fp8", "fp8_e4m3", "fp8_inc"):
        return
    yield finding(
        e4m3_kernels_exist,
        "warning",
        f"an e4m3 KV cache on compute capability {have} works with FLASHINFER only; TRITON_ATTN stops (fp8e4nv)",
        "use --kv-cache-dtype fp8_e5m2, or --attention-backend FLASHINFER, or leave it at auto",
        "vllm issue 26431",
    )


def latent_takes_no_fp4(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Latent attention has no nvfp4 cache of the plain form."""
    del hardware
    if model.is_latent and kv_dtype(config, model) == "nvfp4":
        yield finding(
            latent_takes_no_fp4,
            "error",
            "--kv-cache-dtype nvfp4 with latent attention (MLA)",
            "use fp8 or auto",
            "vllm/config/vllm.py validate_nvfp4_kv_cache_with_mla",
        )


def sinks_need_kernels(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Attention sinks (gpt-oss) came to GPUs below Hopper later than the model."""
    have = hardware.capability
    if model.architecture != "GptOssForCausalLM" or have is None or have >= _HOPPER or since(config, "0.11.0"):
        return
    yield finding(
        sinks_need_kernels,
        "error",
        f"gpt-oss needs attention sinks, which {config.version} has from compute capability 9.0 on; the GPU has {have}",
        "use 0.11.0 or later, or VLLM_ATTENTION_BACKEND=TRITON_ATTN_VLLM_V1",
        "vllm issue 22331",
    )


def hybrid_block_is_overridden(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Models with states enlarge the blocks of attention to the size of a state, in silence."""
    size = count(config, "block-size")
    if hardware.kind == "cuda" and size is not None and model.is_hybrid:
        yield finding(
            hybrid_block_is_overridden,
            "warning",
            f"--block-size {size}: {model.architecture} keeps states, and the engine enlarges blocks to their size",
            "leave --block-size out",
            "vllm/platforms/interface.py",
        )


def backend_is_named_once(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """The backend stands in one place."""
    del model, hardware
    nested = config.get("attention-config.backend") is not None or '"backend"' in str(config.get("attention-config"))
    if config.get("attention-backend") is not None and nested:
        yield finding(
            backend_is_named_once,
            "error",
            "--attention-backend and a backend in --attention-config",
            "keep one of them",
            "vllm/engine/arg_utils.py",
        )


RULES: tuple[Rule, ...] = (
    cpu_block_size,
    fp8_kv_needs_kernels,
    backend_fits,
    some_backend_fits,
    e5m2_needs_plain_checkpoint,
    fp8_kv_has_scales,
    e4m3_kernels_exist,
    latent_takes_no_fp4,
    sinks_need_kernels,
    hybrid_block_is_overridden,
    backend_is_named_once,
)
