"""Speculation, adapters, shared memory and known faults of releases. Sources name files of vLLM 0.33.0."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from tuner.domain.engine import EngineConfig
from tuner.domain.finding import Finding
from tuner.domain.hardware import Hardware
from tuner.domain.json_text import parse_json
from tuner.domain.model import ModelSpec
from tuner.facts.catalog import model_by_alias, model_by_hub_id
from tuner.facts.gpus import has_unified_memory
from tuner.facts.read import data
from tuner.facts.versions import release
from tuner.rules.base import Rule, count, finding, since

_SPECULATIVE = "vllm/config/speculative.py"
_UNIFIED_SHARE = 0.75


def speculation(config: EngineConfig) -> dict[str, Any]:
    """Return what the config says of speculation: --speculative-config, its dotted form and --spec-*."""
    found: dict[str, Any] = {}
    try:
        parsed = parse_json(str(config.get("speculative-config") or "{}"))
    except ValueError:
        parsed = {}
    found |= parsed if isinstance(parsed, dict) else {}
    for flag, value in config.values.items():
        if flag.startswith("speculative-config."):
            found[flag.removeprefix("speculative-config.")] = value
    named = {"spec-method": "method", "spec-model": "model", "spec-tokens": "num_speculative_tokens"}
    return found | {key: config.values[flag] for flag, key in named.items() if flag in config.values}


def draft_matches_target(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """A draft model shares the target's vocabulary."""
    del hardware
    said = speculation(config)
    name = said.get("model")
    if (
        not isinstance(name, str)
        or said.get("use_heterogeneous_vocab")
        or said.get("method", "draft_model") != "draft_model"
    ):
        return
    draft = model_by_alias(name) or (model_by_hub_id(name) if _is_hub_id(name) else None)
    if draft is None or draft.vocab_size is None or model.vocab_size is None or draft.vocab_size == model.vocab_size:
        return
    yield finding(
        draft_matches_target,
        "error",
        f"draft model {name} has {draft.vocab_size} tokens, the target {model.vocab_size}",
        "choose a draft of the same family and vocabulary, or use_heterogeneous_vocab",
        _SPECULATIVE,
    )


