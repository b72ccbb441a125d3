"""Device memory before a launch, term by term. All numbers are PREDICTED.

budget = device x utilization (facts/data/vllm/memory.yaml says of what, per release)
cache = budget - weights - peak of the profile run - libraries - LoRA slots - CUDA graphs where the release deducts them
The answer says whether a request of full length fits the cache, and how far that is from being wrong.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tuner.capacity import kv
from tuner.capacity.activation import Amount, Batch, activation, batch, graphs, is_checked, other, utilization
from tuner.capacity.free_fraction import kv_bytes_of
from tuner.capacity.refusal import Refused, refusal
from tuner.capacity.weights import device_bytes, lora_bytes, rope_bytes, stage_layers
from tuner.domain.engine import Footprint
from tuner.domain.hardware import Gpu, Hardware
from tuner.domain.model import ModelSpec
from tuner.domain.record import Record
from tuner.facts.gpus import usable_bytes
from tuner.facts.versions import holding, release

_GIB = 1 << 30
_TOLERANCE = 0.7 * _GIB
_UNCHECKED = 0.6 * _GIB
_UNKNOWN_PEAK = 2.0 * _GIB
_SHARE = 0.03
Verdict = Literal["fits", "marginal", "does_not_fit"]


class Term(Record):
    """One part of a device's memory, in bytes, with the formula and where it is known from."""

    name: str
    bytes: int
    text: str


class MemoryPlan(Record):
    """Bytes on the device that has least room. PREDICTED for the named release."""

    version: str | None
    device: int
    """What CUDA sees of the device."""
    budget: int
    terms: tuple[Term, ...]
    available: int
    """What is left for the KV cache; below zero when the rest is too large already."""
    kv_per_token: int | None
    """While no window is full."""
    kv_for_one: int | None
    """KV cache of one request of the full context; without a stated context, of one block."""
    block_bytes: int
    block_tokens: int
    blocks: int
    context: int | None
    kv_tokens: int
    """What the engine prints as the size of its cache."""
    concurrency: float | None
    """Requests of full length that fit at once."""
    tolerance: int
    states: bool
    """Whether the engine insists on a block for the states (Mamba, linear attention) of each of max-num-seqs."""
    outside: int
    """What lies outside the budget (CUDA graphs of releases that do not deduct them)."""
    notes: tuple[str, ...] = ()

    @property
    def weights(self) -> int:
        """Bytes of weights."""
        return self.term("weights")

    def term(self, name: str) -> int:
        """Return the bytes of one term, zero when there is none of that name."""
        return sum(term.bytes for term in self.terms if term.name == name)

    @property
    def margin(self) -> int:
        """Bytes between what the cache has and what one request of full length needs."""
        return self.available - (self.kv_for_one or 0)

    @property
    def verdict(self) -> Verdict:
        """Whether it starts; `marginal` where the prediction's own error decides."""
        if self.margin < -self.tolerance:
            return "does_not_fit"
        return "fits" if self.margin > self.tolerance else "marginal"

    @property
    def fits(self) -> bool:
        """False only when it clearly does not."""
        return self.verdict != "does_not_fit"

    def state_shortage(self, sequences: int | None) -> bool:
        """Whether the engine is sure to refuse this many sequences: each needs a block for its states.

        A hard error since vLLM PR 38270 (0.19.0): `max_num_seqs exceeds available Mamba cache blocks`.
        """
        if not self.states or sequences is None:
            return False
        return sequences * self.block_bytes > self.available + self.tolerance

    @property
    def text(self) -> str:
        """All terms, in GiB."""
        parts = " + ".join(f"{term.name} {term.bytes / _GIB:.1f}" for term in self.terms if term.bytes)
        one = f" + KV cache of one full-length request {self.kv_for_one / _GIB:.1f}" if self.kv_for_one else ""
        for_version = f" for {self.version}" if self.version else ""
        return f"PREDICTED{for_version} per device: {parts}{one} GiB, budget {self.budget / _GIB:.1f} GiB"


