"""Memory term by term: releases, layouts of the cache, what is outside the budget, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import plans
from tuner.capacity import kv
from tuner.capacity.activation import batch, utilization
from tuner.capacity.free_fraction import fraction_for, kv_bytes_of, utilization_for
from tuner.capacity.memory import MemoryPlan, kv_bytes_per_token, left_for_cache, memory_plan
from tuner.capacity.refusal import Refused
from tuner.capacity.weights import quantizing_bytes, stage_layers, total_bytes
from tuner.domain.engine import Footprint
from tuner.domain.hardware import Gpu, Hardware
from tuner.domain.model import ModelSpec
from tuner.engines import ENGINES
from tuner.facts.catalog import model_by_alias
from tuner.facts.gpus import parse_hardware
from tuner.facts.read import data
from tuner.search.screen import screen

pytestmark = pytest.mark.unit

GIB = 1 << 30
MODELS = data("models.json")["models"]


def known(alias: str, **changes: Any) -> ModelSpec:
    spec = model_by_alias(alias)
    assert spec is not None
    return spec.model_copy(update=changes)


def card(gib: float, count: int = 1, name: str = "GPU") -> Hardware:
    gpus = tuple(Gpu(name=name, memory_bytes=int(gib * GIB), capability=9.0, index=i) for i in range(count))
    return Hardware(kind="cuda", gpus=gpus)


def plan(
    spec: ModelSpec, hardware: Hardware, settings: dict[str, Any] | None = None, version: str = "0.33.0", **more: int
) -> MemoryPlan:
    config = plans.config(*(settings or {}).items(), version=version)
    found = memory_plan(spec, ENGINES["vllm"].footprint(spec, config), hardware, **more)
    assert isinstance(found, MemoryPlan), found
    return found


def gib_left(device: float, share: float, *terms: float) -> float:
    return left_for_cache(int(device * GIB), share, *(int(term * GIB) for term in terms)) / GIB


# --- numbers that engines logged


def test_up_a16_budget_of_a_small_card() -> None:
    """15.77 x 0.90 - 7.51 - 0.39 - 2.53 = 3.76 GiB = 3852 blocks = 61,632 tokens = 1.54 x 40,000."""
    left = gib_left(15.77, 0.9, 7.51, 0.39, 2.53)
    assert left == pytest.approx(3.76, abs=0.005)
    spec = plans.hub_model(layers=32, kv_heads=8, head_dim=128)
    footprint = Footprint(tensor_parallel=2, kv_bits=16, version="0.6.4.post1")
    cut = kv.pool(kv.layer_kinds(spec, footprint), footprint)
    assert cut is not None
    assert cut.block_bytes == 16 * 65_536
    assert int(left * GIB) // cut.block_bytes == pytest.approx(3852, rel=0.001)
    assert 3852 * cut.block_tokens == 61_632
    assert 3852 / cut.blocks_for(40_000, 2048) == pytest.approx(1.54, abs=0.005)


def test_vllm_16570_budget() -> None:
    assert gib_left(39.38, 0.95, 34.43, 0.43, 2.51) == pytest.approx(0.04, abs=0.005)


def test_up_a16_graphs_lie_outside_the_budget_of_old_releases() -> None:
    old = plan(known("qwen2.5-14b"), card(15.77, 2), {"tensor-parallel-size": 2, "max-model-len": 4096}, "0.6.3")
    new = plan(known("qwen2.5-14b"), card(15.77, 2), {"tensor-parallel-size": 2, "max-model-len": 4096}, "0.33.0")
    assert 0.7 * GIB < old.outside < 3 * GIB
    assert old.term("CUDA graphs") == 0
    assert new.outside == 0
    assert new.term("CUDA graphs") == old.outside


def test_deepseek_r1_in_fp8_needs_more_than_eight_cards_of_80_gb() -> None:
    found = plan(known("deepseek-r1"), parse_hardware("h100x8"), {"tensor-parallel-size": 8, "max-model-len": 4096})
    assert found.weights / GIB > 78.1, "671e9 bytes / 8, and the latent projections whole on each rank"
    assert found.weights > found.budget
    assert found.verdict == "does_not_fit"


@pytest.mark.parametrize(
    ("alias", "kib"), [("llama-2-7b", 512), ("qwen1.5-7b", 512), ("llama-3-70b", 320), ("qwen3-1.7b", 112)],
    ids=["UP-A09", "UP-A10", "UP-A11", "UP-A45"],
)
def test_bytes_of_a_token_of_known_models(alias: str, kib: int) -> None:
    assert kv_bytes_per_token(known(alias), Footprint(kv_bits=16)) == kib * 1024


def test_up_a45_a_small_context_needs_little_and_the_rest_can_be_left() -> None:
    found = plan(known("qwen3-1.7b"), card(23.6), {"max-num-seqs": 1, "max-model-len": 1024})
    assert found.kv_for_one == 64 * 16 * 114_688
    assert found.available > 100 * found.kv_for_one
    stated = plan(known("qwen3-1.7b"), card(23.6), {"max-num-seqs": 1, "max-model-len": 1024, "kv-cache-memory-bytes": "1G"})
    assert stated.available == GIB
    assert stated.kv_tokens == pytest.approx(GIB / 114_688, rel=0.02)


def test_up_a13_a_405b_does_not_hold_its_full_context() -> None:
    found = plan(known("llama-3.1-405b-fp8"), parse_hardware("h100x8"), {"tensor-parallel-size": 8}, "0.5.3")
    assert found.kv_per_token == 64_512
    assert found.kv_for_one == pytest.approx(7.88 * GIB, rel=0.001)
    assert found.verdict == "does_not_fit"
    chunked = {"tensor-parallel-size": 8, "enable-chunked-prefill": True}
    assert plan(known("llama-3.1-405b-fp8"), parse_hardware("h100x8"), chunked, "0.5.3").verdict == "fits"


# --- releases


def test_up_a15_a_plan_is_for_one_release_and_says_so() -> None:
    settings = {"gpu-memory-utilization": 0.95, "max-model-len": 8192, "enforce-eager": True}
    before = plan(known("qwen2.5-72b-gptq"), card(47.74), settings, "0.6.3.post1")
    after = plan(known("qwen2.5-72b-gptq"), card(47.74), settings, "0.6.4.post1")
    assert "PREDICTED for 0.6.3.post1" in before.text
    assert "PREDICTED for 0.6.4.post1" in after.text
    assert after.available < before.available - GIB


@pytest.mark.parametrize(
    ("version", "scope", "default"),
    [
        ("0.6.3.post1", "instance", 0.9), ("0.6.4.post1", "device", 0.9), ("0.7.3", "instance", 0.9),
        ("0.8.0", "device", 0.9), ("0.9.1", "instance", 0.9), ("0.19.1", "instance", 0.9), ("0.20.0", "instance", 0.92),
        ("0.33.0", "instance", 0.92),
    ],
    ids=["UP-A03", "UP-A03-after", "fixed", "UP-A05", "UP-A05-fixed", "old-default", "new-default", "now"],
)
def test_meaning_of_the_utilization(version: str, scope: str, default: float) -> None:
    row = utilization(version)
    assert (row["scope"], row["default"]) == (scope, default)
    assert row["checked"]


SECOND = {"gpu-memory-utilization": 0.2, "max-model-len": 4096}


def test_up_a04_a_second_server_needs_the_cumulative_fraction_where_the_device_is_meant() -> None:
    first = int(0.75 * 79.15 * GIB)
    alone = plan(known("qwen2.5-14b", quantization="gptq", quantization_bits=4.0, quantization_group=128), card(79.15),
                 SECOND, "0.6.3.post1", others_bytes=first)
    shared = plan(known("qwen2.5-14b", quantization="gptq", quantization_bits=4.0, quantization_group=128), card(79.15),
                  SECOND, "0.6.4.post1", others_bytes=first)
    cumulative = plan(known("qwen2.5-14b", quantization="gptq", quantization_bits=4.0, quantization_group=128),
                      card(79.15), {**SECOND, "gpu-memory-utilization": 0.95}, "0.6.4.post1", others_bytes=first)
    assert alone.verdict == "fits"
    assert shared.verdict == "does_not_fit"
    assert cumulative.verdict != "does_not_fit"
    assert any("everything on it" in note for note in shared.notes)


def test_up_a05_two_small_servers_on_one_card() -> None:
    first = int(0.2 * 44.42 * GIB)
    assert plan(known("tinyllama-1.1b"), card(44.42), {"gpu-memory-utilization": 0.2}, "0.8.0",
                others_bytes=first).verdict != "fits"
    assert plan(known("tinyllama-1.1b"), card(44.42), {"gpu-memory-utilization": 0.3}, "0.9.1",
                others_bytes=first).verdict == "fits"


def test_up_a06_each_process_has_a_fixed_cost() -> None:
    found = plan(known("qwen2.5-0.5b"), card(7.75), {"gpu-memory-utilization": 0.4, "max-model-len": 4096}, "0.9.0")
    assert found.budget == int(int(7.75 * GIB) * 0.4)
    assert found.term("libraries") > 0.1 * GIB
    assert found.outside > 0.3 * GIB


def test_less_free_than_asked_for_is_refused() -> None:
    found = plan(known("qwen2.5-0.5b"), card(22.05), {}, "0.33.0", others_bytes=3 * GIB)
    assert found.available < 0
    assert any("the start is refused" in note for note in found.notes)


@pytest.mark.parametrize(
    ("version", "gib", "context", "sequences", "tokens"),
    [
        ("0.6.4", 79, 8192, 256, 8192), ("0.6.4", 79, 65536, 256, 2048), ("0.5.3", 79, 65536, 256, 65536),
        ("0.8.5", 44, 40960, 1024, 2048), ("0.11.0", 79, 40960, 1024, 8192), ("0.11.0", 23, 40960, 256, 2048),
        ("0.33.0", 178, 40960, 1024, 16384), ("0.33.0", 79, 40960, 1024, 8192), ("0.33.0", 22, 4096, 256, 2048),
    ],
    ids=["whole-prompts", "chunks-of-long", "UP-A13-batch", "UP-A18", "h100", "small", "b200", "now", "now-small"],
)
def test_batch_defaults(version: str, gib: float, context: int, sequences: int, tokens: int) -> None:
    gpu = Gpu(name="GPU", memory_bytes=int(gib * GIB))
    found = batch(plans.hub_model(), Footprint(version=version, max_context=context), gpu)
    assert (found.sequences, found.tokens) == (sequences, tokens)


def test_an_a100_counts_as_small_for_batches() -> None:
    gpu = Gpu(name="NVIDIA A100-SXM4-80GB", memory_bytes=79 * GIB)
    found = batch(plans.hub_model(), Footprint(version="0.33.0"), gpu)
    assert (found.sequences, found.tokens) == (256, 2048)


def test_up_a12_more_context_is_less_cache_in_old_releases_and_not_in_new_ones() -> None:
    def caches(version: str) -> list[int]:
        return [
            plan(known("llama-3.1-8b"), card(23.57), {"max-model-len": length}, version).available
            for length in (8192, 20000, 29000)
        ]

    old, new = caches("0.6.4"), caches("0.33.0")
    assert old[0] > old[1] > old[2]
    assert old[1] - old[2] == pytest.approx(0.92 * GIB, rel=0.01), "vllm issue 10517: 3.81 to 2.89 GiB"
    assert len(set(new)) == 1


def test_sequences_cost_cache() -> None:
    few = plan(known("qwen2.5-7b"), parse_hardware("h100"), {"max-num-seqs": 256})
    many = plan(known("qwen2.5-7b"), parse_hardware("h100"), {"max-num-seqs": 1024})
    assert GIB < few.available - many.available < 2.0 * GIB


def test_up_a18_defaults_of_a_release_decide() -> None:
    settings = {"tensor-parallel-size": 2, "max-model-len": 16384}
    early = plan(known("qwen3-32b"), parse_hardware("l20x2"), settings, "0.7.3")
    later = plan(known("qwen3-32b"), parse_hardware("l20x2"), settings, "0.8.5")
    limited = plan(known("qwen3-32b"), parse_hardware("l20x2"), {**settings, "max-num-seqs": 256}, "0.8.5")
    assert later.available < early.available - 3 * GIB
    assert limited.available > later.available + 3 * GIB


# --- layouts of the cache


def test_up_a24_windows_are_neither_zero_nor_full() -> None:
    spec, footprint = known("gemma-4-31b"), Footprint(kv_bits=16, version="0.33.0")
    kinds = kv.layer_kinds(spec, footprint)
    cut = kv.pool(kinds, footprint)
    assert cut is not None
    assert {kind.letter: kind.layers for kind in kinds} == {"f": 10, "s": 50}
    assert {kind.letter: kind.bytes_per_token for kind in kinds} == {"f": 4 * 1024 * 2, "s": 16 * 512 * 2}
    long = cut.blocks_for(131_072, 2048) * cut.block_bytes
    full_only = 131_072 * 10 * 8192
    every_layer = full_only + 131_072 * 50 * 16_384
    assert full_only < long < full_only + 50 * 16_384 * 3200
    assert long < every_layer / 5


def test_windows_count_in_full_before_layers_were_grouped() -> None:
    spec = known("gemma-3-27b")
    old = plan(spec, parse_hardware("h100"), {"max-model-len": 32768, "max-num-batched-tokens": 4096}, "0.7.3")
    new = plan(spec, parse_hardware("h100"), {"max-model-len": 32768, "max-num-batched-tokens": 4096}, "0.19.0")
    assert (old.kv_for_one or 0) > 2 * (new.kv_for_one or 0)


def test_layers_are_padded_to_groups() -> None:
    """62 layers, 10 of them full: seven groups of ten (vLLM 0.19.0 held 36,560 tokens in 19.53 GiB)."""
    footprint = Footprint(kv_bits=16, version="0.19.0")
    cut = kv.pool(kv.layer_kinds(known("gemma-3-27b"), footprint), footprint)
    assert cut is not None
    assert (cut.group_layers, cut.group_count) == (10, 7)
    assert int(19.53 * GIB) // cut.block_bytes // 7 * 16 == pytest.approx(36_560, rel=0.001)


def test_latent_attention_is_one_vector_and_whole_on_every_rank() -> None:
    for ranks in (1, 2, 8):
        assert kv_bytes_per_token(known("deepseek-v2-lite"), Footprint(kv_bits=16, tensor_parallel=ranks)) == 27 * 576 * 2
    shared = Footprint(kv_bits=16, tensor_parallel=8, context_parallel=8)
    assert kv_bytes_per_token(known("kimi-k2.5"), shared) == 61 * 576 * 2 // 8


def test_sparse_attention_keeps_an_index() -> None:
    assert kv_bytes_per_token(known("deepseek-v3.2"), Footprint(kv_bits=16)) == 61 * (576 * 2 + 128 + 4)
    footprint = Footprint(kv_bits=8, kv_dtype="fp8_ds_mla")
    assert kv_bytes_per_token(known("deepseek-v3.2"), footprint) == 61 * (656 + 128 + 4)


@pytest.mark.parametrize(
    ("kv_dtype", "per_head"),
    [("auto", 512), ("fp8", 256), ("nvfp4", 144), ("int8_per_token_head", 264), ("int4_per_token_head", 136)],
)
def test_types_of_the_cache_with_their_scales(kv_dtype: str, per_head: int) -> None:
    spec = known("llama-3-8b")
    footprint = ENGINES["vllm"].footprint(spec, plans.config(("kv-cache-dtype", kv_dtype), version="0.33.0"))
    assert kv_bytes_per_token(spec, footprint) == 32 * 8 * per_head


def test_a_checkpoint_can_ask_for_an_fp8_cache() -> None:
    assert kv_bytes_per_token(known("llama-3.1-70b-fp8"), Footprint(kv_bits=16)) == 80 * 8 * 256
    before = Footprint(kv_bits=16, version="0.9.0")
    assert kv_bytes_per_token(known("llama-3.1-70b-fp8"), before) == 80 * 8 * 512


def test_keys_and_values_of_different_size() -> None:
    kinds = kv.layer_kinds(known("mimo-v2-flash"), Footprint(kv_bits=16, tensor_parallel=4))
    assert {kind.letter: kind.bytes_per_token for kind in kinds} == {"f": (192 + 128) * 2, "s": 2 * (192 + 128) * 2}


def test_up_a19_states_bound_the_sequences() -> None:
    settings = {"max-num-seqs": 1024, "gpu-memory-utilization": 0.95}
    found = plan(known("qwen3.6-27b-fp8"), parse_hardware("h100"), settings, "0.20.0")
    assert found.blocks == pytest.approx(856, rel=0.1), "the engine said 856"
    assert found.block_tokens == 784
    assert found.state_shortage(1024)
    assert not found.state_shortage(512)
    outcome = screen(plans.config(*settings.items(), version="0.20.0"), known("qwen3.6-27b-fp8"), parse_hardware("h100"))
    assert outcome is not None
    assert (outcome.rule, "PREDICTED" in outcome.reason) == ("mamba_blocks", True)
    fewer = plans.config(("max-num-seqs", 512), ("gpu-memory-utilization", 0.95), version="0.20.0")
    assert screen(fewer, known("qwen3.6-27b-fp8"), parse_hardware("h100")) is None


def test_states_bound_sequences_only_where_graphs_are_captured() -> None:
    settings = {"max-num-seqs": 4096, "gpu-memory-utilization": 0.95}
    assert plan(known("qwen3.6-27b"), parse_hardware("h200"), settings).state_shortage(4096)
    assert not plan(known("qwen3.6-27b"), parse_hardware("h200"), {**settings, "enforce-eager": True}).state_shortage(4096)
    assert not plan(known("qwen3.6-27b"), parse_hardware("h200"), settings, "0.17.0").state_shortage(4096)
    assert not plan(known("llama-3-8b"), parse_hardware("h200"), settings).state_shortage(100_000)


def test_up_a20_the_note_names_how_many_sequences_fit() -> None:
    found = plan(known("qwen3.6-35b-a3b"), parse_hardware("h100"), {"max-model-len": 65536})
    assert any(f"set {found.blocks} or less" in note for note in found.notes)


def test_up_a21_a_hybrid_on_a_full_card_runs_few_sequences() -> None:
    found = plan(known("qwen3.6-35b-a3b"), parse_hardware("h100"), {"max-model-len": 131072}, "0.20.0")
    assert 32 < found.blocks < 256
    assert found.state_shortage(256)
    assert not found.state_shortage(32)


def test_up_a22_only_full_attention_layers_of_a_hybrid_grow() -> None:
    spec = known("qwen3.6-27b")
    assert spec.layer_kinds.count("f") == 16
    per_token = kv_bytes_per_token(spec, Footprint(kv_bits=8.5))
    assert per_token == int(16 * 4 * 512 * 8.5 / 8)
    weights = 16.8e9 * 0.93
    assert (weights + 65_536 * per_token) / GIB == pytest.approx(17.6, rel=0.1)


def test_a_state_does_not_grow_with_the_context() -> None:
    short = plan(known("nemotron-h-56b"), parse_hardware("h200"), {"max-model-len": 2048})
    long = plan(known("nemotron-h-56b"), parse_hardware("h200"), {"max-model-len": 8192})
    assert (long.kv_for_one or 0) < 2 * (short.kv_for_one or 0)


# --- weights


@pytest.mark.parametrize(
    ("alias", "gib"),
    [
        ("llama-3.1-8b", 14.99), ("llama-3.1-8b-w8a8", 8.49), ("llama-3.1-8b-w4a16", 5.38), ("gpt-oss-120b", 65.97),
        ("gemma-2-27b", 50.72), ("qwen3-30b-a3b", 56.88), ("qwen2.5-7b-awq", 5.2),
    ],
)
def test_weights_that_engines_logged(alias: str, gib: float) -> None:
    found = total_bytes(known(alias), Footprint(version="0.19.0"))
    assert found is not None
    assert found.bytes / GIB == pytest.approx(gib, rel=0.015)


@pytest.mark.parametrize("alias", [alias for alias, row in MODELS.items() if row.get("parameters", 0) > 0])
def test_weights_of_every_counted_model(alias: str) -> None:
    spec = known(alias)
    found = total_bytes(spec, Footprint())
    if spec.quantization is not None and spec.quantization_bits is None:
        assert found is None
        return
    assert found is not None
    assert spec.parameters is not None
    assert 0.5 <= found.bytes / spec.parameters <= 2.01
    assert f"{spec.parameters - (spec.expert_parameters or 0):,}" or found.text


def test_data_parallel_ranks_split_the_experts_and_copy_the_rest() -> None:
    alone = plan(known("deepseek-r1"), parse_hardware("h200x8"), {"tensor-parallel-size": 8})
    spread = plan(known("deepseek-r1"), parse_hardware("h200x8"), {"data-parallel-size": 8, "enable-expert-parallel": True})
    rest = known("deepseek-r1").parameters or 0
    rest -= known("deepseek-r1").expert_parameters or 0
    assert spread.weights > alone.weights
    assert spread.weights == pytest.approx(653.9e9 / 8 + rest * 1.05, rel=0.03)
    dense = plan(known("llama-3-8b"), parse_hardware("h100x8"), {"data-parallel-size": 8})
    assert dense.weights == plan(known("llama-3-8b"), parse_hardware("h100"), {}).weights


def test_a_draft_is_said_to_be_missing() -> None:
    found = plan(known("llama-3-8b"), card(80), {"spec-method": "draft_model", "spec-model": "a/b", "spec-tokens": 4})
    assert any("draft model are not counted" in note for note in found.notes)


def test_stages_of_a_pipeline() -> None:
    assert [part.stop - part.start for part in stage_layers(32, 4)] == [8, 8, 8, 8]
    assert [part.stop - part.start for part in stage_layers(30, 4)] == [7, 8, 8, 7]
    assert [part.stop - part.start for part in stage_layers(61, 2)] == [31, 30]


@given(st.integers(1, 200), st.integers(1, 16))
def test_stages_hold_every_layer_once(layers: int, stages: int) -> None:
    parts = stage_layers(layers, stages)
    assert [index for part in parts for index in range(layers)[part]] == list(range(layers))


def test_the_last_stage_is_the_fullest() -> None:
    """llm-d-planner, 8B on four stages of 0.19.0: 2,257,264 tokens."""
    spec = known("llama-3.1-8b")
    footprint = Footprint(pipeline_parallel=4, weight_bits=16, kv_bits=16, memory_fraction=0.95, max_context=8192,
                          max_sequences=1024, batched_tokens=8192, version="0.19.0")
    found = memory_plan(spec, footprint, card(79.19, 4))
    assert isinstance(found, MemoryPlan)
    assert found.kv_tokens == pytest.approx(2_257_264, rel=0.01)


def test_up_a29_adapters_take_memory() -> None:
    settings = {"tensor-parallel-size": 4, "max-model-len": 4096}
    adapters = {**settings, "enable-lora": True, "max-loras": 4, "max-lora-rank": 64}
    without = plan(known("qwen2.5-32b"), parse_hardware("rtx4500adax4"), settings)
    found = plan(known("qwen2.5-32b"), parse_hardware("rtx4500adax4"), adapters)
    assert without.available - found.available == found.term("LoRA")
    small = plan(known("qwen2.5-32b"), parse_hardware("rtx4500adax4"), {**adapters, "max-lora-rank": 16})
    assert small.term("LoRA") * 4 == pytest.approx(found.term("LoRA"), rel=0.001)


def test_up_a49_quantizing_needs_more_than_serving() -> None:
    spec = known("llama-3-70b")
    to_quantize = quantizing_bytes(spec, 8) or 0
    assert to_quantize == pytest.approx(210e9, rel=0.01)
    assert to_quantize > 2 * 79.19 * GIB
    assert to_quantize < 4 * 79.19 * GIB
    assert plan(spec, parse_hardware("h100x2"), {"tensor-parallel-size": 2, "quantization": "fp8"}).verdict == "fits"


def test_up_a40_the_step_is_a_term_of_its_own() -> None:
    settings = {"tensor-parallel-size": 8, "pipeline-parallel-size": 2, "max-model-len": 131072}
    small = plan(known("deepseek-r1"), parse_hardware("h200x16"), {**settings, "max-num-batched-tokens": 8192})
    large = plan(known("deepseek-r1"), parse_hardware("h200x16"), {**settings, "max-num-batched-tokens": 65536})
    assert large.term("activation peak") > small.term("activation peak") + 5 * GIB


# --- a share of the free memory


def test_the_two_fractions_are_not_one_number() -> None:
    device, used = 80 * GIB, 40 * GIB
    assert kv_bytes_of(device, used, 0.9) == 36 * GIB
    assert utilization_for(device, used, 36 * GIB) == pytest.approx(0.95)
    assert fraction_for(device, used, 36 * GIB) == pytest.approx(0.9)
    assert kv_bytes_of(device, used, 0.9, max_tokens=1000, bytes_per_token=GIB / 1000) == GIB
    assert kv_bytes_of(device, 90 * GIB, 0.9) == -10 * GIB
    assert fraction_for(device, used, 50 * GIB) is None
    assert utilization_for(device, used, 50 * GIB) is None


@given(st.integers(1, 200), st.integers(0, 300), st.floats(0.01, 1.0))
def test_a_fraction_and_back(device: int, used: int, fraction: float) -> None:
    cache = kv_bytes_of(device * GIB, used * GIB, fraction)
    if used < device:
        assert fraction_for(device * GIB, used * GIB, cache) == pytest.approx(fraction, abs=1e-6)
    else:
        assert cache <= 0


def test_up_e06_steps_and_batches_of_a_benchmark_page_cost_memory() -> None:
    base = Footprint(tensor_parallel=8, free_memory_fraction=0.9, weight_bits=16, kv_bits=16, max_context=4096)
    usual = memory_plan(known("llama-3-70b"), base.model_copy(update={"max_sequences": 256, "batched_tokens": 8192}), card(79.2, 8))
    copied = memory_plan(known("llama-3-70b"), base.model_copy(update={"max_sequences": 8192, "batched_tokens": 16384}), card(79.2, 8))
    assert isinstance(usual, MemoryPlan)
    assert isinstance(copied, MemoryPlan)
    assert copied.term("activation peak") > 10 * GIB > 5 * usual.term("activation peak")
    assert copied.available < usual.available - 9 * GIB


def test_a_plan_with_the_free_fraction() -> None:
    spec = known("llama-3-8b")
    found = memory_plan(spec, Footprint(free_memory_fraction=0.9, weight_bits=16, kv_bits=16, max_context=8192), card(80))
    assert isinstance(found, MemoryPlan)
    used = sum(term.bytes for term in found.terms)
    assert found.available == pytest.approx((80 * GIB - used) * 0.9, rel=1e-6)


# --- what is refused, and what is said


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (known("deepseek-v4-flash"), "DeepseekV4ForCausalLM"),
        (plans.hub_model(architecture="BrandNewForCausalLM"), "BrandNewForCausalLM"),
        (plans.hub_model(architecture=None), "not known without its config.json"),
        (plans.hub_model(kv_heads=None), "kv_heads"),
        (plans.hub_model(layer_kinds="f?"), "kinds of layers"),
        (plans.hub_model(parameters=None), "size of the weights"),
        (known("qwen3.6-27b", quantization="modelopt_mixed"), "size of the weights"),
    ],
    ids=["compressed", "unknown", "no-config", "no-heads", "odd-layers", "no-weights", "mixed-bits"],
)
def test_what_is_not_known_is_refused_by_name(spec: ModelSpec, words: str) -> None:
    found = memory_plan(spec, Footprint(), parse_hardware("h100x8"))
    assert isinstance(found, Refused)
    assert words in found.reason
    assert found.fits, "nothing is ruled out by what is not known"


def test_every_term_says_where_it_is_from() -> None:
    found = plan(known("mixtral-8x7b"), parse_hardware("h100x2"), {"tensor-parallel-size": 2})
    assert [term.name for term in found.terms] == [
        "weights", "activation peak", "libraries", "rotary tables", "CUDA graphs",
    ]
    assert all(term.text for term in found.terms)
    assert found.available == found.budget - sum(term.bytes for term in found.terms)
    assert "expert workspaces" in found.terms[1].text
    assert found.version == "0.33.0"
    assert any("constants are of 0.19" in note for note in found.notes)


def test_a_release_whose_logs_were_seen_is_trusted_more() -> None:
    assert plan(known("llama-3-8b"), card(24), version="0.19.0").tolerance < plan(known("llama-3-8b"), card(24)).tolerance


@pytest.mark.parametrize("alias", [alias for alias in MODELS if not alias.startswith("deepseek-v4")])
def test_every_known_model_is_planned_or_refused_by_name(alias: str) -> None:
    spec = known(alias)
    found = memory_plan(spec, Footprint(tensor_parallel=8, max_context=8192, version="0.33.0"), parse_hardware("gb300x8"))
    if isinstance(found, Refused):
        assert spec.name in found.reason
        assert spec.quantization_bits is None
        return
    assert found.kv_per_token
    assert found.concurrency is not None
    assert found.verdict in ("fits", "marginal", "does_not_fit")


@given(
    st.sampled_from(["llama-3-8b", "deepseek-r1", "gemma-3-27b", "qwen3.6-27b", "gpt-oss-20b", "mixtral-8x7b"]),
    st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([64, 256, 1024]),
    st.integers(1, 131_072), st.floats(0.1, 1.0), st.sampled_from(["0.6.0", "0.11.0", "0.19.0", "0.33.0"]),
)
def test_more_memory_never_holds_less(
    alias: str, ranks: int, stages: int, sequences: int, context: int, share: float, version: str
) -> None:
    footprint = Footprint(
        tensor_parallel=ranks, pipeline_parallel=stages, max_sequences=sequences, max_context=context,
        memory_fraction=share, version=version, batched_tokens=4096,
    )
    small = memory_plan(known(alias), footprint, card(60, ranks * stages))
    large = memory_plan(known(alias), footprint, card(69, ranks * stages))
    assert isinstance(small, MemoryPlan)
    assert isinstance(large, MemoryPlan)
    assert large.available >= small.available
    assert large.blocks >= small.blocks
    assert (large.kv_for_one or 0) == (small.kv_for_one or 0)
