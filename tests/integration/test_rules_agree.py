"""Our rules and defaults against the engine's own configuration layer, for GPUs that are not here.

Each hardware is one process of the engine's Python that judges all its configurations.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import plans
from tuner.capacity.activation import batch, utilization
from tuner.domain.engine import Footprint
from tuner.domain.hardware import Gpu, Hardware
from tuner.inspect.model_dir import read_model_dir
from tuner.rules import findings

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

VERSION = "0.32.0"
PROGRAM = Path(__file__).with_name("stand_in_gpu.py")
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5, "hidden_act": "silu",
}
GPUS: dict[str, dict[str, Any]] = {
    "h100": {"name": "NVIDIA H100 80GB HBM3", "capability": [9, 0], "gib": 80, "count": 8},
    "a100": {"name": "NVIDIA A100-SXM4-80GB", "capability": [8, 0], "gib": 80, "count": 8},
    "a10g": {"name": "NVIDIA A10G", "capability": [8, 6], "gib": 22, "count": 1},
    "b200": {"name": "NVIDIA B200", "capability": [10, 0], "gib": 179, "count": 8},
    "t4": {"name": "Tesla T4", "capability": [7, 5], "gib": 15, "count": 1},
}
REFUSED: list[dict[str, Any]] = [
    {"tensor_parallel_size": 3}, {"quantization": "foo"}, {"quantization": "bitsandbytes"},
    {"quantization": "fbgemm_fp8"}, {"tensor_parallel_size": 8, "decode_context_parallel_size": 2},
    {"long_prefill_token_threshold": 9000}, {"enable_eplb": True}, {"enable_expert_parallel": True},
    {"pipeline_parallel_size": 64}, {"max_num_batched_tokens": 64, "max_num_seqs": 128}, {"max_model_len": 9000},
    {"enable_chunked_prefill": False, "max_num_batched_tokens": 2048},
]
TAKEN: list[dict[str, Any]] = [
    {}, {"tensor_parallel_size": 8}, {"kv_cache_dtype": "fp8"}, {"max_num_batched_tokens": 65536, "max_num_seqs": 4},
    {"pipeline_parallel_size": 2, "tensor_parallel_size": 4}, {"max_num_seqs": 16}, {"block_size": 32},
    {"kv_cache_memory_bytes": 1_000_000_000, "gpu_memory_utilization": 0.9}, {"dtype": "half"},
    {"max_model_len": 4096, "enable_chunked_prefill": False, "max_num_batched_tokens": 4096},
]


def ask(python: Path, model: Path, tokenizer: Path, gpu: dict[str, Any], configs: list[dict[str, Any]]) -> list[Any]:
    command = [str(python), str(PROGRAM), str(model), str(tokenizer), json.dumps(gpu), json.dumps(configs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    answers = [json.loads(line.removeprefix("ANSWER ")) for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    assert len(answers) == len(configs), done.stderr[-2000:]
    return answers


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


def errors(settings: dict[str, Any], model: Path, gpu: dict[str, Any]) -> list[str]:
    flags = {key.replace("_", "-"): value for key, value in settings.items()}
    found = findings(
        plans.config(*flags.items(), version=VERSION), read_model_dir(model, requested="m"), hardware(gpu)
    )
    return [finding.rule for finding in found if finding.severity == "error"]


def test_what_the_engine_refuses_and_takes(engine_command: Path, demo_model: Path, model: Path) -> None:
    gpu = GPUS["h100"]
    answers = ask(engine_command.with_name("python"), model, demo_model, gpu, [*REFUSED, *TAKEN])
    for settings, answer in zip([*REFUSED, *TAKEN], answers, strict=True):
        assert answer["ok"] == (settings in TAKEN), (settings, answer)
        assert bool(errors(settings, model, gpu)) != answer["ok"], (settings, errors(settings, model, gpu))


@pytest.mark.parametrize("name", GPUS)
def test_defaults_of_a_server(engine_command: Path, demo_model: Path, model: Path, name: str) -> None:
    gpu = GPUS[name]
    (answer,) = ask(engine_command.with_name("python"), model, demo_model, gpu, [{}])
    ours = batch(read_model_dir(model, requested="m"), Footprint(version=VERSION), hardware(gpu).gpus[0])
    assert answer["ok"], answer
    assert (ours.sequences, ours.tokens) == (answer["max_num_seqs"], answer["max_num_batched_tokens"])
    assert utilization(VERSION)["default"] == answer["gpu_memory_utilization"]
    falls_back = [f for f in findings(plans.config(version=VERSION), read_model_dir(model, requested="m"), hardware(gpu))
                  if f.rule == "bfloat16_needs_ampere"]
    assert (answer["dtype"] == "torch.float16") is bool(falls_back)