def kv_bytes_per_token(model: ModelSpec, footprint: Footprint) -> int | None:
    """Bytes of KV cache that one more token takes on one device, or None when the architecture is not known.

    Layers with a window are counted while it is not full; layers with a state of fixed size are not. With pipeline
    stages it is the longest stage.
    """
    if not model.layers:
        return None
    stages = stage_layers(model.layers, footprint.pipeline_parallel)
    found = [kv.layer_kinds(model, footprint, part) for part in stages]
    if not all(found):
        return None
    return max(int(kv.growing_bytes(kinds)) for kinds in found)


def memory_plan(
    model: ModelSpec, footprint: Footprint, hardware: Hardware, *, others_bytes: int = 0
) -> MemoryPlan | Refused:
    """Predict the memory of the fullest device, or say why not: a value, never a guess.

    `others_bytes` is what other servers already hold of the device.
    """
    refused = refusal(model, hardware)
    if refused is not None or not hardware.gpus or not model.layers:
        return refused or Refused(reason="there is no GPU")
    gpu = min(hardware.gpus, key=usable_bytes)
    stages = stage_layers(model.layers, footprint.pipeline_parallel)
    plans = []
    for stage, layers in enumerate(stages):
        plan = _stage(model, footprint, gpu, (stage, layers, len(stages)), others_bytes)
        if isinstance(plan, Refused):
            return plan
        plans.append(plan)
    return min(plans, key=lambda plan: (plan.concurrency is None, plan.concurrency, plan.available))


class _Parts(NamedTuple):
    step: Batch
    cut: kv.Pool
    kinds: tuple[kv.LayerKind, ...]
    terms: list[Term]
    peak: Amount
    outside: int


def _stage(
    model: ModelSpec, footprint: Footprint, gpu: Gpu, stage: tuple[int, slice, int], others_bytes: int
) -> MemoryPlan | Refused:
    number, layers, count = stage
    weights = device_bytes(model, footprint, number)
    if weights is None:
        return Refused(reason=f"the size of the weights of {model.name} is not known")
    kinds = kv.layer_kinds(model, footprint, layers)
    cut = kv.pool(kinds, footprint)
    if cut is None:
        return Refused(reason=f"the sizes of the KV cache of {model.name} are not known")
    step = batch(model, footprint, gpu)
    peak = activation(model, footprint, step, samples=number == count - 1)
    graph, deducted = graphs(model, footprint, step, layers.stop - layers.start)
    terms = _terms(model, footprint, Term(name="weights", bytes=weights.bytes, text=weights.text), peak)
    if deducted:
        terms.append(Term(name="CUDA graphs", bytes=graph.bytes, text=graph.text))
    parts = _Parts(step, cut, kinds, terms, peak, 0 if deducted else graph.bytes)
    return _plan(model, footprint, parts, device=usable_bytes(gpu), others_bytes=others_bytes)


def _terms(model: ModelSpec, footprint: Footprint, weights: Term, peak: Amount) -> list[Term]:
    libraries = other(footprint)
    lora = lora_bytes(model, footprint)
    terms = [
        weights,
        Term(name="activation peak", bytes=peak.bytes, text=peak.text),
        Term(name="libraries", bytes=libraries.bytes, text=libraries.text),
    ]
    rope = rope_bytes(model, footprint)
    if rope:
        terms.append(Term(name="rotary tables", bytes=rope, text=f"{model.rope_elements:,} elements on every rank"))
    if lora:
        slots = f"{footprint.lora_adapters} adapters of rank {footprint.lora_rank} on every linear layer"
        terms.append(Term(name="LoRA", bytes=lora, text=slots))
    return terms


