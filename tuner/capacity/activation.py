"""What a vLLM server needs beside weights and cache: the profile run's peak, libraries, CUDA graphs, batch defaults.

The peak of the profile run is the larger of the sampler's buffers (max-num-seqs x vocabulary) and one forward pass of
max-num-batched-tokens; it does not depend on the size of the model. Constants are rows of facts/data/vllm/memory.yaml.
"""

from __future__ import annotations

from tuner.domain.engine import Footprint
from tuner.domain.hardware import Gpu
from tuner.domain.model import ModelSpec
from tuner.domain.record import Record
from tuner.facts.read import data
from tuner.facts.versions import holding, release

_GIB = 1 << 30
_TYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_GRAPHS_PER_STEP = 8


class Batch(Record):
    """What one scheduler step may hold."""

    sequences: int
    tokens: int
    text: str


class Amount(Record):
    """A predicted number of bytes and how it was found; `known` is False when a size of the model is missing."""

    bytes: int
    text: str
    known: bool = True


def batch(model: ModelSpec, footprint: Footprint, gpu: Gpu) -> Batch:
    """Return max-num-seqs and max-num-batched-tokens, with the server's defaults where they are not set."""
    facts = data("vllm/memory.yaml")
    row = holding("vllm/memory.yaml", "batch_defaults", footprint.version)
    small = any(name.lower() in gpu.name.lower() for name in facts["small_defaults_on"])
    gib = 0 if small else gpu.memory_bytes / _GIB
    entry = next(entry for entry in row["rows"] if gib >= entry["above"])
    context = footprint.max_context or model.max_context or 0
    tokens = entry["tokens"]
    whole = footprint.chunked_prefill is False or (
        row.get("whole_prompts") and footprint.chunked_prefill is None and context < row["chunked_from"]
    )
    # TensorRT-LLM refuses a prompt that is longer than a step, and makes no step longer for it.
    whole = whole and footprint.free_memory_fraction is None
    if whole:
        tokens = max(tokens, context)
    sequences = footprint.max_sequences or entry["sequences"]
    set_tokens = footprint.batched_tokens or max(tokens, sequences)
    named = "as set" if footprint.max_sequences and footprint.batched_tokens else "defaults where not set"
    return Batch(sequences=sequences, tokens=set_tokens, text=f"{sequences} sequences, {set_tokens} tokens ({named})")


def activation(model: ModelSpec, footprint: Footprint, step: Batch, *, samples: bool = True) -> Amount:
    """Peak of the profile run on one device. `samples` is False for pipeline stages before the last."""
    if not (model.vocab_size and model.hidden_size):
        return Amount(bytes=0, text="not known: vocabulary or hidden size missing", known=False)
    row = holding("vllm/memory.yaml", "activation", footprint.version)
    size = _type_bytes(model, footprint)
    rows = min(step.sequences, step.tokens)
    sampler = (row["copies"] + size / 4) * rows * model.vocab_size * 4 if samples else 0.0
    states = row["states"] + (row["multimodal_states"] if model.multimodal else 0)
    hidden = states * step.tokens * model.hidden_size * size
    workspace = _workspace(model, footprint, step, size) if row["expert_workspace"] else 0.0
    forward = _forward(model, footprint, step, size, routed=not workspace)
    peak = max(sampler + hidden, forward) + workspace
    winner = f"one forward pass of {step.tokens} tokens"
    if sampler + hidden >= forward:
        copies = f"{row['copies'] + size / 4:g} x {rows} sequences"
        winner = f"{copies} x {model.vocab_size} tokens of vocabulary x 4 B + hidden states"
    experts = f" + expert workspaces {workspace / _GIB:.2f} GiB" if workspace else ""
    return Amount(bytes=int(peak), text=f"{winner}{experts}; {row['checked']}")


def _type_bytes(model: ModelSpec, footprint: Footprint) -> int:
    if model.quantization is None and footprint.weight_bits == 32:
        return 4
    return 2 if footprint.weight_bits == 16 else _TYPE_BYTES.get(model.dtype or "", 2)


def _forward(model: ModelSpec, footprint: Footprint, step: Batch, size: int, *, routed: bool) -> float:
    hidden = model.hidden_size or 0
    ranks = footprint.tensor_parallel
    if model.is_moe and model.experts_per_token:
        wide = model.moe_intermediate_size or model.intermediate_size or 0
        per_token = 3 * hidden + 3 * (model.shared_intermediate_size or 0) / ranks
        per_token += model.experts_per_token * (3 * wide / ranks + hidden) if routed else 0
    else:
        per_token = 3 * (model.intermediate_size or 4 * hidden) / ranks + 3 * hidden
    return step.tokens * size * per_token


def _workspace(model: ModelSpec, footprint: Footprint, step: Batch, size: int) -> float:
    """Buffers that expert kernels keep (vllm/model_executor/layers/fused_moe/modular_kernel.py)."""
    if not (model.is_moe and model.experts_per_token and model.hidden_size):
        return 0.0
    if model.quantization in data("vllm/memory.yaml")["no_expert_workspace"]:
        return 0.0
    wide = (model.moe_intermediate_size or model.intermediate_size or 0) / footprint.tensor_parallel
    slots = step.tokens * model.experts_per_token * size
    return slots * (max(2 * wide, model.hidden_size) + max(wide, model.hidden_size))


def other(footprint: Footprint) -> Amount:
    """CUDA context, NCCL and other libraries on one device."""
    facts = data("vllm/memory.yaml")
    row = holding("vllm/memory.yaml", "other", footprint.version)
    grouped = footprint.tensor_parallel > 1
    gib = row["grouped"] if grouped else row["alone"]
    if not grouped and footprint.pipeline_parallel > 1:
        gib = facts["pipeline_other"]
    return Amount(bytes=int(gib * _GIB), text=f"{'several ranks' if grouped else 'one rank'}; {row['checked']}")


def graphs(model: ModelSpec, footprint: Footprint, step: Batch, layers: int | None) -> tuple[Amount, bool]:
    """Return what CUDA graphs take of one device, and whether the engine deducts it from the cache."""
    facts = data("vllm/memory.yaml")
    row = holding("vllm/memory.yaml", "graphs", footprint.version)
    if footprint.eager:
        return Amount(bytes=0, text="eager mode captures no graphs"), bool(row["deducted"])
    share = min(1.0, _captured(step.sequences) / facts["graph_sizes"])
    gib = share * (row["base"] + row["layer"] * (layers or 0) + (row["experts"] if model.is_moe else 0))
    return Amount(bytes=int(gib * _GIB), text=f"{_captured(step.sequences)} sizes; {row['checked']}"), row["deducted"]


def _captured(sequences: int) -> int:
    """Sizes that are captured: 1, 2, 4, 8..256 by 8, then by 16 up to twice the sequences and at most 512."""
    largest = min(2 * sequences, 512)
    return sum(size <= largest for size in (1, 2, 4, *range(8, 257, _GRAPHS_PER_STEP), *range(272, 513, 16)))


def utilization(version: str | None) -> dict[str, object]:
    """Return the row that says what --gpu-memory-utilization is a share of in this release, and its default."""
    return holding("vllm/memory.yaml", "utilization", version)


def is_checked(version: str | None) -> bool:
    """Whether start-up logs of this line of releases were at hand: 0.20 and later were not."""
    return version is not None and release(version) < release("0.20.0")
