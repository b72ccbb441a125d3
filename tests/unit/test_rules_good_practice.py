"""Deployments that people run: nothing of them is ruled out, by a rule or by predicted memory. And some that cannot run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes import plans
from tuner.facts.catalog import model_by_alias
from tuner.facts.gpus import parse_hardware
from tuner.search.screen import screen

pytestmark = pytest.mark.unit


def tp(ranks: int, **more: Any) -> dict[str, Any]:
    return {"tensor-parallel-size": ranks, **{key.replace("_", "-"): value for key, value in more.items()}}


RUNS: list[tuple[str, str, dict[str, Any]]] = [
    ("llama-3.1-8b", "l4", tp(1, max_model_len=8192)), ("llama-3.1-8b", "a10g", tp(1, max_model_len=8192)),
    ("qwen2.5-72b-awq", "a100x2", tp(2)), ("llama-3.3-70b", "h100x4", tp(4)),
    ("llama-3.3-70b", "h100x2", tp(2, max_model_len=8192)), ("llama-3.3-70b-fp8", "h100x2", tp(2)),
    ("deepseek-r1", "h200x8", tp(8)), ("deepseek-v3.2", "h200x8", tp(8)), ("gpt-oss-20b", "rtx4090", {}),
    ("gpt-oss-120b", "h100", {"gpu-memory-utilization": 0.95, "max-num-batched-tokens": 1024, "max-model-len": 32768}),
    ("gpt-oss-120b", "h100x2", tp(2)), ("qwen3-30b-a3b-fp8", "l40s", {}), ("qwen3-32b", "h100", tp(1, max_model_len=16384)),
    ("qwen3-235b-a22b-fp8", "h100x4", tp(4)), ("qwen3-coder-480b-a35b", "h200x8", tp(8, enable_expert_parallel=True)),
    ("gemma-3-27b", "h100", tp(1, max_model_len=32768)), ("qwen3.6-27b-fp8", "h100", tp(1, max_num_seqs=256)),
    ("kimi-k2", "h200x16", tp(16)), ("kimi-k2.5", "h200x8", tp(8)), ("glm-5-fp8", "h200x8", tp(8)),
    ("qwen2.5-7b-awq", "t4", {"dtype": "half", "max-model-len": 4096}), ("mixtral-8x7b", "a100x2", tp(2)),
    ("phi-4", "l40s", {}), ("qwen3-8b", "rtx4090", tp(1, max_model_len=16384)), ("nemotron-3-nano-30b", "h100", {}),
    ("llama-4-scout", "h100x4", tp(4, max_model_len=131072)), ("minimax-m2.5", "h100x4", tp(4)),
    ("qwen3.5-397b-a17b", "b200x8", tp(8)), ("mistral-small-3.1-24b", "h100", tp(1, max_model_len=32768)),
    ("llama-3.1-405b-fp8", "h100x8", tp(8, max_model_len=32768, allow_deprecated_quantization=True)),
    ("deepseek-r1-distill-qwen-32b", "a100x2", tp(2, max_model_len=32768)),
]
CANNOT: list[tuple[str, str, dict[str, Any], str]] = [
    ("deepseek-r1", "h100x8", tp(8), "memory"), ("llama-3.1-405b", "h100x8", tp(8), "memory"),
    ("llama-3.3-70b", "a100", {}, "memory"), ("qwen3-235b-a22b", "h100x4", tp(4), "memory"),
    ("kimi-k2", "h200x8", tp(8), "memory"), ("qwen2.5-32b", "rtx4090", {}, "memory"),
    ("llama-3.3-70b", "h100x8", tp(6), "heads_divide"), ("qwen2.5-7b", "h100x8", tp(8), "heads_divide"),
    ("qwen3-30b-a3b-fp8", "h100x8", {**tp(4), "version": "0.20.0"}, "blocks_divide"),
    ("qwen3.6-27b-fp8", "h100", tp(1, max_num_seqs=1024), "mamba_blocks"),
]


@pytest.mark.parametrize(("alias", "gpus", "settings"), RUNS, ids=[f"{alias}-{gpus}" for alias, gpus, _ in RUNS])
def test_what_people_run_is_not_ruled_out(alias: str, gpus: str, settings: dict[str, Any]) -> None:
    spec = model_by_alias(alias)
    assert spec is not None
    assert screen(plans.config(*settings.items(), version="0.33.0"), spec, parse_hardware(gpus)) is None


@pytest.mark.parametrize(
    ("alias", "gpus", "settings", "rule"), CANNOT, ids=[f"{alias}-{gpus}-{rule}" for alias, gpus, _, rule in CANNOT]
)
def test_what_cannot_run_is_ruled_out_by_the_right_rule(
    alias: str, gpus: str, settings: dict[str, Any], rule: str
) -> None:
    spec = model_by_alias(alias)
    assert spec is not None
    flags = dict(settings)
    version = str(flags.pop("version", "0.33.0"))
    outcome = screen(plans.config(*flags.items(), version=version), spec, parse_hardware(gpus))
    assert outcome is not None
    assert outcome.rule == rule
    assert outcome.fix
