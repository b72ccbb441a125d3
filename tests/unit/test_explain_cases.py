"""Logs of real failures, shortened and in synthetic form: the cause, its numbers and the order of remedies."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.domain.model import ModelSpec
from tuner.domain.trial import FailureKind
from tuner.engines import ENGINES
from tuner.facts.read import data
from tuner.inspect.explain import Explanation, explain
from tuner.inspect.log import read_log
from tuner.inspect.view import known_model

pytestmark = pytest.mark.unit

LOGS = Path(__file__).parent.parent / "data" / "vllm_logs"
MHA = ModelSpec(requested="m", name="m", location="m", source="hub", architecture="LlamaForCausalLM", layers=32, attention_heads=32, kv_heads=32, head_dim=128)  # fmt: skip
CORE = "(EngineCore pid=9) ERROR 12-01 13:44:24 [core.py:1] "


def first(log: str, *, engine: str | None = None, model: ModelSpec | None = None) -> Explanation:
    found = explain(read_log(log, engine), model)
    assert found, log
    return found[0]


# id, engine, log, cause, words that the explanation must have
CASES = [
    ("UP-A07", None, CORE + "AssertionError: Error in memory profiling. Initial free memory 30.12 GiB, current free memory 41.55 GiB. This happens when other processes", "profiling_race", ["from 30.12 to 41.55 GiB", "one after another"]),
    ("UP-A17", None, "Capturing CUDA graphs (decode, FULL):  12%|#\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 3 has a total capacity of 44.50 GiB of which 1.50 MiB is free.", "memory_graphs", ["2.00 MiB more", "a lower --max-num-seqs", "--enforce-eager last"]),
    ("UP-A20", None, CORE + "ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (30). Each decode sequence requires one Mamba cache block", "mamba_blocks", ["--max-num-seqs 30 or less", "--gpu-memory-utilization", "on purpose"]),
    ("UP-C24", None, "WARNING vllm scheduler.py Sequence group 264 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space", "preemption", ["a lower --max-num-seqs", "shorter --max-model-len", "fp8"]),
    ("UP-D04", None, "INFO vllm loading weights\nTraceback (most recent call last):\nKeyboardInterrupt: terminated", "terminated", ["a probe killed the pod", "failureThreshold"]),
    ("UP-D06", None, "ValueError: VLLM_PORT 'tcp://10.0.0.7:8000' appears to be a URI. This may be caused by a Kubernetes service discovery issue", "service_port", ["enableServiceLinks: false", "another name"]),
    ("UP-D08", None, "vllm\ntorch.distributed.DistBackendError: NCCL error: unhandled system error: Error while creating shared memory segment /dev/shm/nccl-1", "shm", ["emptyDir with medium: Memory", "--ipc=host"]),
    ("UP-D21", None, "INFO vllm ray_utils.py Waiting for creating a placement group of specs for 70 seconds. specs=[]", "ray_waiting", ["70 s", "VLLM_HOST_IP"]),
    ("UP-D22", None, "vllm node0:123:123 [0] NCCL INFO NET/Socket : Using [0]eno3:10.0.0.1<0>", "sockets", ["NET/IB", "--device=/dev/infiniband"]),
    ("UP-E04", None, "[TRT-LLM] [E] RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: mpiSize == tp * pp", "ranks", ["mpirun -n"]),
    ("UP-E10", None, "[12/20/2025-03:40:47] [TRT-LLM] [E] ValueError: The sum of prompt length (9351) should not exceed max_num_tokens (8192)", "prompt_room", ["enable_chunked_prefill: true", "(8192)"]),
    ("UP-E12", None, "[01/02/2026-01:00:00] [TRT-LLM] [E] Executor creation failed due to insufficient GPU memory. The following component could not be created: KV cache", "kv_creation", ["no defect of the engine", "lower free_gpu_memory_fraction", "smaller max_seq_len"]),
    ("UP-E16", None, "[TRT-LLM] [E] Cannot determine size of FP4 data type", "fp4", ["Blackwell"]),
    ("UP-B16", None, CORE + "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU has compute capability 7.5.", "capability", ["--dtype half", "--dtype float"]),
    ("UP-B26", None, "vllm\nValueError: invalid literal for int() with base 10: 'MIG-377e0049-554c-540b-93c6-d0976f8426cb'", "mig", ["as device 0"]),
    ("UP-B27", None, "vllm\nAssertionError: Sinks are only supported in FlashAttention 3", "sinks", ["newer release"]),
    ("neighbour", None, CORE + "ValueError: Free memory on device cuda:0 (20.10/79.15 GiB) on startup is less than desired GPU memory utilization (0.9, 71.24 GiB).", "neighbour", ["others hold 59.05 GiB", "--gpu-memory-utilization 0.25", "pkill"]),
    ("heads", None, "vllm\n  Value error, Total number of attention heads (52) must be divisible by tensor parallel size (8).", "heads", ["1, 2, 4, 13, 26 or 52"]),
    ("llama-memory", None, "llama_model_load: x\nggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory", "memory", ["4096.00 MiB", "a smaller -c"]),
    ("llama-argument", "llamacpp", "error: invalid argument: --flash", "argument", ["--help"]),
    ("llama-architecture", None, "llama_model_load: error loading model: unknown model architecture: 'newthing'", "architecture", ["newthing", "newer llama.cpp"]),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "log", "cause", "words"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_case(engine: str | None, log: str, cause: str, words: list[str]) -> None:
    found = first(log, engine=engine)
    assert found.cause == cause
    for word in words:
        assert word in found.text
    assert found.remedies


def test_tokens_are_worked_through_with_the_model_up_a09() -> None:
    log = "ValueError: The model's max seq len (4096) is larger than the maximum number of tokens that can be stored in KV cache (3664). Try"
    text = first(log, model=MHA).text
    for part in (
        "229 blocks of 16",
        "432 are missing",
        "512.0 KiB a token",
        "1.79 GiB",
        "2.00 GiB",
        "--max-model-len 3664",
    ):
        assert part in text
    assert first(log).numbers["missing_tokens"] == "432"


def test_cache_that_is_short_is_worked_through() -> None:
    log = (
        "non-default args: {'model_tag': 'meta-llama/Llama-3.1-8B-Instruct', 'max_num_seqs': 1024, 'gpu_memory_utilization': 0.85}\n"
        "total_gpu_memory (79.15GiB)\n"
        + CORE
        + "ValueError: To serve at least one request with the model's max seq len (131072), (16.00 GiB KV cache is needed, which is "
        "larger than the available KV cache memory (14.20 GiB). Based on the available memory, the estimated maximum model length "
        "is 116320. Try increasing\nRuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    found = first(log)
    assert found.kind == "out_of_memory"
    assert found.line == 3
    assert "1.80 GiB are missing (128.0 KiB a token)" in found.text
    assert [line.split(" ")[0] for line in found.remedies[:4]] == ["--max-model-len", "--max-num-seqs", "--kv-cache-dtype", "--gpu-memory-utilization"]  # fmt: skip
    assert "8.00 GiB instead of 16.00 GiB, which fits" in found.text
    assert "--gpu-memory-utilization 0.88 instead of 0.85" in found.text
    assert "about 1.3 GiB (PREDICTED)" in found.text


@pytest.mark.parametrize(("name", "cause"), [("badflag", "flag_unknown"), ("kv64", "host_memory"), ("tp3", "heads"), ("awq", "checkpoint"), ("block16", "block_size")])  # fmt: skip
def test_real_logs(name: str, cause: str) -> None:
    log = (LOGS / f"{name}.log").read_text()
    found = first(log)
    assert found.cause == cause
    assert found.reason == ENGINES["vllm"].classify(log, 1).reason


def test_a_refused_flag_says_what_became_of_it() -> None:
    assert (
        "0.17.1 was the last release with it"
        in first("INFO vllm version 0.32.0\nvllm: error: unrecognized arguments: --swap-space 4").text
    )


def test_tokens_of_a_tensor_parallel_model_up_a13() -> None:
    log = "tensor_parallel_size=8\nValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV cache (79392)."
    text = first(log, model=known_model("meta-llama/Llama-3.1-405B-Instruct")).text
    for part in ("63.0 KiB a token", "4.77 GiB", "7.88 GiB"):
        assert part in text


def test_a_log_that_was_cut_off_asks_for_the_rest() -> None:
    assert (
        first("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}").cause
        == "cut_off"
    )


def test_a_good_log_has_nothing_to_explain() -> None:
    assert explain(read_log((LOGS / "ok.log").read_text())) == ()


@pytest.mark.parametrize("prefix", ["llm-1  | ", "2026-01-02T03:04:05.123456789Z stderr F ", "\x1b[31m"])
def test_prefixes_of_containers_do_not_hide_the_cause(prefix: str) -> None:
    assert (
        first(prefix + "ValueError: max_num_seqs (8) exceeds available Mamba cache blocks (3).").cause == "mamba_blocks"
    )


@pytest.mark.parametrize("engine", ["vllm", "trtllm", "llamacpp"])
def test_patterns_and_causes_fit_together(engine: str) -> None:
    table = data(f"{engine}/failures.yaml")
    for entry in [*table["patterns"], *table.get("symptoms", [])]:
        assert "kind" not in entry or FailureKind(entry["kind"])
    named = {entry.get("id") for entry in [*table["patterns"], *table.get("symptoms", [])]} | {
        "memory_graphs",
        "cut_off",
    }
    assert set(table["causes"]) <= named
    for cause in table["causes"].values():
        assert cause["title"]
        assert cause["happened"]
        assert cause["remedies"]


@given(st.text(max_size=400))
def test_any_text_is_survived(text: str) -> None:
    for item in explain(read_log(text)):
        assert item.text


@given(st.sampled_from([case[2] for case in CASES]), st.text(max_size=80), st.text(max_size=80))
def test_noise_around_a_cause_is_survived(log: str, before: str, after: str) -> None:
    assert explain(read_log(f"{before}\n{log}\n{after}"))
