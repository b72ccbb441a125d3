"""Static validity: one table of what each rule says and of what it must leave alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import plans
from tuner.domain.engine import EngineConfig
from tuner.domain.finding import Finding
from tuner.domain.hardware import Gpu, Hardware
from tuner.domain.model import ModelSpec
from tuner.rules import findings

pytestmark = pytest.mark.unit

CPU = plans.CPU
H100 = plans.H100
LLAMA = plans.hub_model(hidden_size=8192)
MOE = plans.hub_model(experts=128)


def gpu(capability: float, count: int = 1) -> Hardware:
    cards = tuple(Gpu(name="GPU", memory_bytes=24 << 30, capability=capability, index=i) for i in range(count))
    return Hardware(kind="cuda", gpus=cards)


def model(**changes: Any) -> ModelSpec:
    return plans.hub_model(**changes)


def found(settings: dict[str, Any], model: ModelSpec = LLAMA, hardware: Hardware = H100) -> tuple[Finding, ...]:
    return findings(plans.config(*settings.items()), model, hardware)


# rule, settings, model, hardware, part of the reason, part of the fix
ERRORS: list[Any] = [
    pytest.param("counts_are_positive", {"max-num-seqs": 0}, LLAMA, CPU, "--max-num-seqs is 0", "1 or more", id="seqs"),
    pytest.param("counts_are_positive", {"tensor-parallel-size": -1}, LLAMA, CPU, "is -1", "1 or more", id="negative"),
    pytest.param("utilization_is_a_fraction", {"gpu-memory-utilization": 1.5}, LLAMA, H100, "1.5", "0.92", id="util"),
    pytest.param("utilization_is_a_fraction", {"gpu-memory-utilization": 0}, LLAMA, H100, "is 0", "0.92", id="util-0"),
    pytest.param(
        "heads_divide", {"tensor-parallel-size": 8}, model(attention_heads=52), H100,
        "52 attention heads cannot be split over --tensor-parallel-size 8", "use 1, 2, 4, 13", id="UP-A30",
    ),
    pytest.param(
        "heads_divide", {"tensor-parallel-size": 3}, model(attention_heads=52), gpu(7.0, 3), "52 attention", "1, 2, 4",
        id="UP-A31",
    ),
    pytest.param(
        "heads_divide", {"tensor-parallel-size": 3}, LLAMA, gpu(8.0, 4), "64 attention", "1, 2, 4, 8", id="UP-A32",
    ),
    pytest.param(
        "world_fits_devices", {"tensor-parallel-size": 4, "data-parallel-size": 4}, LLAMA, H100,
        "16 ranks (tensor x pipeline x data parallel) on 8 GPUs", "lower", id="world",
    ),
    pytest.param(
        "stages_have_layers", {"pipeline-parallel-size": 8}, model(layers=7), H100, "8 pipeline stages for 7 layers",
        "at most 7", id="stages",
    ),
    pytest.param(
        "batch_holds_sequences", {"max-num-batched-tokens": 64, "max-num-seqs": 128}, LLAMA, H100,
        "--max-num-batched-tokens 64 is below --max-num-seqs 128", "128 or more", id="batch-log",
    ),
    pytest.param(
        "batch_holds_sequences", {"max-num-batched-tokens": "1k", "max-num-seqs": 1024}, LLAMA, H100, "1000 is below",
        "1024", id="batch-human",
    ),
    pytest.param(
        "whole_prefill_fits", {"enable-chunked-prefill": False, "max-num-batched-tokens": 8192},
        model(max_context=131072), H100, "8192 is below the context length 131072", "raise it to 131072", id="UP-B24",
    ),
    pytest.param(
        "whole_prefill_fits",
        {"enable-chunked-prefill": False, "max-num-batched-tokens": 2048, "max-model-len": 4096},
        LLAMA, H100, "context length 4096", "4096", id="UP-B24-own-length",
    ),
    pytest.param(
        "context_fits_model", {"max-model-len": 16384}, LLAMA, H100, "16384 is above the model's 8192", "at most 8192",
        id="context",
    ),
    pytest.param("cpu_block_size", {"block-size": 16}, LLAMA, CPU, "multiples of 32", "32, 64", id="block16-log"),
    pytest.param(
        "fp8_kv_needs_kernels", {"kv-cache-dtype": "fp8"}, LLAMA, CPU, "needs AVX-512 or AMX", "leave", id="fp8-cpu"
    ),
    pytest.param(
        "quantization_matches_checkpoint", {"quantization": "fp8"}, model(quantization="awq"), H100,
        "the checkpoint is quantized with awq", "leave --quantization out", id="other-method",
    ),
    pytest.param(
        "quantization_matches_checkpoint", {"quantization": "awq"}, LLAMA, H100,
        "needs a checkpoint quantized that way", "fp8 to quantize while loading", id="awq-log",
    ),
    pytest.param(
        "capability_of_method", {"quantization": "fp8"}, LLAMA, gpu(7.0), "needs compute capability 7.5", "another",
        id="fp8-volta",
    ),
    pytest.param(
        "capability_of_method", {}, model(quantization="awq"), gpu(7.0), "quantization awq needs", "another",
        id="awq-volta",
    ),
    pytest.param("experts_need_moe", {"enable-expert-parallel": True}, LLAMA, H100, "dense model", "leave", id="moe"),
]


@pytest.mark.parametrize(("rule", "settings", "spec", "hardware", "reason", "fix"), ERRORS)
def test_a_configuration_that_cannot_work(
    rule: str, settings: dict[str, Any], spec: ModelSpec, hardware: Hardware, reason: str, fix: str
) -> None:
    errors = [finding for finding in found(settings, spec, hardware) if finding.severity == "error"]
    (finding,) = [finding for finding in errors if finding.rule == rule]
    assert reason in finding.reason
    assert fix in finding.fix
    assert finding.source


FINE: list[Any] = [
    pytest.param({}, LLAMA, H100, id="defaults"),
    pytest.param({}, plans.local_model(), CPU, id="defaults-cpu"),
    pytest.param({"tensor-parallel-size": 8}, LLAMA, H100, id="tp8"),
    pytest.param({"tensor-parallel-size": 4, "pipeline-parallel-size": 2}, LLAMA, H100, id="tp4-pp2"),
    pytest.param({"tensor-parallel-size": 1}, model(attention_heads=9), H100, id="tp1-odd-heads"),
    pytest.param({"tensor-parallel-size": 3}, model(attention_heads=None), H100, id="heads-unknown"),
    pytest.param({"max-num-batched-tokens": 8192}, model(max_context=131072), H100, id="UP-B24-chunked"),
    pytest.param(
        {"enable-chunked-prefill": True, "max-num-batched-tokens": 64, "max-num-seqs": 64}, LLAMA, H100, id="chunked"
    ),
    pytest.param({"max-num-batched-tokens": 64}, LLAMA, H100, id="seqs-unset"),
    pytest.param({"max-model-len": 8192}, LLAMA, H100, id="whole-context"),
    pytest.param({"max-model-len": -1}, LLAMA, H100, id="auto-context"),
    pytest.param({"max-model-len": "auto"}, LLAMA, H100, id="auto-context-word"),
    pytest.param(
        {"max-model-len": 16384, "env:VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}, LLAMA, H100, id="long-context-allowed"
    ),
    pytest.param({"max-model-len": 99999}, model(max_context=None), H100, id="context-unknown"),
    pytest.param({"block-size": 16}, LLAMA, H100, id="block-gpu"),
    pytest.param({"block-size": 64}, LLAMA, CPU, id="block-cpu"),
    pytest.param(
        {"kv-cache-dtype": "fp8"}, LLAMA, CPU.model_copy(update={"cpu_features": ("avx2", "avx512f")}), id="fp8-avx512"
    ),
    pytest.param({"kv-cache-dtype": "bfloat16"}, LLAMA, H100, id="kv-same"),
    pytest.param({"kv-cache-dtype": "auto", "dtype": "half"}, LLAMA, H100, id="kv-auto"),
    pytest.param({"quantization": "fp8"}, LLAMA, H100, id="fp8-while-loading"),
    pytest.param({"quantization": "awq_marlin"}, model(quantization="awq"), H100, id="same-family"),
    pytest.param({"quantization": "auto_awq"}, model(quantization="awq"), H100, id="same-family-auto"),
    pytest.param(
        {"quantization": "modelopt_fp4"}, model(quantization="modelopt"), gpu(10.0), id="same-family-modelopt"
    ),
    pytest.param({"quantization": "moe_wna16"}, model(quantization="awq", experts=8), H100, id="converts-awq"),
    pytest.param({"quantization": "humming"}, model(quantization="gptq"), H100, id="converts-gptq"),
    pytest.param({"quantization": "awq"}, model(architecture=None), H100, id="model-unknown"),
    pytest.param({"enable-expert-parallel": True}, MOE, H100, id="moe"),
    pytest.param({"enable-expert-parallel": True}, model(architecture=None), H100, id="moe-unknown"),
    pytest.param({"enable-expert-parallel": False}, LLAMA, H100, id="moe-off"),
    pytest.param({"gpu-memory-utilization": 1.0}, LLAMA, H100, id="util-1"),
]


@pytest.mark.parametrize(("settings", "spec", "hardware"), FINE)
def test_a_configuration_that_nothing_speaks_against(
    settings: dict[str, Any], spec: ModelSpec, hardware: Hardware
) -> None:
    assert found(settings, spec, hardware) == ()


@pytest.mark.parametrize(
    ("size", "ok"),
    [(1, True), (2, True), (3, False), (4, True), (5, False), (6, False), (7, False), (8, True)],
    ids=lambda value: f"UP-A34-{value}",
)
def test_heads_of_a_real_model_by_size(size: int, ok: bool) -> None:
    spec = model(attention_heads=32, kv_heads=4, experts=128)
    assert (found({"tensor-parallel-size": size}, spec) == ()) is ok


def test_fp8_weights_below_ada_only_warn() -> None:
    (finding,) = found({"quantization": "fp8"}, LLAMA, gpu(8.0))
    assert finding.severity == "warning"
    assert "weight-only" in finding.reason


def test_errors_come_first() -> None:
    severities = [f.severity for f in found({"quantization": "fp8", "max-num-seqs": 0}, LLAMA, gpu(8.0))]
    assert severities == ["error", "warning"]


def test_an_engine_without_rules_has_none() -> None:
    assert findings(EngineConfig(engine="other", version="1"), LLAMA, H100) == ()


@pytest.mark.parametrize("log", ["tp3", "batched", "block16", "awq"])
def test_what_the_real_engine_refused_would_not_have_been_launched(log: str) -> None:
    """The same configurations whose real logs lie in tests/data."""
    tiny = plans.local_model(attention_heads=4, kv_heads=2, quantization=None)
    settings: dict[str, dict[str, Any]] = {
        "tp3": {"tensor-parallel-size": 3}, "batched": {"max-num-batched-tokens": 64, "max-num-seqs": 128},
        "block16": {"block-size": 16}, "awq": {"quantization": "awq"},
    }
    assert any(finding.severity == "error" for finding in found(settings[log], tiny, CPU))


@given(
    st.fixed_dictionaries({}, optional={
        "tensor-parallel-size": st.integers(-2, 9), "pipeline-parallel-size": st.integers(-2, 9),
        "max-num-seqs": st.integers(-1, 99), "max-num-batched-tokens": st.one_of(st.integers(), st.text(max_size=3)),
        "max-model-len": st.one_of(st.integers(), st.sampled_from(["auto", "8k"])),
        "quantization": st.text(max_size=4), "gpu-memory-utilization": st.floats(allow_nan=False),
        "block-size": st.integers(0, 300), "kv-cache-dtype": st.text(max_size=4), "dtype": st.text(max_size=4),
    }),
    st.sampled_from([LLAMA, plans.local_model(), ModelSpec(requested="x/y", name="y", location="x/y", source="hub")]),
    st.sampled_from([CPU, H100, gpu(7.0)]),
)
def test_rules_answer_any_configuration(settings: dict[str, Any], spec: ModelSpec, hardware: Hardware) -> None:
    for finding in found(settings, spec, hardware):
        assert finding.reason
        assert finding.fix
