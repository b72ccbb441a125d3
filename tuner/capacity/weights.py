"""Bytes of weights on one device: from the files where they are known, else from counted parameters.

A quantized checkpoint is not parameters x bits / 8: embeddings, output head, norms and routers stay in 16 bits, and
every group of weights brings a scale.
"""

from __future__ import annotations

from tuner.domain.engine import Footprint
from tuner.domain.model import ModelSpec
from tuner.domain.record import Record
from tuner.facts.versions import holding

_PLAIN_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0}
_SCALE_BITS = {"awq": 20, "gptq": 20, "mxfp4": 8, "modelopt_fp4": 8, "compressed-tensors": 16, "fp8": 32}
_GROUPS = {"mxfp4": 32, "modelopt_fp4": 16}
_FULL_SIZE = 12.0


class Weights(Record):
    """Bytes of the fullest device, and how they were found."""

    bytes: int
    text: str


def stored_bits(model: ModelSpec) -> float | None:
    """Bits that a quantized weight takes with its share of scales, or None for an unquantized or unknown checkpoint."""
    if model.quantization is None or model.quantization_bits is None:
        return None
    method = model.quantization.replace("auto_", "").replace("_marlin", "")
    scale = 8 if "fp4" in (model.quantization_format or "").lower() else _SCALE_BITS.get(method, 16)
    weights = model.quantization_group or _GROUPS.get(method)
    if model.quantization_block:
        weights = model.quantization_block[0] * model.quantization_block[1]
    return model.quantization_bits + (scale / weights if weights else 0)


def total_bytes(model: ModelSpec, footprint: Footprint) -> Weights | None:
    """Bytes of all weights as they lie in memory, before they are split, or None when nothing says how many."""
    plain = _PLAIN_BYTES.get(model.dtype or "", 2.0)
    online = model.quantization is None and footprint.weight_bits is not None and footprint.weight_bits < _FULL_SIZE
    wide = model.quantization is None and footprint.weight_bits is not None and footprint.weight_bits > 8 * plain
    if model.weight_bytes is not None and not online:
        factor = footprint.weight_bits / (8 * plain) if wide and footprint.weight_bits else 1.0
        return Weights(bytes=int(model.weight_bytes * factor), text="sizes in the headers of the weight files")
    if model.parameters is None:
        return None
    if model.quantization is None and not online:
        size = (footprint.weight_bits or 8 * plain) / 8
        return Weights(bytes=int(model.parameters * size), text=f"{model.parameters:,} parameters x {size:g} bytes")
    bits = footprint.weight_bits if online else stored_bits(model)
    if bits is None:
        return None
    packed = int(quantized_parameters(model) * _padding(model, footprint))
    kept = model.parameters - quantized_parameters(model)
    return Weights(
        bytes=int(packed * bits / 8 + kept * plain),
        text=f"{packed:,} parameters x {bits:.3g} bits + {kept:,} x {plain:g} bytes",
    )


def quantized_parameters(model: ModelSpec) -> int:
    """Count the parameters that quantization changes."""
    total = model.parameters or 0
    if model.quantized_part == "experts" and model.expert_parameters:
        return model.expert_parameters
    rest = total - (model.embedding_parameters or 0)
    if model.quantized_part == "mlp" and model.hidden_size and model.layers:
        heads, size = model.attention_heads or 0, model.head_dim or 0
        attention = 2 * model.hidden_size * size * (heads + (model.kv_heads or 0)) * model.layers
        return max(0, rest - (model.replicated_parameters or 0) if model.is_latent else rest - attention)
    return rest


