"""Rules of vLLM that need the checkpoint, the GPU or the release: what cannot work, what changes in silence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import plans
from tests.unit.test_rules import ERRORS as PLAIN_ERRORS
from tuner.domain.finding import Finding
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.facts.catalog import model_by_alias
from tuner.facts.gpus import parse_hardware
from tuner.facts.read import data
from tuner.rules import RULES, findings
from tuner.rules.vllm.serving import rank_is_needed

pytestmark = pytest.mark.unit

H100, H200X8, B200 = parse_hardware("h100"), parse_hardware("h200x8"), parse_hardware("b200")
A100, RTX3090, RTX4090 = parse_hardware("a100"), parse_hardware("rtx3090"), parse_hardware("rtx4090")
T4, V100, TURING, PASCAL = (parse_hardware(name) for name in ("t4", "v100", "2080ti", "p100"))
EIGHT = parse_hardware("h100x8")
LLAMA = plans.hub_model(vocab_size=128256, hidden_size=8192, intermediate_size=28672)


def known(alias: str, **changes: Any) -> ModelSpec:
    spec = model_by_alias(alias)
    assert spec is not None
    return spec.model_copy(update=changes)


def found(
    settings: dict[str, Any], spec: ModelSpec = LLAMA, hardware: Hardware = H100, version: str = "0.33.0"
) -> tuple[Finding, ...]:
    return findings(plans.config(*settings.items(), version=version), spec, hardware)


def said(rule: str, *args: Any, **more: Any) -> Finding:
    (one,) = [finding for finding in found(*args, **more) if finding.rule == rule]
    return one


AWQ_72B = known("qwen2.5-72b", quantization="awq", quantization_group=128, quantization_bits=4.0)
AWQ_MOE = known("qwen3-30b-a3b", quantization="awq", quantization_group=128, quantization_bits=4.0)
FP8_MOE = plans.hub_model(
    attention_heads=48, experts=256, moe_intermediate_size=1536, quantization="fp8", quantization_block=(128, 128)
)
FP8_30B = known("qwen3-30b-a3b-fp8")

# rule, severity, settings, model, hardware, version, part of the reason, part of the fix
ROWS: list[Any] = [
    # counts
    pytest.param("prefill_threshold_fits", "error", {"long-prefill-token-threshold": 9000}, LLAMA, H100, "0.33.0",
                 "9000 is above the context 8192", "at most 8192", id="threshold"),
    pytest.param("batch_can_be_filled", "warning",
                 {"max-num-batched-tokens": 65536, "max-num-seqs": 4, "max-model-len": 8192}, LLAMA, H100, "0.33.0",
                 "never be filled", "32768", id="batch-too-large"),
    pytest.param("whole_prompts_before_chunks", "warning", {"max-model-len": 29000}, known("llama-3.1-8b"), RTX3090,
                 "0.6.4", "shrinks with the context 29000", "--enable-chunked-prefill", id="UP-A12"),
    pytest.param("whole_prompts_before_chunks", "warning", {"tensor-parallel-size": 8}, known("llama-3.1-405b-fp8"),
                 EIGHT, "0.5.3", "131072", "lower --max-model-len", id="UP-A13"),
    # quantized weights against tensor parallelism
    pytest.param("groups_divide", "error", {"tensor-parallel-size": 2}, AWQ_72B, EIGHT, "0.33.0",
                 "29568 inputs = 231 groups of 128", "--tensor-parallel-size 1,", id="vllm-21695"),
    pytest.param("groups_divide", "error", {"tensor-parallel-size": 4}, AWQ_MOE, EIGHT, "0.9.0", "an expert",
                 "1, 2,", id="UP-A34-4"),
    pytest.param("groups_divide", "error", {"tensor-parallel-size": 8}, AWQ_MOE, EIGHT, "0.9.0", "768 inputs",
                 "1, 2,", id="UP-A34-8"),
    pytest.param("blocks_divide", "error", {"tensor-parallel-size": 8}, FP8_MOE, EIGHT, "0.25.0",
                 "192 of 1536 weights", "1, 2, 3, 4, 6, 12, or --enable-expert-parallel", id="UP-A36-8"),
    pytest.param("blocks_divide", "warning", {"tensor-parallel-size": 8}, FP8_MOE, EIGHT, "0.32.0",
                 "refines the scales or pads", "", id="UP-A36-8-pads"),
    pytest.param("blocks_divide", "error", {"tensor-parallel-size": 4}, FP8_30B, EIGHT, "0.10.0",
                 "192 of 768 weights", "1, 2,", id="vllm-25292"),
    pytest.param("balancing_needs_expert_parallel", "error", {"enable-eplb": True}, FP8_MOE, EIGHT, "0.33.0",
                 "without --enable-expert-parallel", "add", id="eplb"),
    pytest.param("context_parallel_divides", "error",
                 {"tensor-parallel-size": 8, "decode-context-parallel-size": 2}, LLAMA, EIGHT, "0.33.0",
                 "8 ranks hold 8 KV heads 1 times", "at most 1", id="dcp-gqa"),
    pytest.param("context_parallel_divides", "error",
                 {"tensor-parallel-size": 8, "decode-context-parallel-size": 3}, known("deepseek-r1"), H200X8, "0.33.0",
                 "does not divide", "divisor", id="dcp-divisor"),
    pytest.param("context_parallel_divides", "error",
                 {"tensor-parallel-size": 24, "decode-context-parallel-size": 3},
                 plans.hub_model(attention_heads=24, kv_heads=6), parse_hardware("h100x24"), "0.33.0",
                 "4 query heads for each KV head", "divisor of 4", id="dcp-queries"),
    # types
    pytest.param("kv_dtype_matches", "error", {"kv-cache-dtype": "float16"}, LLAMA, H100, "0.33.0", "runs in bfloat16",
                 "auto", id="kv-dtype"),
    pytest.param("kv_dtype_matches", "error", {"kv-cache-dtype": "bfloat16", "dtype": "half"}, LLAMA, H100, "0.33.0",
                 "runs in float16", "auto", id="kv-dtype-own"),
    pytest.param("kv_dtype_matches", "warning", {"kv-cache-dtype": "float16"}, LLAMA, H100, "0.32.0",
                 "runs in bfloat16", "auto", id="kv-dtype-before"),
    pytest.param("quantization_is_known", "error", {"quantization": "foo"}, LLAMA, H100, "0.33.0",
                 "not a quantization method", "fp8", id="foo"),
    pytest.param("quantization_is_known", "error", {"quantization": "bitsandbytes"}, LLAMA, H100, "0.28.0",
                 "0.27.1 was the last", "vllm-bnb-plugin", id="bitsandbytes"),
    pytest.param("quantization_is_known", "error", {}, known("llama-3-8b", quantization="gguf"), H100, "0.24.0",
                 "0.23.0 was the last", "llama.cpp", id="gguf"),
    pytest.param("quantization_is_known", "error", {"quantization": "fp8_per_block"}, LLAMA, H100, "0.10.0",
                 "since 0.20.0", "0.20.0 or later", id="too-early"),
    pytest.param("quantization_is_not_deprecated", "error", {}, known("llama-3.1-405b-fp8"), EIGHT, "0.33.0",
                 "fbgemm_fp8 is deprecated", "--allow-deprecated-quantization", id="fbgemm"),
    pytest.param("fp4_needs_blackwell", "warning", {}, known("gemma-4-31b-nvfp4"), H100, "0.33.0", "weight-only",
                 "not speed", id="UP-E16-hopper"),
    pytest.param("bfloat16_needs_ampere", "error", {}, known("llama-3-8b"), T4, "0.2.0", "the GPU has 7.5",
                 "--dtype half", id="UP-B16-t4"),
    pytest.param("bfloat16_needs_ampere", "error", {"dtype": "bfloat16"}, known("llama-3-8b"), V100, "0.33.0",
                 "the GPU has 7.0", "not --dtype float", id="UP-B16-v100"),
    pytest.param("bfloat16_needs_ampere", "warning", {}, known("llama-3-8b"), TURING, "0.33.0",
                 "runs the checkpoint in float16", "--dtype half", id="UP-B16-falls-back"),
    pytest.param("gpu_is_supported", "error", {}, known("llama-3-8b", dtype="float16"), PASCAL, "0.33.0",
                 "6.0 is below 7.0", "llama.cpp", id="UP-B17"),
    pytest.param("awq_needs_half", "error", {"dtype": "bfloat16"}, known("llama-3-8b", quantization="awq"), A100,
                 "0.2.2", "takes float16", "--dtype half", id="UP-B23"),
    # attention
    pytest.param("backend_fits", "error", {"attention-backend": "FLASH_ATTN", "kv-cache-dtype": "fp8"}, LLAMA, A100,
                 "0.33.0", "no fp8 KV cache on compute capability 8.0", "FLASHINFER", id="flash-ampere-fp8"),
    pytest.param("backend_fits", "error",
                 {"env:VLLM_ATTENTION_BACKEND": "FLASH_ATTN", "kv-cache-dtype": "fp8"},
                 known("llama-3.1-70b"), H200X8, "0.7.0", "no fp8 KV cache", "leave", id="UP-B20"),
    pytest.param("backend_fits", "error", {"attention-backend": "FLASHMLA", "block-size": 16}, known("deepseek-r1"),
                 H200X8, "0.33.0", "blocks of 64, not 16", "FLASH_ATTN_MLA", id="flashmla-block"),
    pytest.param("backend_fits", "error", {"attention-backend": "FLASHINFER"}, known("phi-2"), H100, "0.33.0",
                 "heads of 80", "FLASH_ATTN", id="head-size"),
    pytest.param("backend_fits", "error", {"attention-backend": "FLASH_ATTN"}, known("deepseek-r1"), H200X8, "0.33.0",
                 "latent attention", "FLASH_ATTN_MLA", id="plain-for-latent"),
    pytest.param("backend_fits", "error", {"attention-backend": "CUTLASS_MLA"}, known("deepseek-r1"), H200X8, "0.33.0",
                 "compute capability 9.0", "leave", id="cutlass-hopper"),
    pytest.param("backend_fits", "error", {"attention-backend": "TRITON_ATTN", "kv-cache-dtype": "fp8"}, LLAMA, RTX3090,
                 "0.33.0", "fp8e4nv", "FLASHINFER", id="UP-B19-triton"),
    pytest.param("some_backend_fits", "error", {"block-size": 17}, LLAMA, H100, "0.33.0", "--block-size 17",
                 "16, 32 or 64", id="block-17"),
    pytest.param("some_backend_fits", "warning", {"kv-cache-dtype": "fp8_e5m2"}, LLAMA, H100, "0.33.0",
                 "FLASHINFER instead of FLASH_ATTN", "compare", id="e5m2-changes-backend"),
    pytest.param("some_backend_fits", "warning", {"block-size": 16}, known("deepseek-r1"), B200, "0.33.0",
                 "TRITON_MLA instead of FLASHINFER_MLA", "compare", id="mla-block"),
    pytest.param("e5m2_needs_plain_checkpoint", "error", {"kv-cache-dtype": "fp8_e5m2"},
                 known("llama-3.1-8b-w8a8"), RTX3090, "0.22.0", "compressed-tensors checkpoint", "int8_per_token_head",
                 id="UP-B22"),
    pytest.param("fp8_kv_has_scales", "warning", {"kv-cache-dtype": "fp8"}, LLAMA, H100, "0.33.0", "1.0 is used",
                 "quality", id="fp8-scales"),
    pytest.param("e4m3_kernels_exist", "warning", {"kv-cache-dtype": "fp8"}, known("llama-3-8b"), RTX3090, "0.11.0",
                 "fp8e4nv", "fp8_e5m2", id="UP-B19"),
    pytest.param("latent_takes_no_fp4", "error", {"kv-cache-dtype": "nvfp4"}, known("deepseek-r1"), B200, "0.33.0",
                 "latent attention", "fp8 or auto", id="nvfp4-mla"),
    pytest.param("sinks_need_kernels", "error", {}, known("gpt-oss-120b"), RTX4090, "0.10.1", "attention sinks",
                 "0.11.0 or later", id="UP-B27"),
    pytest.param("hybrid_block_is_overridden", "warning", {"block-size": 16}, known("qwen3.6-27b"), H100, "0.33.0",
                 "keeps states", "leave --block-size out", id="hybrid-block"),
    pytest.param("backend_is_named_once", "error",
                 {"attention-backend": "FLASH_ATTN", "attention-config": '{"backend": "FLASHINFER"}'}, LLAMA, H100,
                 "0.33.0", "--attention-config", "keep one", id="backend-twice"),
    # serving
    pytest.param("draft_matches_target", "error",
                 {"speculative-config": '{"method": "draft_model", "model": "Qwen/Qwen2.5-0.5B-Instruct",'
                                        ' "num_speculative_tokens": 5}'},
                 known("qwen2.5-72b"), EIGHT, "0.33.0", "151936 tokens, the target 152064", "same family", id="draft"),
    pytest.param("draft_matches_target", "error", {"spec-model": "tinyllama-1.1b", "spec-method": "draft_model"},
                 known("llama-3-8b"), H100, "0.33.0", "32000 tokens", "use_heterogeneous_vocab", id="draft-short"),
    pytest.param("draft_ranks_fit", "error",
                 {"tensor-parallel-size": 4, "speculative-config": '{"draft_tensor_parallel_size": 2}'}, LLAMA, EIGHT,
                 "0.33.0", "2 with --tensor-parallel-size 4", "1 or 4", id="draft-ranks"),
    pytest.param("draft_ranks_fit", "error", {"speculative-config": '{"tensor_parallel_size": 1}'}, LLAMA, H100,
                 "0.33.0", "inside the speculative config", "draft_tensor_parallel_size", id="draft-key"),
    pytest.param("speculation_is_named_once", "error", {"speculative-config": "{}", "spec-tokens": 3}, LLAMA, H100,
                 "0.33.0", "--spec-tokens beside", "keep one", id="spec-twice"),
    pytest.param("drafts_fit_batch", "error",
                 {"enable-lora": True, "spec-tokens": 4, "max-num-seqs": 512, "max-num-batched-tokens": 2048}, LLAMA,
                 H100, "0.33.0", "512 sequences x 5", "2560", id="lora-drafts"),
    pytest.param("shared_memory_is_bounded", "warning", {"gpu-memory-utilization": 0.7}, known("gemma-4-26b-a4b"),
                 parse_hardware("gb10"), "0.24.0", "is no bound", "--kv-cache-memory-bytes", id="UP-A41"),
    pytest.param("shared_memory_is_bounded", "warning", {"gpu-memory-utilization": 0.95}, LLAMA,
                 parse_hardware("strix-halo"), "0.33.0", "0.95 leaves the host too little", "swaps", id="UP-A44"),
    pytest.param("utilization_is_used", "warning",
                 {"kv-cache-memory-bytes": "8G", "gpu-memory-utilization": 0.9}, LLAMA, H100, "0.33.0", "ignored",
                 "keep one", id="bytes-and-share"),
    pytest.param("graphs_are_sized_once", "error",
                 {"max-cudagraph-capture-size": 64, "compilation-config": '{"max_cudagraph_capture_size": 32}'}, LLAMA,
                 H100, "0.33.0", "same key", "keep one", id="graphs-twice"),
    pytest.param("release_is_sound", "warning",
                 {"speculative-config": '{"method":"ngram","num_speculative_tokens":10}'}, LLAMA, H100, "0.10.2",
                 "read as a mapping", "0.11.0 or later", id="UP-B13"),
    pytest.param("release_is_sound", "warning", {"limit-mm-per-prompt": '{"video": 5}'}, known("qwen3-vl-8b"), H100,
                 "0.17.1", "encoder cache", "uncertain", id="UP-A27"),
    pytest.param("release_is_sound", "warning",
                 {"speculative-config": '{"method": "draft_model", "model": "x/y"}'}, LLAMA, H100, "0.13.0",
                 "draft models raise", "0.15.0", id="draft-gone"),
    pytest.param("release_is_sound", "warning", {"kv-cache-dtype": "fp8"}, LLAMA, H100, "0.8.0", "keeps 16 bits",
                 "twice the tokens", id="UP-B21"),
    pytest.param("slice_is_seen", "error", {"env:CUDA_VISIBLE_DEVICES": "MIG-377e0049-554c"}, LLAMA, H100, "0.20.1",
                 "ids of slices", "device 0", id="UP-B26"),
]


@pytest.mark.parametrize(("rule", "severity", "settings", "spec", "hardware", "version", "reason", "fix"), ROWS)
def test_what_a_rule_says(
    rule: str, severity: str, settings: dict[str, Any], spec: ModelSpec, hardware: Hardware, version: str, reason: str,
    fix: str,
) -> None:
    finding = said(rule, settings, spec, hardware, version=version)
    assert finding.severity == severity
    assert reason in finding.reason
    assert fix in finding.fix
    assert finding.source


FINE: list[Any] = [
    pytest.param({}, known("llama-3.1-70b"), EIGHT, "0.33.0", id="defaults"),
    pytest.param({"tensor-parallel-size": 8}, known("llama-3.3-70b-fp8"), EIGHT, "0.33.0", id="fp8-dynamic-tp8"),
    pytest.param({"tensor-parallel-size": 8}, known("qwen2.5-72b-awq"), EIGHT, "0.33.0", id="padded-awq-tp8"),
    pytest.param({"tensor-parallel-size": 2}, AWQ_MOE, EIGHT, "0.9.0", id="UP-A34-2"),
    pytest.param({"tensor-parallel-size": 1}, AWQ_MOE, EIGHT, "0.9.0", id="UP-A34-1"),
    pytest.param({"tensor-parallel-size": 4}, FP8_MOE, EIGHT, "0.25.0", id="UP-A36-4"),
    pytest.param({"tensor-parallel-size": 2}, FP8_MOE, EIGHT, "0.25.0", id="UP-A36-2"),
    pytest.param({"tensor-parallel-size": 1}, FP8_MOE, EIGHT, "0.25.0", id="UP-A36-1"),
    pytest.param({"tensor-parallel-size": 8, "enable-expert-parallel": True}, FP8_MOE, EIGHT, "0.25.0", id="whole-experts"),
    pytest.param({"tensor-parallel-size": 8}, known("deepseek-r1"), H200X8, "0.33.0", id="deepseek-tp8"),
    pytest.param({"tensor-parallel-size": 8, "decode-context-parallel-size": 8}, known("kimi-k2.5"), H200X8, "0.33.0",
                 id="dcp-latent"),
    pytest.param({"tensor-parallel-size": 4}, known("gpt-oss-120b"), EIGHT, "0.33.0", id="gpt-oss"),
    pytest.param({"attention-backend": "FLASH_ATTN"}, LLAMA, H100, "0.33.0", id="flash"),
    pytest.param({"attention-backend": "FLASHINFER", "block-size": 32}, LLAMA, H100, "0.33.0", id="flashinfer-32"),
    pytest.param({"attention-backend": "FLASHINFER", "block-size": 128}, LLAMA, B200, "0.33.0", id="large-blocks"),
    pytest.param({"block-size": 32}, LLAMA, H100, "0.33.0", id="block-32"),
    pytest.param({"kv-cache-dtype": "fp8"}, known("llama-3.1-70b-fp8"), H100, "0.33.0", id="scales-in-checkpoint"),
    pytest.param({"kv-cache-dtype": "fp8_e5m2"}, known("qwen2.5-7b-awq"), RTX3090, "0.20.0", id="e5m2-awq"),
    pytest.param({"dtype": "half"}, known("llama-3-8b"), T4, "0.33.0", id="UP-B16-half"),
    pytest.param({}, known("qwen2.5-7b-awq"), A100, "0.10.0", id="awq-marlin"),
    pytest.param({}, known("gpt-oss-20b"), A100, "0.11.0", id="UP-B27-later"),
    pytest.param({}, known("gpt-oss-20b"), H100, "0.10.1", id="UP-B27-hopper"),
    pytest.param({}, known("gemma-4-31b-nvfp4"), B200, "0.33.0", id="UP-E16-blackwell"),
    pytest.param({"speculative-config": '{"method": "draft_model", "model": "Qwen/Qwen2.5-0.5B-Instruct"}'},
                 known("qwen2.5-3b"), H100, "0.33.0", id="same-vocabulary"),
    pytest.param({"speculative-config": '{"method": "eagle3", "model": "some/draft"}'}, LLAMA, H100, "0.33.0",
                 id="eagle"),
    pytest.param({"speculative-config": "not json"}, LLAMA, H100, "0.33.0", id="broken-json-is-for-the-parser"),
    pytest.param({"kv-cache-memory-bytes": "20G"}, known("gemma-4-26b-a4b"), parse_hardware("gb10"), "0.33.0",
                 id="UP-A41-bytes"),
    pytest.param({"enable-chunked-prefill": True}, known("llama-3.1-8b"), RTX3090, "0.6.4", id="chunks"),
    pytest.param({"env:CUDA_VISIBLE_DEVICES": "0,1"}, LLAMA, H100, "0.33.0", id="plain-devices"),
    pytest.param({}, known("qwen3.6-27b-fp8"), H100, "0.33.0", id="hybrid"),
]


@pytest.mark.parametrize(("settings", "spec", "hardware", "version"), FINE)
def test_good_practice_is_left_alone(
    settings: dict[str, Any], spec: ModelSpec, hardware: Hardware, version: str
) -> None:
    assert found(settings, spec, hardware, version=version) == ()


@pytest.mark.parametrize("alias", [alias for alias, row in data("models.json")["models"].items() if "mxfp" not in row])
def test_every_known_model_runs_alone_on_a_blackwell(alias: str) -> None:
    errors = [f for f in found({}, known(alias), B200) if f.severity == "error" and f.rule != "quantization_is_not_deprecated"]
    assert errors == []


def test_one_rank_of_an_awq_72b_is_all_that_heads_and_groups_leave() -> None:
    fit = [
        ranks for ranks in range(1, 65)
        if not any(f.severity == "error" for f in found({"tensor-parallel-size": ranks}, AWQ_72B, parse_hardware("h100x64")))
    ]
    assert fit == [1]


@pytest.mark.parametrize(
    ("max_rank", "ranks", "wanted"), [(256, (16, 32), 32), (32, (16, 32), None), (64, (), None)], ids=["UP-A28", "fits", "none"]
)
def test_ranks_of_adapters(max_rank: int, ranks: tuple[int, ...], wanted: int | None) -> None:
    finding = rank_is_needed(max_rank, ranks)
    assert (finding is None) if wanted is None else (finding is not None and str(wanted) in finding.fix)


def test_every_rule_has_a_row() -> None:
    tested = {param.values[0] for param in (*PLAIN_ERRORS, *ROWS)}
    assert {rule.__name__ for rule in RULES["vllm"]} == tested


@given(
    st.fixed_dictionaries({}, optional={
        "speculative-config": st.one_of(st.text(max_size=20), st.just('{"model": 3}'), st.just("[1]")),
        "spec-model": st.text(max_size=8), "attention-backend": st.sampled_from(["flash_attn", "FLASHMLA", "x"]),
        "block-size": st.integers(-4, 300), "kv-cache-dtype": st.sampled_from(["fp8", "nvfp4", "fp8_e5m2", "auto", "?"]),
        "tensor-parallel-size": st.integers(-2, 20), "decode-context-parallel-size": st.integers(-2, 9),
        "quantization": st.sampled_from(["fp8", "awq", "gguf", ""]), "compilation-config": st.text(max_size=5),
    }),
    st.sampled_from(["llama-3-8b", "deepseek-r1", "qwen3.6-27b-fp8", "gpt-oss-20b", "kimi-k3", "nemotron-h-56b"]),
    st.sampled_from([H100, T4, B200, parse_hardware("mi300x"), plans.CPU]),
    st.sampled_from(["0.5.4", "0.10.2", "0.33.0", "0.40.0"]),
)
def test_rules_answer_whatever_is_set(settings: dict[str, Any], alias: str, hardware: Hardware, version: str) -> None:
    for finding in found(settings, known(alias), hardware, version=version):
        assert finding.reason
        assert finding.fix
        assert finding.source
