"""The KV cache: what a token takes, how layers share a pool of blocks, how many requests of full length fit.

Follows vllm/v1/core/kv_cache_utils.py and vllm/v1/kv_cache_interface.py (0.19 to 0.33; the same arithmetic moved to
kv_cache_planning.py in 0.33). Blocks and concurrency are exact against start-up logs where the bytes are.
"""

from __future__ import annotations

from collections import Counter

from tuner.domain.engine import Footprint
from tuner.domain.model import ModelSpec
from tuner.domain.record import Record
from tuner.facts.read import data
from tuner.facts.versions import holding, release

_STATE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


class LayerKind(Record):
    """Layers of one rank that cache alike. Bytes are those of one layer on one device."""

    letter: str
    layers: int
    bytes_per_token: float = 0
    window: int | None = None
    state_bytes: int = 0


class Pool(Record):
    """How the engine cuts its cache: groups of equally many layers take blocks of equal bytes from one pool."""

    block_tokens: int
    page_bytes: float
    """One block of one layer."""
    group_layers: int
    groups: tuple[tuple[LayerKind, int], ...]
    """Kind of layer and number of groups of it."""

    @property
    def block_bytes(self) -> int:
        """One block of a whole group."""
        return int(self.page_bytes * self.group_layers)

    @property
    def group_count(self) -> int:
        """Groups of all kinds."""
        return sum(count for _, count in self.groups)

    def blocks_for(self, tokens: int, in_flight: int) -> int:
        """Blocks that one request of `tokens` takes, `in_flight` of them scheduled in one step."""
        return sum(count * self._of(kind, tokens, in_flight) for kind, count in self.groups)

    def _of(self, kind: LayerKind, tokens: int, in_flight: int) -> int:
        if kind.letter == "m":
            return 1
        size = self.block_tokens * max(1, int(self.page_bytes / (kind.bytes_per_token * self.block_tokens)))
        if kind.window is None:
            return -(-tokens // size)
        return -(-min(kind.window - 1 + in_flight, tokens) // size) + 1


def kv_element_bytes(model: ModelSpec, footprint: Footprint) -> float:
    """Bytes of one cached element, without scales; `auto` is the model's type, or what the checkpoint asks for."""
    facts = data("vllm/memory.yaml")
    named = footprint.kv_dtype
    if named in (None, "auto"):
        asks = footprint.version is None or release(footprint.version) >= release(facts["checkpoint_kv_since"])
        named = model.kv_quantization if asks else None
    entry = facts["kv_types"].get(named)
    if entry is not None:
        return float(entry["bytes"])
    return (footprint.kv_bits or 16) / 8


def layer_kinds(model: ModelSpec, footprint: Footprint, layers: slice | None = None) -> tuple[LayerKind, ...]:
    """Return the caching layers of one rank by kind, empty when a size is missing.

    `layers` are those of a pipeline stage; all of them when None.
    """
    if not (model.layers and model.kv_heads and model.head_dim) or "?" in model.layer_kinds:
        return ()
    letters = (model.layer_kinds or "f" * model.layers)[layers or slice(None)]
    kinds = []
    for letter, count in sorted(Counter(letters).items()):
        if letter == "x":
            continue
        kind = _kind(model, footprint, letter, count)
        if kind is None:
            return ()
        kinds.append(kind)
    return tuple(kinds)


def _kind(model: ModelSpec, footprint: Footprint, letter: str, count: int) -> LayerKind | None:
    if letter == "m":
        state = _state_bytes(model, footprint)
        return None if state is None else LayerKind(letter=letter, layers=count, state_bytes=state)
    window = model.sliding_window if letter == "s" else None
    if letter == "s" and window is None:
        return None
    per_token = _token_bytes(model, footprint, windowed=letter in "sc")
    return LayerKind(letter=letter, layers=count, bytes_per_token=per_token, window=window)


def _token_bytes(model: ModelSpec, footprint: Footprint, *, windowed: bool) -> float:
    size = kv_element_bytes(model, footprint)
    facts = data("vllm/memory.yaml")
    entry = facts["kv_types"].get(footprint.kv_dtype, {})
    if model.kv_lora_rank is not None:
        latent = entry.get("latent_bytes") or (model.kv_lora_rank + (model.qk_rope_head_dim or 0)) * size
        share = (model.index_layers or 0) / (model.layers or 1)
        index = (model.index_head_dim + facts["indexer_scale"]) * share if model.index_head_dim else 0
        return float(latent + index) / footprint.context_parallel
    heads = (model.sliding_kv_heads if windowed else None) or model.kv_heads or 0
    keys = (model.sliding_head_dim if windowed else None) or model.head_dim or 0
    values = (model.sliding_v_head_dim if windowed else None) or model.v_head_dim or keys
    on_rank = max(1, heads // footprint.tensor_parallel)
    scales = 2 * float(entry.get("scale", 0))
    return on_rank * ((keys + values) * size + scales) / footprint.context_parallel


def _state_bytes(model: ModelSpec, footprint: Footprint) -> int | None:
    if model.state_elements is None:
        return None
    plain = _STATE_BYTES.get(model.dtype or "", 2)
    state = _STATE_BYTES.get(model.state_dtype or "", plain)
    conv = (model.conv_elements or 0) * plain
    return int((model.state_elements * state + conv) * (1 + footprint.speculative_tokens) / footprint.tensor_parallel)


def pool(kinds: tuple[LayerKind, ...], footprint: Footprint) -> Pool | None:
    """Return how one rank's cache is cut, or None when nothing is cached."""
    if not kinds:
        return None
    facts = data("vllm/memory.yaml")
    block = footprint.block_size or int(facts["block_size"])
    if holding("vllm/memory.yaml", "windows", footprint.version)["layout"] == "full":
        kinds = tuple(kind.model_copy(update={"window": None}) for kind in kinds)
    kinds = _merged(kinds)
    attention = [kind for kind in kinds if kind.letter != "m"]
    widest = max((kind.bytes_per_token for kind in attention), default=0)
    states = max((kind.state_bytes for kind in kinds), default=0)
    if states and widest:
        block = max(block, -(-states // int(widest * 16)) * 16)
    page = max(block * widest, states)
    size = _group_size([kind.layers for kind in kinds])
    return Pool(
        block_tokens=block,
        page_bytes=page,
        group_layers=size,
        groups=tuple((kind, -(-kind.layers // size)) for kind in kinds),
    )


def _merged(kinds: tuple[LayerKind, ...]) -> tuple[LayerKind, ...]:
    """Merge kinds that cache the same, so that they form one group."""
    merged: dict[tuple[float, int | None, int], LayerKind] = {}
    for kind in kinds:
        key = (kind.bytes_per_token, kind.window, kind.state_bytes)
        before = merged.get(key)
        merged[key] = kind if before is None else before.model_copy(update={"layers": before.layers + kind.layers})
    return tuple(merged.values())


def _group_size(counts: list[int]) -> int:
    """Layers in a group: the fewest of a kind, or the most when that pads less than half."""
    return max(counts) if max(counts) < 1.5 * min(counts) else min(counts)


def growing_bytes(kinds: tuple[LayerKind, ...]) -> float:
    """Bytes that one more token takes on one device while no window is full."""
    return sum(kind.layers * kind.bytes_per_token for kind in kinds)
