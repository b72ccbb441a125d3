"""What parallelism has to divide: heads, layers, experts, groups and blocks of quantized weights.

Sources name files of vLLM 0.33.0 (the checks were read in 0.32.0 too).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tuner.domain.engine import EngineConfig
from tuner.domain.finding import Finding
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.rules.base import Rule, count, family, finding, method_of, since

_GROUPED = {"awq", "gptq", "compressed-tensors", "modelopt"}
_LARGEST = 64


def heads_divide(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Tensor parallelism splits attention heads evenly."""
    del hardware
    size = count(config, "tensor-parallel-size", 1) or 1
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
        world *= count(config, flag, 1) or 1
    nodes = count(config, "nnodes", 1) or 1
    spread = config.get("distributed-executor-backend") == "ray"
    if hardware.kind == "cuda" and not spread and world > hardware.devices * nodes:
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
    stages = count(config, "pipeline-parallel-size", 1) or 1
    if model.layers and stages > model.layers:
        yield Finding(
            rule="stages_have_layers",
            severity="error",
            reason=f"{stages} pipeline stages for {model.layers} layers",
            fix=f"use at most {model.layers}",
            source="vllm/distributed/utils.py",
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


def groups_divide(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Weights that share a scale along the input stay together: each rank needs whole groups."""
    del hardware
    size, group = count(config, "tensor-parallel-size", 1) or 1, model.quantization_group
    if size < 2 or group is None or model.quantization is None or family(model.quantization) not in _GROUPED:
        return
    for name, width in _row_inputs(config, model).items():
        if width % (size * group) == 0:
            continue
        fits = _sizes(model, lambda ranks, width=width: width % (ranks * group) == 0)  # type: ignore[misc]
        yield finding(
            groups_divide,
            "error",
            f"{name} has {width} inputs = {width / group:g} groups of {group}: --tensor-parallel-size {size} cannot "
            "split them into whole groups",
            f"use --tensor-parallel-size {fits}, or a checkpoint with smaller groups",
            "quantization/auto_awq.py; issue 21695",
        )
        return


def blocks_divide(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """FP8 weights with a scale a block: each rank needs whole blocks."""
    del hardware
    size, block = count(config, "tensor-parallel-size", 1) or 1, model.quantization_block
    if size < 2 or block is None or method_of(config, model) != model.quantization:
        return
    for name, width in _row_inputs(config, model).items():
        if width % (size * block[1]) == 0:
            continue
        fits = _sizes(model, lambda ranks, width=width: width % (ranks * block[1]) == 0)  # type: ignore[misc]
        experts = name.startswith("an expert")
        padded = experts and since(config, "0.32.0")
        yield finding(
            blocks_divide,
            "warning" if padded else "error",
            f"{name} has {width / size:g} of {width} weights on each of {size} ranks, not a multiple of the block of "
            f"{block[1]}" + (": this release refines the scales or pads, where its kernels can" if padded else ""),
            f"use --tensor-parallel-size {fits}" + (", or --enable-expert-parallel" if experts else ""),
            "quantization/utils/fp8_utils.py validate_fp8_block_shape; issues 25292, 39046, 48173",
        )
        return


def _row_inputs(config: EngineConfig, model: ModelSpec) -> dict[str, int]:
    """Inputs of the layers that tensor parallelism splits along them, by name."""
    found = {}
    if model.quantized_part not in ("mlp", "experts") and model.attention_heads:
        values = model.v_head_dim or model.head_dim
        if values:
            found["the attention output"] = model.attention_heads * values
    if model.is_moe:
        if model.moe_intermediate_size and config.get("enable-expert-parallel") is not True:
            found["an expert"] = model.moe_intermediate_size
    elif model.intermediate_size:
        found["the MLP"] = model.intermediate_size
    return found


def _sizes(model: ModelSpec, fits: Callable[[int], bool]) -> str:
    heads = model.attention_heads
    good = [str(ranks) for ranks in range(1, _LARGEST + 1) if fits(ranks) and (heads is None or heads % ranks == 0)]
    return ", ".join(good) or "1"


def balancing_needs_expert_parallel(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Moving experts between ranks needs experts on ranks."""
    del model, hardware
    if config.get("enable-eplb") is True and config.get("enable-expert-parallel") is not True:
        yield finding(
            balancing_needs_expert_parallel,
            "error",
            "--enable-eplb without --enable-expert-parallel",
            "add --enable-expert-parallel, or leave --enable-eplb out",
            "vllm/config/parallel.py",
        )


def context_parallel_divides(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Decode context parallelism shares the copies of KV heads that tensor parallelism makes."""
    del hardware
    shares, size = count(config, "decode-context-parallel-size", 1) or 1, count(config, "tensor-parallel-size", 1) or 1
    if shares < 2:
        return
    copies = size // model.kv_heads if model.kv_heads else shares
    queries = model.attention_heads // model.kv_heads if model.attention_heads and model.kv_heads else shares
    problem = None
    if size % shares:
        problem = f"it does not divide --tensor-parallel-size {size}", "use a divisor of the tensor-parallel size"
    elif not model.is_latent and shares > copies:
        held = f"{size} ranks hold {model.kv_heads} KV heads {max(1, copies)} times, and only copies can be shared"
        problem = held, f"use at most {max(1, copies)}, or more tensor-parallel ranks"
    elif not model.is_latent and queries % shares:
        problem = f"there are {queries} query heads for each KV head", f"use a divisor of {queries}"
    if problem is not None:
        reason, fix = problem
        where = "vllm/config/model.py verify_with_parallel_config"
        said = f"--decode-context-parallel-size {shares}: {reason}"
        yield finding(context_parallel_divides, "error", said, fix, where)


RULES: tuple[Rule, ...] = (
    heads_divide,
    world_fits_devices,
    stages_have_layers,
    experts_need_moe,
    groups_divide,
    blocks_divide,
    balancing_needs_expert_parallel,
    context_parallel_divides,
)
