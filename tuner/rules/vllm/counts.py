"""Counts, shares and lengths that the parser takes and the engine refuses. Sources name files of vLLM 0.33.0."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.domain.engine import EngineConfig
from tuner.domain.finding import Finding
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.rules.base import Rule, count, finding, since

_SCHEDULER = "vllm/config/scheduler.py"
_COUNTS = (
    "max-num-seqs",
    "max-num-batched-tokens",
    "block-size",
    "tensor-parallel-size",
    "pipeline-parallel-size",
    "data-parallel-size",
)


def counts_are_positive(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Counts start at one; the engine's parser takes zero and dies later."""
    del model, hardware
    for flag in _COUNTS:
        value = count(config, flag)
        if value is not None and value < 1:
            yield Finding(
                rule="counts_are_positive",
                severity="error",
                reason=f"--{flag} is {value}",
                fix=f"set --{flag} to 1 or more",
                source="vllm/config/scheduler.py, parallel.py",
            )


def utilization_is_a_fraction(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """The share of the device is above 0 and at most 1."""
    del model, hardware
    value = config.get("gpu-memory-utilization")
    if isinstance(value, (int, float)) and not 0 < value <= 1:
        yield Finding(
            rule="utilization_is_a_fraction",
            severity="error",
            reason=f"--gpu-memory-utilization is {value:g}, a share of the device must be in (0, 1]",
            fix="use a value such as 0.92",
            source="vllm/config/cache.py",
        )


def batch_holds_sequences(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """A step needs a token for each sequence."""
    del model, hardware
    tokens, sequences = count(config, "max-num-batched-tokens"), count(config, "max-num-seqs")
    if tokens is not None and sequences is not None and tokens < sequences:
        yield Finding(
            rule="batch_holds_sequences",
            severity="error",
            reason=f"--max-num-batched-tokens {tokens} is below --max-num-seqs {sequences}",
            fix=f"raise the token budget to {sequences} or more",
            source="vllm/config/scheduler.py",
        )


def whole_prefill_fits(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Without chunked prefill the longest prompt must fit one step."""
    del hardware
    tokens = count(config, "max-num-batched-tokens")
    context = count(config, "max-model-len") or model.max_context
    off = config.get("enable-chunked-prefill") is False
    if off and tokens is not None and context is not None and tokens < context:
        yield Finding(
            rule="whole_prefill_fits",
            severity="error",
            reason=f"with chunked prefill off, --max-num-batched-tokens {tokens} is below the context length {context}",
            fix=f"raise it to {context}, or leave chunked prefill on",
            source="vllm/config/scheduler.py",
        )


def context_fits_model(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """The context length is at most what the model was made for, unless the engine is told to take more."""
    del hardware
    context = count(config, "max-model-len")
    if str(config.get("env:VLLM_ALLOW_LONG_MAX_MODEL_LEN") or "0") != "0":
        return
    if context is not None and model.max_context is not None and context > model.max_context:
        yield Finding(
            rule="context_fits_model",
            severity="error",
            reason=f"--max-model-len {context} is above the model's {model.max_context}",
            fix=f"use at most {model.max_context}",
            source="vllm/config/model.py _get_and_verify_max_len",
        )


def prefill_threshold_fits(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """What counts as a long prompt is within the context length."""
    del hardware
    threshold = count(config, "long-prefill-token-threshold")
    context = count(config, "max-model-len") or model.max_context
    if threshold is not None and context is not None and threshold > context:
        yield finding(
            prefill_threshold_fits,
            "error",
            f"--long-prefill-token-threshold {threshold} is above the context {context}",
            f"use at most {context}",
            _SCHEDULER,
        )


def batch_can_be_filled(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """A token budget beyond all sequences at full length is never used."""
    del hardware
    tokens, sequences = count(config, "max-num-batched-tokens"), count(config, "max-num-seqs")
    context = count(config, "max-model-len") or model.max_context
    if tokens is None or sequences is None or context is None or tokens <= sequences * context:
        return
    yield finding(
        batch_can_be_filled,
        "warning",
        f"--max-num-batched-tokens {tokens} is above {sequences} sequences x {context} tokens: it can never be filled",
        f"use at most {sequences * context}",
        _SCHEDULER,
    )


def whole_prompts_before_chunks(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Iterator[Finding]:
    """Before 0.8 a step took whole prompts, so the profile run grew with the context length."""
    context = count(config, "max-model-len") or model.max_context
    chunked = config.get("enable-chunked-prefill")
    if since(config, "0.8.0") or hardware.kind != "cuda" or context is None or chunked is True or context < _LONG:
        return
    yield finding(
        whole_prompts_before_chunks,
        "warning",
        f"{config.version} prefills whole prompts: memory left for the KV cache shrinks with the context {context}",
        "add --enable-chunked-prefill with --max-num-batched-tokens 2048, or lower --max-model-len",
        "vllm issues 6746, 10517, 11391",
    )


_LONG = 16384
RULES: tuple[Rule, ...] = (
    counts_are_positive,
    utilization_is_a_fraction,
    batch_holds_sequences,
    whole_prefill_fits,
    context_fits_model,
    prefill_threshold_fits,
    batch_can_be_filled,
    whole_prompts_before_chunks,
)
