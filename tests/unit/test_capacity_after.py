"""The longest context that fits, and the prediction beside what the engine said."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes import plans
from tuner.capacity.compare import compared, narrow_cache_ignored
from tuner.capacity.longest import longest_context
from tuner.capacity.memory import MemoryPlan, memory_plan
from tuner.domain.engine import Footprint, StartupFacts
from tuner.domain.hardware import Gpu, Hardware
from tuner.domain.model import ModelSpec
from tuner.facts.catalog import model_by_alias
from tuner.facts.gpus import parse_hardware

pytestmark = pytest.mark.unit

GIB = 1 << 30


def known(alias: str) -> ModelSpec:
    spec = model_by_alias(alias)
    assert spec is not None
    return spec


def one(gib: float) -> Hardware:
    return Hardware(kind="cuda", gpus=(Gpu(name="GPU", memory_bytes=int(gib * GIB), capability=8.0),))


def footprint(**fields: Any) -> Footprint:
    return Footprint(**{"weight_bits": 16, "kv_bits": 16, "version": "0.19.0", "max_context": 4096, **fields})


@pytest.mark.parametrize(
    ("alias", "cache_bytes", "tokens"),
    [
        ("llama-2-7b", 229 * 16 * 524_288, 3664), ("qwen1.5-7b", 7344 * 524_288, 7344),
        ("llama-3-70b", 6048 * 327_680, 6048),
    ],
    ids=["UP-A09", "UP-A10", "UP-A11"],
)
def test_the_context_to_propose(alias: str, cache_bytes: int, tokens: int) -> None:
    """What the engine named in its refusal is what is proposed: no more than the blocks hold."""
    stated = footprint(kv_bytes=cache_bytes)
    assert longest_context(known(alias), stated, one(200)) == tokens


def test_never_more_than_the_model_was_made_for() -> None:
    assert longest_context(known("llama-3-8b"), footprint(), one(80)) == 8192


def test_nothing_fits_a_card_that_the_weights_fill() -> None:
    assert longest_context(known("llama-3-70b"), footprint(), one(80)) == 0


def test_no_prediction_no_context() -> None:
    assert longest_context(known("deepseek-v4-flash"), footprint(), one(80)) is None
    assert longest_context(known("llama-3-8b"), footprint(), plans.CPU) is None


@pytest.mark.parametrize("alias", ["gemma-3-27b", "qwen3.6-27b", "deepseek-v2-lite", "gpt-oss-20b", "llama-3.1-8b"])
@pytest.mark.parametrize("stages", [1, 2])
def test_the_longest_fits_and_one_more_block_does_not(alias: str, stages: int) -> None:
    spec = known(alias).model_copy(update={"max_context": 100_000_000})
    cards = parse_hardware("h100x2")
    asked = footprint(pipeline_parallel=stages)
    tokens = longest_context(spec, asked, cards)
    assert tokens is not None
    assert tokens > 16
    fits = memory_plan(spec, asked.model_copy(update={"max_context": tokens}), cards)
    more = memory_plan(spec, asked.model_copy(update={"max_context": tokens + 20_000}), cards)
    assert isinstance(fits, MemoryPlan)
    assert isinstance(more, MemoryPlan)
    assert fits.concurrency is not None
    assert fits.concurrency >= 1
    assert more.concurrency is not None
    assert more.concurrency < 1


def test_prediction_beside_a_start() -> None:
    plan = memory_plan(
        known("llama-3.1-8b"),
        footprint(memory_fraction=0.95, max_sequences=1024, batched_tokens=8192, max_context=8192), one(79.19),
    )
    assert isinstance(plan, MemoryPlan)
    facts = StartupFacts(
        weight_bytes=int(14.99 * GIB), graph_bytes=int(0.91 * GIB), kv_cache_bytes=int(58.11 * GIB), kv_cache_tokens=476_016
    )
    pairs = {pair.name: pair for pair in compared(plan, facts)}
    assert list(pairs) == ["weights", "CUDA graphs", "KV cache", "KV cache tokens"]
    assert abs(pairs["weights"].error) < 0.02 * GIB
    assert abs(pairs["KV cache"].error) < 0.1 * GIB
    assert abs(pairs["KV cache tokens"].error) < 1000
    assert pairs["KV cache"].text == "KV cache: 58.11 GiB MEASURED, " + f"{plan.available / GIB:.2f} GiB PREDICTED"
    assert "476,016 MEASURED" in pairs["KV cache tokens"].text


def test_what_the_engine_did_not_say_is_not_compared() -> None:
    plan = memory_plan(known("llama-3-8b"), footprint(), one(80))
    assert isinstance(plan, MemoryPlan)
    assert compared(plan, StartupFacts()) == ()


@pytest.mark.parametrize(
    ("alias", "kv_dtype", "tokens", "logged", "ignored"),
    [
        ("llama-3.1-8b", "fp8", 100_000, 100_000 * 131_072, True), ("llama-3.1-8b", "fp8", 200_000, 100_000 * 131_072, False),
        ("llama-3.1-8b", None, 100_000, 100_000 * 131_072, False), ("llama-3.1-8b", "fp8", None, GIB, False),
        ("gemma-3-27b", "fp8", 1000, 100 * GIB, False), ("llama-3.1-8b", "fp8", 225_000, None, True),
    ],
    ids=["ignored", "doubled", "not-asked", "not-said", "windows", "bytes-predicted"],
)  # fmt: skip
def test_up_b21_a_narrow_cache_that_holds_no_more_tokens(
    alias: str, kv_dtype: str | None, tokens: int | None, logged: int | None, ignored: bool
) -> None:
    asked = footprint(kv_dtype=kv_dtype, kv_bits=8 if kv_dtype else 16, version="0.19.0" if alias == "gemma-3-27b" else "0.8.0", max_sequences=64)
    plan = memory_plan(known(alias), asked, one(48 if logged is None else 80))
    assert isinstance(plan, MemoryPlan)
    said = narrow_cache_ignored(plan, asked, StartupFacts(kv_cache_tokens=tokens, kv_cache_bytes=logged))
    assert (said is not None) is ignored, (said, plan.available / GIB)
    if said is not None:
        assert "--kv-cache-dtype fp8 seems to have no effect" in said
