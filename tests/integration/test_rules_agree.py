"""Our rules and defaults against the engine's own configuration layer, for GPUs that are not here.

Each hardware is one process of the engine's Python that judges all its configurations. No server starts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import plans
from tuner.app.ask_engine import engine_judge, judged_infeasible
from tuner.capacity.activation import batch, utilization
from tuner.domain.engine import EngineConfig, Footprint
from tuner.domain.hardware import Gpu, Hardware
from tuner.facts.catalog import model_by_alias
from tuner.inspect.model_dir import read_model_dir
from tuner.rules import findings
from tuner.runtime.ask_engine import EngineJudge
from tuner.runtime.installs import detect_engine

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

VERSION = "0.32.0"
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}
GPUS: dict[str, dict[str, Any]] = {
    "h100": {"name": "NVIDIA H100 80GB HBM3", "capability": [9, 0], "gib": 80, "count": 8},
    "a100": {"name": "NVIDIA A100-SXM4-80GB", "capability": [8, 0], "gib": 80, "count": 8},
    "a10g": {"name": "NVIDIA A10G", "capability": [8, 6], "gib": 22, "count": 1},
    "b200": {"name": "NVIDIA B200", "capability": [10, 0], "gib": 179, "count": 8},
    "t4": {"name": "Tesla T4", "capability": [7, 5], "gib": 15, "count": 1},
}
REFUSED: list[dict[str, Any]] = [
    {"tensor_parallel_size": 3},
    {"quantization": "foo"},
    {"quantization": "bitsandbytes"},
    {"quantization": "fbgemm_fp8"},
    {"tensor_parallel_size": 8, "decode_context_parallel_size": 2},
    {"long_prefill_token_threshold": 9000},
    {"enable_eplb": True},
    {"enable_expert_parallel": True},
    {"pipeline_parallel_size": 64},
    {"max_num_batched_tokens": 64, "max_num_seqs": 128},
    {"max_model_len": 9000},
    {"enable_chunked_prefill": False, "max_num_batched_tokens": 2048},
]
TAKEN: list[dict[str, Any]] = [
    {},
    {"tensor_parallel_size": 8},
    {"kv_cache_dtype": "fp8"},
    {"max_num_batched_tokens": 65536, "max_num_seqs": 4},
    {"pipeline_parallel_size": 2, "tensor_parallel_size": 4},
    {"max_num_seqs": 16},
    {"block_size": 32},
    {"kv_cache_memory_bytes": 1_000_000_000, "gpu_memory_utilization": 0.9},
    {"dtype": "half"},
    {"max_model_len": 4096, "enable_chunked_prefill": False, "max_num_batched_tokens": 4096},
]


@pytest.fixture(scope="module")
def judge(engine_command: Path) -> Iterator[EngineJudge]:
    with engine_judge(detect_engine("vllm", str(engine_command))) as found:
        yield found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"0" * 100)
    return folder


def hardware(gpu: dict[str, Any]) -> Hardware:
    major, minor = gpu["capability"]
    cards = (
        Gpu(name=gpu["name"], memory_bytes=gpu["gib"] << 30, capability=major + minor / 10, index=index)
        for index in range(gpu["count"])
    )
    return Hardware(kind="cuda", gpus=tuple(cards))


def asked(settings: dict[str, Any]) -> EngineConfig:
    flags = {key.replace("_", "-"): value for key, value in settings.items()}
    return plans.config(*flags.items(), version=VERSION)


def errors(settings: dict[str, Any], model: Path, gpu: dict[str, Any]) -> list[str]:
    found = findings(asked(settings), read_model_dir(model, requested="m"), hardware(gpu))
    return [finding.rule for finding in found if finding.severity == "error"]


def test_what_the_engine_refuses_and_takes(judge: EngineJudge, model: Path) -> None:
    gpu = GPUS["h100"]
    for settings in [*REFUSED, *TAKEN]:
        said = judge.judge(asked(settings), read_model_dir(model, requested="m"), hardware(gpu))
        assert said.verdict == ("accepted" if settings in TAKEN else "refused"), (settings, said)
        assert bool(errors(settings, model, gpu)) == (said.verdict == "refused"), (
            settings,
            errors(settings, model, gpu),
        )


def test_a_refusal_rules_a_configuration_out(judge: EngineJudge, model: Path) -> None:
    spec, cards = read_model_dir(model, requested="m"), hardware(GPUS["h100"])
    out = judged_infeasible(judge, asked({"tensor_parallel_size": 3}), spec, cards)
    assert out is not None
    assert out.rule == "engine_refuses"
    assert "must be divisible by tensor parallel size (3)" in out.reason
    assert judged_infeasible(judge, asked({"tensor_parallel_size": 4}), spec, cards) is None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"speculative_config": '{"model": "no/such", "num_speculative_tokens": 2}'}, "Invalid repository ID"),
        ({"max_num_seqs": 8, "env:VLLM_ALLOW_LONG_MAX_MODEL_LEN": "x"}, "VLLM_ALLOW_LONG_MAX_MODEL_LEN"),
    ],
)
def test_what_it_cannot_see_is_no_refusal(
    judge: EngineJudge, model: Path, settings: dict[str, Any], reason: str
) -> None:
    said = judge.judge(asked(settings), read_model_dir(model, requested="m"), hardware(GPUS["h100"]))
    assert said.verdict in ("cannot_say", "accepted")
    assert said.verdict == "accepted" or reason in said.reason


def test_code_named_by_settings_is_not_run(judge: EngineJudge, tmp_path: Path) -> None:
    """A checked file may name code of the model's repository or a class to import: neither is touched."""
    mark = tmp_path / "ran"
    folder = tmp_path / "model"
    folder.mkdir()
    config = {**LLAMA, "model_type": "own", "auto_map": {"AutoConfig": "own.Own"}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"0" * 100)
    (folder / "own.py").write_text(f"open({str(mark)!r}, 'w')\nclass Own: pass\n", encoding="utf-8")
    settings = {"trust-remote-code": True, "worker-cls": "own.Own"}
    said = judge.judge(asked(settings), read_model_dir(folder, requested="m"), hardware(GPUS["h100"]))
    assert said.verdict == "cannot_say", said
    assert not mark.exists()


def test_a_model_that_only_the_table_knows(judge: EngineJudge) -> None:
    model = model_by_alias("llama-3-70b")
    assert model is not None
    said = judge.judge(asked({"tensor_parallel_size": 8}), model, hardware(GPUS["h100"]))
    assert (said.verdict, said.resolved["max-num-seqs"]) == ("accepted", 1024)
    assert judge.judge(asked({"tensor_parallel_size": 3}), model, hardware(GPUS["h100"])).verdict == "refused"


@pytest.mark.parametrize("name", GPUS)
def test_defaults_of_a_server(judge: EngineJudge, model: Path, name: str) -> None:
    gpu = GPUS[name]
    spec = read_model_dir(model, requested="m")
    said = judge.judge(asked({}), spec, hardware(gpu))
    ours = batch(spec, Footprint(version=VERSION), hardware(gpu).gpus[0])
    assert said.verdict == "accepted", said
    assert (ours.sequences, ours.tokens) == (said.resolved["max-num-seqs"], said.resolved["max-num-batched-tokens"])
    assert utilization(VERSION)["default"] == said.resolved["gpu-memory-utilization"]
    falls_back = [found for found in findings(asked({}), spec, hardware(gpu)) if found.rule == "bfloat16_needs_ampere"]
    assert (said.resolved["dtype"] == "float16") is bool(falls_back)
