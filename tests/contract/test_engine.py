"""The engine contract over every adapter, and over the fake one that studies in tests use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.engine_contract import EngineCase, EngineContract
from tests.fakes import fake_adapter
from tuner.domain.study import EngineInstall
from tuner.domain.trial import FailureKind
from tuner.engines import ENGINES

pytestmark = pytest.mark.contract

LOGS = Path(__file__).resolve().parent.parent / "data" / "vllm_logs"


def vllm_log(name: str) -> str:
    return (LOGS / name).read_text(encoding="utf-8")


VLLM_DEATHS = (
    (vllm_log("badflag.log"), 2, FailureKind.BAD_FLAG),
    (vllm_log("tp3.log"), 1, FailureKind.UNSUPPORTED),
    (vllm_log("kv64.log"), 1, FailureKind.OUT_OF_MEMORY),
    ("ERROR 01-01 00:00:00 [a.py:1] OSError: [Errno 98] Address already in use", 1, FailureKind.MACHINE),
)
CASES = {
    "vllm": EngineCase(
        engine=ENGINES["vllm"],
        install=EngineInstall(engine="vllm", version="0.32.0", build="cuda", program=("/opt/vllm/bin/vllm", "serve")),
        good=(
            ("max-num-seqs", 64), ("gpu-memory-utilization", 0.9), ("enforce-eager", True),
            ("enable-prefix-caching", False), ("kv-cache-dtype", "fp8"), ("max-num-batched-tokens", "8k"),
            ("speculative-config", '{"method": "ngram"}'), ("env:VLLM_LOGGING_LEVEL", "WARNING"),
            ("tensor-parallel-size", 2),
        ),
        bad=(
            ("swap-space", 4), ("max-num-seqs", "many"), ("kv-cache-dtype", "fp7"), ("enforce-eager", 1),
            ("env:VLLM_USE_V1", "1"), ("env:HF_TOKEN", "x"),
        ),
        deaths=VLLM_DEATHS,
    ),
    "trtllm": EngineCase(
        engine=ENGINES["trtllm"],
        install=EngineInstall(engine="trtllm", version="1.2.0", build="cuda", program=("/opt/trt/bin/trtllm-serve",)),
        good=(
            ("max_batch_size", 64), ("max_num_tokens", 4096), ("kv_cache_config.free_gpu_memory_fraction", 0.8),
            ("kv_cache_config.dtype", "fp8"), ("enable_chunked_prefill", True), ("tensor_parallel_size", 2),
        ),
        bad=(("max_batch_size", "many"), ("kv_cache_config.free_gpu_memory_fraction", "most"), ("env:HF_TOKEN", "x")),
        deaths=(
            ("[TRT-LLM] [E] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", 1,
             FailureKind.OUT_OF_MEMORY),
        ),
    ),
    "fake": EngineCase(
        engine=fake_adapter.FakeAdapter(),
        install=fake_adapter.install(),
        good=(("max-num-seqs", 8), ("eager", True), ("kv-cache-dtype", "fp8"), ("itl-ms", 1.5)),
        bad=(("max-num-seqs", "many"), ("eager", 1)),
        deaths=VLLM_DEATHS,
    ),
}


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> EngineCase:
    return CASES[request.param]


class TestEngines(EngineContract):
    def test_the_name_is_the_key(self, case: EngineCase) -> None:
        assert case.engine.name == case.install.engine


def test_every_engine_is_held_to_the_contract() -> None:
    assert set(ENGINES) == set(CASES) - {"fake"}
    assert all(ENGINES[name].name == name for name in ENGINES)