def _plan(model: ModelSpec, footprint: Footprint, parts: _Parts, *, device: int, others_bytes: int) -> MemoryPlan:
    step, cut, kinds, terms, peak, outside = parts
    budget, available, notes = _budget(footprint, device, sum(term.bytes for term in terms), others_bytes)
    context = footprint.max_context
    blocks = max(0, available // cut.block_bytes)
    per_request = cut.blocks_for(context, step.tokens) if context else cut.group_count
    if context and footprint.context_parallel > 1:
        per_request = -(-per_request // footprint.context_parallel)
    concurrency = blocks / per_request if context else None
    tolerance = max(_TOLERANCE, _SHARE * max(0, available))
    tolerance += 0 if is_checked(footprint.version) else _UNCHECKED
    tolerance += 0 if peak.known else _UNKNOWN_PEAK
    return MemoryPlan(
        version=footprint.version,
        device=device,
        budget=budget,
        terms=tuple(terms),
        available=available,
        kv_per_token=int(kv.growing_bytes(kinds)),
        kv_for_one=per_request * cut.block_bytes,
        block_bytes=cut.block_bytes,
        block_tokens=cut.block_tokens,
        blocks=blocks,
        context=context,
        kv_tokens=_tokens(footprint, cut, blocks, concurrency),
        concurrency=concurrency,
        tolerance=int(tolerance),
        states=any(kind.letter == "m" for kind in kinds) and _needs_state_blocks(footprint),
        outside=outside,
        notes=(*notes, *_notes(model, footprint), *_state_notes(kinds, step.sequences, blocks)),
    )


def _tokens(footprint: Footprint, cut: kv.Pool, blocks: int, concurrency: float | None) -> int:
    meaning = holding("vllm/memory.yaml", "tokens_line", footprint.version)["meaning"]
    if meaning == "request" and concurrency is not None and footprint.max_context:
        return int(concurrency * footprint.max_context)
    return blocks // cut.group_count * cut.block_tokens * footprint.context_parallel


def left_for_cache(device: int, utilization_share: float, *terms: int) -> int:
    """Bytes of KV cache that a share of the device leaves beside what else the server holds."""
    return int(device * utilization_share) - sum(terms)


def _budget(footprint: Footprint, device: int, used: int, others_bytes: int) -> tuple[int, int, tuple[str, ...]]:
    """Return the budget, what it leaves for the cache, and what is to be said about it."""
    if footprint.free_memory_fraction is not None:
        left = kv_bytes_of(device, used + others_bytes, footprint.free_memory_fraction)
        said = "the fraction is of what is free after weights and activations; terms beside them follow vLLM's laws"
        return used + left, left, (said,)
    if footprint.kv_bytes is not None:
        room = device - others_bytes - used
        if room < footprint.kv_bytes:
            return device, room - footprint.kv_bytes, ("weights and the stated cache do not fit the device",)
        return used + footprint.kv_bytes, footprint.kv_bytes, ("the cache has the stated size; utilization is ignored",)
    row = utilization(footprint.version)
    fraction = footprint.memory_fraction or float(str(row["default"]))
    budget = int(device * fraction)
    left = left_for_cache(device, fraction, used)
    notes: tuple[str, ...] = ()
    if others_bytes:
        notes = (f"--gpu-memory-utilization is the {row['note']}",)
        if row["scope"] == "device":
            return budget, left - others_bytes, notes
        if device - others_bytes < budget:
            short = device - others_bytes - budget
            return budget, min(short, left), (*notes, "less is free than asked for: the start is refused")
    return budget, left, notes


def _needs_state_blocks(footprint: Footprint) -> bool:
    """Whether max-num-seqs above the blocks is an error: since 0.19.0, while full CUDA graphs are captured."""
    recent = footprint.version is None or release(footprint.version) >= release("0.19.0")
    return recent and not footprint.eager


def _state_notes(kinds: tuple[kv.LayerKind, ...], sequences: int, blocks: int) -> tuple[str, ...]:
    if sequences <= blocks or not any(kind.letter == "m" for kind in kinds):
        return ()
    return (f"about {blocks} blocks hold states, and --max-num-seqs is {sequences}: set {max(1, blocks)} or less",)


def _notes(model: ModelSpec, footprint: Footprint) -> tuple[str, ...]:
    notes = []
    if not is_checked(footprint.version):
        notes.append("constants are of 0.19: no complete start-up log of a later release was at hand")
    if footprint.speculative_tokens:
        notes.append("weights and cache of a draft model are not counted")
    if model.multimodal:
        notes.append("the encoder's share of the profile run is uncertain; limit it with --limit-mm-per-prompt")
    return tuple(notes)