def _is_hub_id(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", name) is not None


def draft_ranks_fit(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """A draft model runs on one rank or on all."""
    del model, hardware
    said, size = speculation(config), count(config, "tensor-parallel-size", 1) or 1
    ranks = said.get("draft_tensor_parallel_size")
    if "tensor_parallel_size" in said:
        yield finding(
            draft_ranks_fit,
            "error",
            "tensor_parallel_size inside the speculative config",
            "the key is draft_tensor_parallel_size",
            _SPECULATIVE,
        )
    elif isinstance(ranks, int) and ranks not in (1, size):
        yield finding(
            draft_ranks_fit,
            "error",
            f"draft_tensor_parallel_size {ranks} with --tensor-parallel-size {size}",
            f"use 1 or {size}",
            _SPECULATIVE,
        )


def speculation_is_named_once(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Each part of speculation stands in one place."""
    del model, hardware
    if config.get("speculative-config") is None:
        return
    short = [f"--{flag}" for flag in config.values if flag in ("spec-method", "spec-model", "spec-tokens")]
    if short:
        yield finding(
            speculation_is_named_once,
            "error",
            f"{', '.join(short)} beside --speculative-config",
            "keep one form",
            "vllm/engine/arg_utils.py",
        )


def drafts_fit_batch(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """With LoRA and speculation a step holds every sequence's drafts."""
    del model, hardware
    drafts, tokens = speculation(config).get("num_speculative_tokens"), count(config, "max-num-batched-tokens")
    sequences = count(config, "max-num-seqs")
    if config.get("enable-lora") is not True or not isinstance(drafts, int) or tokens is None or sequences is None:
        return
    if tokens < sequences * (drafts + 1):
        yield finding(
            drafts_fit_batch,
            "error",
            f"--max-num-batched-tokens {tokens} is below {sequences} sequences x {drafts + 1} tokens of speculation",
            f"raise it to {sequences * (drafts + 1)}, or lower --max-num-seqs",
            "vllm/engine/arg_utils.py",
        )


def rank_is_needed(max_rank: int, ranks: Sequence[int]) -> Finding | None:
    """Say whether --max-lora-rank is above what the adapters at hand need: memory and speed are lost to it."""
    if not ranks or max_rank <= max(ranks):
        return None
    return finding(
        rank_is_needed,
        "warning",
        f"--max-lora-rank {max_rank}, and the largest adapter has rank {max(ranks)}",
        f"use {max(ranks)}: slots are sized for the maximum",
        "vllm issue 22782",
    )


def shared_memory_is_bounded(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Where GPU and host share memory, the utilization bounds neither: the host can hang."""
    del model
    if not any(has_unified_memory(gpu) for gpu in hardware.gpus) or config.get("kv-cache-memory-bytes") is not None:
        return
    stated = config.get("gpu-memory-utilization")
    share = stated if isinstance(stated, (int, float)) else 0.92 if since(config, "0.20.0") else 0.9
    much = f", and {share:g} leaves the host too little" if share > _UNIFIED_SHARE else ""
    yield finding(
        shared_memory_is_bounded,
        "warning",
        f"{hardware.gpus[0].name} shares its memory with the host: --gpu-memory-utilization is no bound{much}",
        "set --kv-cache-memory-bytes, keep a quarter to a third of the memory free, limit the container, and watch "
        "MemAvailable; a trial that swaps says nothing",
        "vllm issue 46307; kyuz0/amd-strix-halo-vllm-toolboxes issue 65",
    )


def utilization_is_used(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """A stated cache size makes the utilization meaningless."""
    del model, hardware
    if config.get("kv-cache-memory-bytes") is not None and config.get("gpu-memory-utilization") is not None:
        yield finding(
            utilization_is_used,
            "warning",
            "--gpu-memory-utilization is ignored beside --kv-cache-memory-bytes",
            "keep one of them",
            "vllm/config/cache.py",
        )


def graphs_are_sized_once(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Capture sizes stand in one place."""
    del model, hardware
    compilation = str(config.get("compilation-config") or "")
    for flag in ("cudagraph-capture-sizes", "max-cudagraph-capture-size"):
        if config.get(flag) is not None and f'"{flag.replace("-", "_")}"' in compilation:
            yield finding(
                graphs_are_sized_once,
                "error",
                f"--{flag} and the same key in --compilation-config",
                "keep one of them",
                "vllm/engine/arg_utils.py",
            )


def release_is_sound(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Some settings are right and broken in some releases."""
    del hardware
    version = release(config.version)
    for bug in data("vllm/known_bugs.yaml")["bugs"]:
        value = config.get(bug["flag"])
        if (
            value is None
            or bug.get("contains", "") not in str(value)
            or bug.get("architecture", "") not in str(model.architecture)
        ):
            continue
        if release(str(bug["since"])) <= version <= release(str(bug["until"])):
            yield finding(
                release_is_sound,
                "warning",
                f"--{bug['flag']} in {config.version}: {bug['says']}",
                bug["instead"],
                bug["source"],
            )


def slice_is_seen(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """A MIG slice by its id stops engines that count devices."""
    del model, hardware
    devices = str(config.get("env:CUDA_VISIBLE_DEVICES") or "")
    if devices.startswith("MIG-"):
        yield finding(
            slice_is_seen,
            "error",
            f"CUDA_VISIBLE_DEVICES={devices[:12]}...: the engine reads device numbers, not ids of slices",
            "run in a container that sees the slice as device 0; plan with the slice's memory",
            "vllm issues 41848, 46132, 6551",
        )


RULES: tuple[Rule, ...] = (
    draft_matches_target,
    draft_ranks_fit,
    speculation_is_named_once,
    drafts_fit_batch,
    shared_memory_is_bounded,
    utilization_is_used,
    graphs_are_sized_once,
    release_is_sound,
    slice_is_seen,
)
