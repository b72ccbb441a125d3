"""What TensorRT-LLM cannot do is said before a start. Ids such as UP-E10 name public cases."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.plans import CPU, H100, hub_model, local_model
from tuner.domain.engine import EngineConfig, Setting, Value
from tuner.domain.finding import Finding
from tuner.domain.hardware import Gpu, Hardware
from tuner.domain.model import ModelSpec
from tuner.rules import findings

pytestmark = pytest.mark.unit

B200 = Hardware(kind="cuda", gpus=tuple(Gpu(name="NVIDIA B200", memory_bytes=180 << 30, capability=10.0) for _ in range(8)))
A100 = Hardware(kind="cuda", gpus=(Gpu(name="NVIDIA A100", memory_bytes=80 << 30, capability=8.0),))
MOE = hub_model(experts=128)


def found(
    settings: dict[str, Value], model: ModelSpec | None = None, hardware: Hardware = H100, version: str = "1.2.1"
) -> dict[str, Finding]:
    config = EngineConfig(engine="trtllm", version=version, settings=tuple(
        Setting(flag=flag, value=value) for flag, value in settings.items()))
    return {finding.rule: finding for finding in findings(config, model or hub_model(), hardware)}


@pytest.mark.parametrize(
    ("settings", "model", "hardware", "rule"),
    [
        ({"tensor_parallel_size": 6}, hub_model(), H100, "heads_divide"),
        ({"tensor_parallel_size": 8, "pipeline_parallel_size": 2}, hub_model(), H100, "world_fits_devices"),
        ({"tensor_parallel_size": 4, "context_parallel_size": 4}, hub_model(), H100, "world_fits_devices"),
        ({"pipeline_parallel_size": 8}, hub_model(layers=4), H100, "stages_have_layers"),
        ({"moe_expert_parallel_size": 2, "tensor_parallel_size": 2}, hub_model(), H100, "experts_share_tensor_ranks"),
        ({"moe_expert_parallel_size": 8, "tensor_parallel_size": 4}, MOE, H100, "experts_share_tensor_ranks"),
        ({"kv_cache_config.tokens_per_block": 48}, hub_model(), H100, "block_is_power_of_two"),
        ({"cuda_graph_config": "null", "cuda_graph_config.enable_padding": True}, hub_model(), H100, "graphs_agree"),
        ({"cuda_graph_config.batch_sizes": "[1, 8]", "cuda_graph_config.max_batch_size": 16}, hub_model(), H100, "graphs_agree"),
        ({"kv_cache_config.dtype": "fp8"}, hub_model(), A100, "formats_fit_gpu"),
        ({"kv_cache_config.dtype": "nvfp4"}, hub_model(), H100, "formats_fit_gpu"),
        ({"scheduler_config.dynamic_batch_config": "{}"}, hub_model(), H100, "backend_takes_keys"),
        pytest.param({}, hub_model(quantization="modelopt", quantization_format="NVFP4"), H100, "formats_fit_gpu", id="UP-E16"),
        ({}, hub_model(quantization="fp8"), A100, "formats_fit_gpu"),
    ],
)
def test_errors(settings: dict[str, Value], model: ModelSpec, hardware: Hardware, rule: str) -> None:
    finding = found(settings, model, hardware)[rule]
    assert finding.severity == "error"
    assert finding.fix
    assert finding.source


@pytest.mark.parametrize(
    ("settings", "model", "hardware"),
    [
        ({"tensor_parallel_size": 8, "enable_chunked_prefill": True, "max_batch_size": 256}, hub_model(), H100),
        ({"tensor_parallel_size": 6, "enable_attention_dp": True}, MOE, H100),
        ({"moe_expert_parallel_size": 4, "tensor_parallel_size": 8, "moe_tensor_parallel_size": 2}, MOE, H100),
        ({"kv_cache_config.dtype": "nvfp4"}, hub_model(), B200),
        ({"kv_cache_config.dtype": "fp8", "kv_cache_config.tokens_per_block": 64}, hub_model(), H100),
        ({}, hub_model(quantization="modelopt", quantization_format="NVFP4"), B200),
        ({}, hub_model(quantization="mxfp4"), H100),
        ({"cuda_graph_config.batch_sizes": "[1, 8, 16]", "cuda_graph_config.max_batch_size": 16}, local_model(), H100),
        ({}, local_model(), CPU),
    ],
)
def test_good_configurations_are_left_alone(settings: dict[str, Value], model: ModelSpec, hardware: Hardware) -> None:
    assert not found(settings, model, hardware)


def test_up_e10_a_prompt_above_max_num_tokens_is_refused_without_chunks() -> None:
    gemma = hub_model(max_context=131072)
    finding = found({"max_num_tokens": 8192, "enable_chunked_prefill": False}, gemma)["whole_prompt_fits"]
    assert finding.severity == "warning"
    assert "8192" in finding.reason
    assert "enable_chunked_prefill" in finding.fix
    assert "whole_prompt_fits" in found({}, gemma)
    for way_out in ({"enable_chunked_prefill": True}, {"max_num_tokens": 131072}, {"max_seq_len": 4096}):
        assert "whole_prompt_fits" not in found(way_out, gemma)


@pytest.mark.parametrize(
    ("settings", "rule", "version"),
    [
        ({"max_batch_size": 4096, "max_num_tokens": 2048}, "batch_fits_tokens", "1.2.1"),
        ({"enable_iter_req_stats": True}, "statistics_need_statistics", "1.2.1"),
        ({"kv_cache_config.max_tokens": 9, "kv_cache_config.free_gpu_memory_fraction": 0.5}, "smaller_cache_wins", "1.2.1"),
        ({"kv_cache_config.sink_token_length": 4}, "deprecated_keys", "1.4.0rc1"),
        ({"backend": "tensorrt"}, "backend_takes_keys", "1.2.1"),
    ],
)
def test_warnings(settings: dict[str, Any], rule: str, version: str) -> None:
    assert found(settings, version=version)[rule].severity == "warning"


def test_the_tensorrt_backend_knows_fewer_keys() -> None:
    config = EngineConfig(engine="trtllm", version="1.2.1", settings=(
        Setting(flag="backend", value="tensorrt"), Setting(flag="cuda_graph_config.enable_padding", value=True),
        Setting(flag="env:TLLM_LOG_LEVEL", value="INFO")))
    said = [one for one in findings(config, hub_model(), H100) if one.rule == "backend_takes_keys"]
    assert [one.severity for one in said] == ["error", "warning"]
    assert "cuda_graph_config.enable_padding" in said[0].reason
