"""Memory by arithmetic, against numbers that real engines logged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import plans
from tuner.capacity.memory import MemoryPlan, kv_bytes_per_token, memory_plan
from tuner.capacity.refusal import Refused
from tuner.domain.engine import Footprint
from tuner.domain.hardware import Gpu, Hardware
from tuner.domain.model import ModelSpec
from tuner.facts.catalog import model_by_alias
from tuner.search.screen import screen

pytestmark = pytest.mark.unit

GIB = 1 << 30


def attention(layers: int, kv_heads: int, head_dim: int = 128, **more: Any) -> ModelSpec:
    return plans.hub_model(layers=layers, kv_heads=kv_heads, head_dim=head_dim, **more)


def cards(count: int, gib: float, capability: float = 9.0) -> Hardware:
    gpus = tuple(Gpu(name="GPU", memory_bytes=int(gib * GIB), capability=capability, index=i) for i in range(count))
    return Hardware(kind="cuda", gpus=gpus)


@pytest.mark.parametrize(
    ("spec", "footprint", "bytes_per_token"),
    [
        pytest.param(attention(80, 8), Footprint(), 327_680, id="UP-A15"),
        pytest.param(attention(80, 8), Footprint(), 327_680, id="UP-A11"),
        pytest.param(attention(28, 8), Footprint(), 114_688, id="UP-A45"),
        pytest.param(attention(36, 8), Footprint(), 147_456, id="vllm-42058"),
        pytest.param(attention(36, 8), Footprint(kv_bits=8), 73_728, id="vllm-42058-fp8"),
        pytest.param(attention(126, 8), Footprint(tensor_parallel=8), 64_512, id="UP-A13"),
        pytest.param(attention(32, 32), Footprint(), 524_288, id="UP-A09"),
        pytest.param(attention(32, 32), Footprint(), 524_288, id="UP-A10"),
        pytest.param(attention(80, 8), Footprint(tensor_parallel=16), 40_960, id="heads-are-copied-below-one"),
        pytest.param(attention(7, 8), Footprint(pipeline_parallel=2), 4 * 4096, id="the-longer-stage"),
        pytest.param(attention(30, 3, 64), Footprint(kv_bits=32), 46_080, id="float32"),
    ],
)
def test_kv_bytes_of_a_token(spec: ModelSpec, footprint: Footprint, bytes_per_token: int) -> None:
    assert kv_bytes_per_token(spec, footprint) == bytes_per_token


@pytest.mark.parametrize(
    ("spec", "footprint", "gib", "tokens", "tolerance"),
    [
        pytest.param(attention(80, 8), Footprint(), 0.39, 1280, 0.002, id="UP-A15"),
        pytest.param(attention(28, 8), Footprint(), 18.78, 175_856, 0.001, id="UP-A45"),
        pytest.param(attention(36, 8), Footprint(), 53.54, 389_872, 0.001, id="vllm-42058"),
        pytest.param(attention(36, 8), Footprint(kv_bits=8), 53.54, 779_760, 0.001, id="vllm-42058-fp8"),
        pytest.param(attention(126, 8), Footprint(tensor_parallel=8), 4.77, 79_392, 0.001, id="UP-A13"),
        pytest.param(attention(126, 8), Footprint(tensor_parallel=8), 7.88, 131_072, 0.001, id="UP-A13-needed"),
        pytest.param(attention(80, 8), Footprint(), 1.85, 6048, 0.003, id="UP-A11"),
        pytest.param(attention(32, 32), Footprint(), 3.586, 7344, 0.001, id="UP-A10"),
        pytest.param(attention(32, 32), Footprint(), 1.79, 3664, 0.002, id="UP-A09"),
    ],
)
def test_capacity_that_real_engines_logged(
    spec: ModelSpec, footprint: Footprint, gib: float, tokens: int, tolerance: float
) -> None:
    per_token = kv_bytes_per_token(spec, footprint)
    assert per_token is not None
    assert gib * GIB / per_token == pytest.approx(tokens, rel=tolerance)


def test_kv_bytes_are_unknown_without_an_architecture() -> None:
    assert kv_bytes_per_token(plans.hub_model(layers=None), Footprint()) is None


@given(st.integers(1, 200), st.integers(1, 128), st.sampled_from([64, 128]), st.sampled_from([1, 2, 4, 8]))
def test_more_ranks_never_hold_more(layers: int, kv_heads: int, head_dim: int, ranks: int) -> None:
    spec = attention(layers, kv_heads, head_dim)
    one = kv_bytes_per_token(spec, Footprint())
    split = kv_bytes_per_token(spec, Footprint(tensor_parallel=ranks))
    assert one is not None
    assert split is not None
    assert split <= one
    assert split * min(ranks, kv_heads) >= one - 2 * 2 * layers * head_dim * (kv_heads % ranks)


# --- the plan of one device


def test_terms_of_a_plan() -> None:
    plan = memory_plan(
        plans.hub_model(), Footprint(tensor_parallel=4, weight_bits=16, kv_bits=16, max_context=8192), plans.H100
    )
    assert isinstance(plan, MemoryPlan)
    assert plan.device == int(79.19 * GIB), "what CUDA sees, not the driver's 79.65 GiB"
    assert plan.budget == int(plan.device * 0.92)
    assert plan.weights == 70_600_000_000 * 2 // 4
    assert plan.kv_per_token == 81_920
    assert plan.kv_for_one == 81_920 * 8192
    assert plan.fits
    assert "PREDICTED per device: weights 32.9 + " in plan.text
    assert "GiB, budget 72.9 GiB" in plan.text


@pytest.mark.parametrize(
    ("alias", "hardware", "settings", "fits"),
    [
        pytest.param("llama-3.1-405b", cards(1, 80), {}, False, id="UP-F30"),
        pytest.param("llama-3-70b", cards(1, 80), {}, False, id="70b-one-card"),
        pytest.param("llama-3-70b", cards(2, 80), {"tensor-parallel-size": 2}, True, id="70b-two-cards"),
        pytest.param("llama-3-70b", cards(1, 80), {"quantization": "fp8"}, True, id="70b-fp8"),
        pytest.param("llama-3-70b", cards(4, 24), {"tensor-parallel-size": 4}, False, id="70b-four-small"),
        pytest.param("llama-3-8b", cards(1, 24), {}, True, id="8b"),
        pytest.param("llama-3.1-8b", cards(1, 24), {}, False, id="8b-128k-context-in-24"),
        pytest.param("llama-3.1-8b", cards(1, 24), {"max-model-len": 16384}, True, id="8b-16k-context-in-24"),
        pytest.param("llama-3.1-8b", cards(1, 24), {"max-model-len": "auto"}, True, id="8b-context-that-fits"),
        pytest.param("llama-3-8b", cards(1, 24), {"gpu-memory-utilization": 0.5}, False, id="8b-half-the-card"),
    ],
)
def test_what_clearly_does_not_fit_is_ruled_out(
    alias: str, hardware: Hardware, settings: dict[str, Any], fits: bool
) -> None:
    spec = model_by_alias(alias)
    assert spec is not None
    outcome = screen(plans.config(*settings.items()), spec, hardware)
    if fits:
        assert outcome is None
    else:
        assert outcome is not None
        assert outcome.rule == "memory"
        assert "PREDICTED" in outcome.reason
        assert outcome.fix


def test_the_smallest_card_decides() -> None:
    mixed = Hardware(kind="cuda", gpus=(
        Gpu(name="A", memory_bytes=80 * GIB, capability=9.0),
        Gpu(name="B", memory_bytes=24 * GIB, capability=8.6, index=1)))
    plan = memory_plan(plans.hub_model(), Footprint(), mixed)
    assert isinstance(plan, MemoryPlan)
    assert plan.budget == int(24 * GIB * 0.92)


def test_nothing_is_predicted_for_a_cpu_or_an_unknown_size() -> None:
    for plan in (
        memory_plan(plans.hub_model(), Footprint(), plans.CPU),
        memory_plan(plans.hub_model(parameters=None), Footprint(), plans.H100),
    ):
        assert isinstance(plan, Refused)
        assert plan.reason


def test_files_of_a_quantized_checkpoint_count_as_they_are() -> None:
    spec = plans.hub_model(quantization="awq", weight_bytes=40 * GIB)
    plan = memory_plan(spec, Footprint(weight_bits=4.5), plans.H100)
    assert isinstance(plan, MemoryPlan)
    assert plan.weights == 40 * GIB


def test_a_rule_speaks_before_memory() -> None:
    spec = model_by_alias("llama-3.1-405b")
    assert spec is not None
    outcome = screen(plans.config(("max-num-seqs", 0)), spec, cards(1, 80))
    assert outcome is not None
    assert outcome.rule == "counts_are_positive"


def test_a_warning_rules_nothing_out() -> None:
    spec = model_by_alias("llama-3-8b")
    assert spec is not None
    assert screen(plans.config(("quantization", "fp8")), spec, cards(1, 40, capability=8.0)) is None