def _padding(model: ModelSpec, footprint: Footprint) -> float:
    """Return by how much a kernel pads expert weights (vllm/model_executor/layers/quantization/mxfp4.py)."""
    if not (model.quantization == "mxfp4" and model.hidden_size and model.intermediate_size):
        return 1.0
    row = holding("vllm/memory.yaml", "mxfp4_padding", footprint.version)
    wide = (model.moe_intermediate_size or model.intermediate_size) / footprint.tensor_parallel
    padded = -(-wide // row["intermediate"]) * row["intermediate"]
    hidden = -(-model.hidden_size // row["hidden"]) * row["hidden"]
    return float(padded / wide * hidden / model.hidden_size)


def rope_bytes(model: ModelSpec, footprint: Footprint) -> int:
    """Bytes of the rotary tables, whole on every rank."""
    size = 4.0 if footprint.weight_bits == 32 else _PLAIN_BYTES.get(model.dtype or "", 2.0)
    return int((model.rope_elements or 0) * size)


def stage_layers(layers: int, stages: int) -> tuple[slice, ...]:
    """Return which layers each pipeline stage holds (vllm/distributed/utils.py, get_pp_indices).

    Left-over layers go to the stages before the last, from the end on.
    """
    each, left = divmod(layers, stages)
    counts = [each] * stages
    for index in range(2, left + 2):
        counts[-min(index, stages)] += 1
    ends = [sum(counts[: index + 1]) for index in range(stages)]
    return tuple(slice(end - count, end) for end, count in zip(ends, counts, strict=True))


def expert_share(model: ModelSpec, footprint: Footprint) -> float:
    """Share of the bytes that routed experts take: those are split over data-parallel ranks too."""
    if not (model.expert_parameters and model.parameters):
        return 0.0
    plain = 8 * _PLAIN_BYTES.get(model.dtype or "", 2.0)
    bits = stored_bits(model) or min(plain, footprint.weight_bits or plain)
    packed = quantized_parameters(model) if bits < plain else 0
    total = packed * bits + (model.parameters - packed) * plain
    return model.expert_parameters * bits / total


def device_bytes(model: ModelSpec, footprint: Footprint, stage: int) -> Weights | None:
    """Bytes of weights on one device of a pipeline stage (0 is the first)."""
    whole = total_bytes(model, footprint)
    if whole is None:
        return None
    ranks, stages = footprint.tensor_parallel, footprint.pipeline_parallel
    count = max(1, model.parameters or 0)
    copied = whole.bytes * (model.replicated_parameters or 0) / count
    plain = _PLAIN_BYTES.get(model.dtype or "", 2.0)
    experts = whole.bytes * expert_share(model, footprint)
    spared = experts / ranks * (1 - 1 / footprint.data_parallel)
    if stages == 1 or not model.layers:
        split = (whole.bytes - copied) / (ranks * (1 if model.layers else stages)) + copied - spared
        share = f" / {ranks}" if ranks > 1 else ""
        share += f", experts over {footprint.data_parallel} data-parallel ranks too" if spared else ""
        more = f", {copied / (1 << 30):.2f} GiB of it on every rank" if copied and ranks > 1 else ""
        return Weights(bytes=int(split), text=f"{whole.text}{share}{more}")
    embedding = (model.embedding_parameters or 0) * plain
    part = stage_layers(model.layers, stages)[stage]
    body = (whole.bytes - embedding - copied) / ranks + copied - spared
    on_stage = body * (part.stop - part.start) / model.layers
    ends = (stage == 0) + (stage == stages - 1)
    on_stage += embedding / ranks * (ends if model.tied_embeddings else ends / 2)
    return Weights(bytes=int(on_stage), text=f"{whole.text}, stage {stage + 1} of {stages}, over {ranks} ranks")


def lora_bytes(model: ModelSpec, footprint: Footprint) -> int:
    """Bytes that the slots for LoRA adapters take on one device (vllm/lora/layers): every linear layer of a block.

    A is whole on each rank, B is split. Zero without LoRA or for an unknown shape.
    """
    if not (footprint.lora_adapters and footprint.lora_rank and model.layers and model.hidden_size):
        return 0
    heads = (model.attention_heads or 0) * (model.head_dim or 0)
    kv = (model.kv_heads or 0) * (model.head_dim or 0)
    wide = model.intermediate_size or 0
    inputs = 3 * model.hidden_size + heads + 2 * model.hidden_size + wide
    outputs = heads + 2 * kv + model.hidden_size + 2 * wide + model.hidden_size
    per_layer = inputs + outputs / footprint.tensor_parallel
    return int(footprint.lora_adapters * footprint.lora_rank * model.layers * per_layer * 2)


def quantizing_bytes(model: ModelSpec, target_bits: float) -> int | None:
    """Bytes that a job needs which quantizes a checkpoint offline: the original and the result together."""
    if model.parameters is None:
        return None
    plain = _PLAIN_BYTES.get(model.dtype or "", 2.0)
    return int(model.parameters * (plain + target_bits / 8))
