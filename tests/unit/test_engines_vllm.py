"""vLLM: what is started, and what real logs and metrics of 0.32.0 say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import plans
from tuner.domain.engine import EngineConfig, Setting
from tuner.domain.study import EngineInstall
from tuner.domain.trial import FailureKind
from tuner.engines.vllm import VllmEngine
from tuner.errors import FlagError
from tuner.facts.flags import flag_table
from tuner.inspect.command import parse_serve

pytestmark = pytest.mark.unit

ENGINE = VllmEngine()
LOGS = Path(__file__).resolve().parent.parent / "data" / "vllm_logs"
INSTALL = EngineInstall(engine="vllm", version="0.32.0", build="cpu", program=("/opt/vllm/bin/vllm", "serve"))
CUDA = INSTALL.model_copy(update={"build": "cuda"})
MODEL = plans.local_model()


def log(name: str) -> str:
    return (LOGS / name).read_text(encoding="utf-8")


def config(**settings: Any) -> EngineConfig:
    return plans.config(*((flag.replace("_", "-"), value) for flag, value in settings.items()))


def arguments(**settings: Any) -> tuple[str, ...]:
    return ENGINE.launch(MODEL, config(**settings), INSTALL).arguments[3:]


# --- launch


def test_model_and_name_come_first() -> None:
    spec = ENGINE.launch(MODEL, config(), INSTALL)
    assert spec.arguments == ("/data/models/tiny-15m", "--served-model-name", "tiny-15m")
    assert spec.command("127.0.0.1", 8123) == (
        "/opt/vllm/bin/vllm", "serve", *spec.arguments, "--host", "127.0.0.1", "--port", "8123")
    assert (spec.model, spec.model_is_local, spec.served_name) == ("/data/models/tiny-15m", True, "tiny-15m")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_num_seqs": 64}, ("--max-num-seqs", "64")),
        ({"enforce_eager": True}, ("--enforce-eager",)),
        ({"enable_prefix_caching": False}, ("--no-enable-prefix-caching",)),
        ({"gpu_memory_utilization": 0.92}, ("--gpu-memory-utilization", "0.92")),
        ({"max_num_batched_tokens": "8k"}, ("--max-num-batched-tokens", "8k")),
        ({"max_model_len": -1}, ("--max-model-len=-1",)),
        ({"speculative_config": '{"method": "ngram"}'}, ("--speculative-config", '{"method": "ngram"}')),
        ({"quantization": "fp8", "block_size": 32}, ("--block-size", "32", "--quantization", "fp8")),
    ],
    ids=["int", "on", "off", "float", "text", "negative", "json", "sorted"],
)
def test_writes_flags_as_the_engine_reads_them(settings: dict[str, Any], words: tuple[str, ...]) -> None:
    assert arguments(**settings) == words


@given(st.floats(min_value=-1e15, max_value=1e15, allow_nan=False))
def test_no_digit_of_a_number_is_lost(value: float) -> None:
    words = arguments(gpu_memory_utilization=value)
    assert float(words[-1].removeprefix("--gpu-memory-utilization=")) == value


def test_variables_go_to_the_environment() -> None:
    spec = ENGINE.launch(MODEL, plans.config(("env:VLLM_CPU_KVCACHE_SPACE", "1"), ("max-num-seqs", 2)), INSTALL)
    assert spec.env == {"VLLM_CPU_KVCACHE_SPACE": "1"}
    assert not any("KVCACHE" in word for word in spec.arguments)


def test_a_hub_model_carries_revision_and_the_name_of_its_token() -> None:
    spec = ENGINE.launch(plans.hub_model(), config(), CUDA)
    assert ("--revision", plans.hub_model().revision) == spec.arguments[3:5]
    assert spec.secret_env == ("HF_TOKEN",)
    assert ENGINE.launch(MODEL, config(), INSTALL).secret_env == ()


def test_image_is_the_release_of_the_build_unless_one_was_given() -> None:
    assert ENGINE.launch(MODEL, config(), INSTALL).image == "vllm/vllm-openai-cpu:v0.32.0"
    assert ENGINE.launch(MODEL, config(), CUDA).image == "vllm/vllm-openai:v0.32.0"
    own = CUDA.model_copy(update={"image": "registry/own:1"})
    assert ENGINE.launch(MODEL, config(), own).image == "registry/own:1"
    unknown = ENGINE.launch(MODEL, config(), INSTALL.model_copy(update={"build": "unknown"}))
    assert (unknown.image, unknown.image_program) == (None, ())


@pytest.mark.parametrize(
    ("settings", "build", "devices", "shared"),
    [
        ({}, "cuda", 1, False),
        ({"tensor_parallel_size": 4}, "cuda", 4, True),
        ({"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "data_parallel_size": 2}, "cuda", 8, True),
        ({"tensor_parallel_size": 2}, "cpu", 0, True),
    ],
)
def test_devices_are_tensor_times_pipeline_times_data(
    settings: dict[str, Any], build: str, devices: int, shared: bool
) -> None:
    spec = ENGINE.launch(MODEL, config(**settings), INSTALL.model_copy(update={"build": build}))
    assert (spec.devices, spec.needs_shared_memory) == (devices, shared)


# What a user may set, with values of the right kinds.
SETTABLE = {
    "max-num-seqs": st.integers(1, 4096),
    "max-num-batched-tokens": st.one_of(st.integers(1, 10**6), st.sampled_from(["8k", "4K", "1M"])),
    "gpu-memory-utilization": st.floats(0.01, 1.0),
    "enable-prefix-caching": st.booleans(),
    "enable-chunked-prefill": st.booleans(),
    "enforce-eager": st.booleans(),
    "kv-cache-dtype": st.sampled_from(["auto", "fp8"]),
    "dtype": st.sampled_from(["auto", "half", "float32"]),
    "max-model-len": st.one_of(st.integers(1, 10**6), st.just(-1), st.just("auto")),
    "speculative-config": st.just('{"method": "ngram", "num_speculative_tokens": 4}'),
    "moe-backend": st.just("triton"),
    "env:VLLM_CPU_KVCACHE_SPACE": st.sampled_from(["1", "4"]),
}
configs = st.fixed_dictionaries({}, optional=SETTABLE).map(lambda settings: plans.config(*settings.items()))


@given(configs)
def test_what_is_launched_reads_back_as_the_same_configuration(config: EngineConfig) -> None:
    for setting in config.settings:
        ENGINE.check(setting.flag, setting.value, "0.32.0")
    spec = ENGINE.launch(MODEL, config, INSTALL)
    words = [*(f"{name}={value}" for name, value in spec.env.items()), *spec.command("127.0.0.1", 8000)]
    read = parse_serve(words, engine="vllm", version="0.32.0", where="test")
    assert read.config.key == config.key
    assert read.model == MODEL.location


# --- check


@pytest.mark.parametrize(
    "flag", ["model", "host", "port", "api-key", "hf-token", "served-model-name", "config"]
)
def test_flags_that_llmtune_sets_are_reserved(flag: str) -> None:
    for written in (flag, flag.replace("-", "_"), f"--{flag}"):
        with pytest.raises(FlagError, match="cannot be set here"):
            ENGINE.check(written, "x", "0.32.0")


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "VLLM_API_KEY", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "DB_PASSWORD"]
)
def test_a_secret_is_no_setting(name: str) -> None:
    with pytest.raises(FlagError, match="secret") as caught:
        ENGINE.check(f"env:{name}", "hf_abcdef", "0.32.0")
    assert "hf_abcdef" not in f"{caught.value.message} {caught.value.hint}"


def test_other_variables_are_settings() -> None:
    for name in ("OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "VLLM_CPU_OMP_THREADS_BIND", "NCCL_P2P_DISABLE"):
        ENGINE.check(f"env:{name}", "1", "0.32.0")


# --- footprint


def test_footprint_of_the_defaults_is_the_models() -> None:
    found = ENGINE.footprint(plans.hub_model(), config())
    assert (found.devices, found.weight_bits, found.kv_bits) == (1, 16.0, 16.0)
    assert found.max_context == 8192
    assert (found.max_sequences, found.batched_tokens, found.memory_fraction, found.kv_bytes) == (None,) * 4


@pytest.mark.parametrize(
    ("settings", "field", "value"),
    [
        ({"dtype": "float32"}, "weight_bits", 32.0),
        ({"dtype": "float32"}, "kv_bits", 32.0),
        ({"dtype": "half"}, "weight_bits", 16.0),
        ({"kv_cache_dtype": "fp8"}, "kv_bits", 8.0),
        ({"kv_cache_dtype": "fp8_e5m2"}, "kv_bits", 8.0),
        ({"kv_cache_dtype": "auto"}, "kv_bits", 16.0),
        ({"quantization": "fp8"}, "weight_bits", 8.0),
        ({"quantization": "awq_marlin"}, "weight_bits", 4.5),
        ({"max_num_batched_tokens": "8k"}, "batched_tokens", 8000),
        ({"max_model_len": "4K"}, "max_context", 4096),
        ({"max_model_len": -1}, "max_context", None),
        ({"max_model_len": "auto"}, "max_context", None),
        ({"gpu_memory_utilization": 0.5}, "memory_fraction", 0.5),
        ({"kv_cache_memory_bytes": "2G"}, "kv_bytes", 2 << 30),
        ({"max_num_seqs": 7}, "max_sequences", 7),
    ],
)
def test_footprint(settings: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(ENGINE.footprint(plans.hub_model(), config(**settings)), field) == value


def test_footprint_reads_the_cpus_kv_space() -> None:
    with_space = plans.config(("env:VLLM_CPU_KVCACHE_SPACE", "1.5"))
    assert ENGINE.footprint(MODEL, with_space).kv_bytes == 3 << 29
    nonsense = plans.config(("env:VLLM_CPU_KVCACHE_SPACE", "lots"))
    assert ENGINE.footprint(MODEL, nonsense).kv_bytes is None


def test_start_timeout_grows_with_the_weights() -> None:
    small = ENGINE.start_timeout_s(MODEL, config(enforce_eager=True))
    big = ENGINE.start_timeout_s(plans.hub_model(), config(enforce_eager=True))
    assert 600 <= small < 700
    assert big > 5000
    assert ENGINE.start_timeout_s(MODEL, config()) > small


# --- startup facts


def test_facts_of_a_real_start() -> None:
    facts = ENGINE.startup_facts(log("ok.log"), log("ok.metrics"))
    assert facts.kv_cache_tokens == 524_288
    assert facts.kv_cache_bytes == 1 << 30
    assert facts.resolved["dtype"] == "float32"
    assert facts.resolved["max_model_len"] == "4096"
    assert facts.resolved["enforce_eager"] == "True"
    assert facts.resolved["tensor_parallel_size"] == "1"
    assert facts.resolved["block_size"].isdigit()
    assert set(facts.resolved) >= {"cache_dtype", "enable_prefix_caching", "num_gpu_blocks"}


def test_facts_of_the_log_alone() -> None:
    assert ENGINE.startup_facts(log("ok.log"), "").kv_cache_tokens == 524_288


def test_facts_of_a_gpu_start() -> None:
    text = (
        "INFO 12-01 13:00:00 [gpu_model_runner.py:1] Model loading took 14.9889 GiB and 3.1 seconds\n"
        "INFO 12-01 13:00:01 [cuda.py:1] Using FLASH_ATTN attention backend out of potential backends: [...]\n"
        "INFO 12-01 13:00:02 [gpu_worker.py:1] Available KV cache memory: 18.78 GiB\n"
        "INFO 12-01 13:00:03 [kv_cache_utils.py:1] GPU KV cache size: 175,856 tokens\n"
        "INFO 12-01 13:00:04 [gpu_model_runner.py:1] Graph capturing finished in 12 secs, took 0.54 GiB\n"
    )
    facts = ENGINE.startup_facts(text, "")
    assert facts.kv_cache_tokens == 175_856
    assert facts.kv_cache_bytes == int(18.78 * 2**30)
    assert facts.weight_bytes == int(14.9889 * 2**30)
    assert facts.graph_bytes == int(0.54 * 2**30)
    assert facts.attention_backend == "FLASH_ATTN"


def test_facts_of_nothing_are_nothing() -> None:
    facts = ENGINE.startup_facts("", "")
    assert facts.kv_cache_tokens is None
    assert facts.resolved == {}


# --- metrics


def test_reads_real_metrics() -> None:
    found = ENGINE.server_metrics(log("ok.metrics"))
    assert found.prompt_tokens == 6
    assert found.preemptions == 0
    assert found.running == found.waiting == 0
    assert found.prefix_queries == 6
    assert found.prefix_hits == 0
    assert found.generation_tokens is not None
    assert found.generation_tokens > 0
    assert found.requests_finished == 2
    assert found.kv_usage == 0


def test_metrics_of_a_data_parallel_server_are_summed_and_shares_averaged() -> None:
    text = "".join(
        f'vllm:num_requests_running{{engine="{n}"}} {n + 1}\nvllm:gpu_cache_usage_perc{{engine="{n}"}} 0.{n}\n'
        for n in (2, 4)
    )
    found = ENGINE.server_metrics(text)
    assert found.running == 8
    assert found.kv_usage == pytest.approx(0.3)
    assert found.prompt_tokens is None


# --- why it died


@pytest.mark.parametrize(
    ("name", "exit_code", "kind", "says"),
    [
        ("badflag.log", 2, FailureKind.BAD_FLAG, "unrecognized arguments: --swap-space 4"),
        ("tp3.log", 1, FailureKind.UNSUPPORTED, "attention heads (4) must be divisible by tensor parallel size (3)"),
        ("batched.log", 1, FailureKind.BAD_FLAG, "max_num_batched_tokens (64) must be greater than or equal to"),
        ("awq.log", 1, FailureKind.UNSUPPORTED, "Cannot find the config file for awq"),
        ("block16.log", 1, FailureKind.UNSUPPORTED, "No common block size for"),
        ("kv64.log", 1, FailureKind.OUT_OF_MEMORY, "Available memory on node"),
        ("tp2.log", 1, FailureKind.UNSUPPORTED, "Not enough allowed NUMA nodes"),
    ],
)
def test_the_root_cause_of_real_failures(name: str, exit_code: int, kind: FailureKind, says: str) -> None:
    found = ENGINE.classify(log(name), exit_code)
    assert found.failure is kind
    assert says in found.reason
    assert "\n" not in found.reason
    assert "type=value_error" not in found.reason


@pytest.mark.parametrize("name", ["block16.log", "kv64.log", "tp2.log"])
def test_an_engine_core_that_failed_is_fatal_before_the_process_ends(name: str) -> None:
    line = ENGINE.fatal(log(name))
    assert line is not None
    assert "failed" in line
    assert "\n" not in line


@pytest.mark.parametrize("name", ["ok.log"])
def test_a_good_start_is_never_fatal(name: str) -> None:
    assert ENGINE.fatal(log(name)) is None


PREFIX = "(EngineCore pid=1) ERROR 01-01 00:00:00 [core.py:1] "


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        pytest.param(
            PREFIX + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 ...\n"
            "RuntimeError: Engine core initialization failed. See root cause above.",
            FailureKind.OUT_OF_MEMORY, "Tried to allocate 2.00 MiB", id="UP-A17",
        ),
        pytest.param(
            "ValueError: The model's max seq len (4096) is larger than the maximum number of tokens that can be stored"
            " in KV cache (3664). Try increasing `gpu_memory_utilization`",
            FailureKind.OUT_OF_MEMORY, "(3664)", id="UP-A09",
        ),
        pytest.param(
            "ValueError: No available memory for the cache blocks. Try increasing",
            FailureKind.OUT_OF_MEMORY, "No available memory", id="UP-A04",
        ),
        pytest.param(
            "ValueError: To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is "
            "needed, which is larger than the available KV cache memory (9.8 GiB).",
            FailureKind.OUT_OF_MEMORY, "max seq len (131072)", id="kv-needed",
        ),
        pytest.param(
            "ValueError: Free memory on device (10.1/79.1 GiB) on startup is less than desired GPU memory utilization",
            FailureKind.OUT_OF_MEMORY, "Free memory on device", id="neighbour",
        ),
        pytest.param(
            "ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (30). Each decode sequence requires "
            "one Mamba cache block",
            FailureKind.UNSUPPORTED, "Mamba cache blocks (30)", id="UP-A20",
        ),
        pytest.param(
            "AssertionError: Error in memory profiling. Initial free memory 42 GiB, current free memory 50 GiB. "
            "This happens when other processes sharing the same container release GPU memory",
            FailureKind.MACHINE, "memory profiling", id="UP-A07",
        ),
        pytest.param(
            "ValueError: Total number of attention heads (52) must be divisible by tensor parallel size (8).",
            FailureKind.UNSUPPORTED, "(52)", id="UP-A30",
        ),
        pytest.param(
            "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU",
            FailureKind.UNSUPPORTED, "Bfloat16", id="UP-B16",
        ),
        pytest.param(
            "OSError: [Errno 98] Address already in use", FailureKind.MACHINE, "Address already in use", id="port"
        ),
        pytest.param("OSError: [Errno 28] No space left on device", FailureKind.MACHINE, "No space left", id="disk"),
        pytest.param(
            "RuntimeError: CUDA error: uncorrectable ECC error encountered", FailureKind.MACHINE, "ECC", id="ecc"
        ),
        pytest.param("RuntimeError: something else", FailureKind.CRASHED, "something else", id="crash"),
        pytest.param(
            "huggingface_hub.errors.GatedRepoError: 401 Client Error. Access to model x is restricted",
            FailureKind.UNSUPPORTED, "restricted", id="gated",
        ),
    ],
)
def test_words_that_are_known(text: str, kind: FailureKind, says: str) -> None:
    found = ENGINE.classify(f"INFO 01-01 00:00:00 [x.py:1] hello\n{text}\n", 1)
    assert (found.failure, says in found.reason) == (kind, True), found


def test_the_classifier_reads_the_log_and_not_the_exception() -> None:
    """PT-06: a rival's classifier never saw the server's log, so an OOM at start was filed as a start-up error."""
    lines = [f"line {number}" for number in range(5000)]
    text = "\n".join([*lines[:2000], PREFIX + "torch.OutOfMemoryError: CUDA out of memory. Tried", *lines[2000:]])
    assert ENGINE.classify(text, 1).failure is FailureKind.OUT_OF_MEMORY


def test_what_is_only_said_in_passing_is_no_cause() -> None:
    passing = (
        "INFO 12-01 13:44:24 [x.py:1] set expandable segments to avoid CUDA out of memory\n"
        "(APIServer pid=5) WARNING 12-01 13:44:24 [x.py:1] limits can cause OSError: [Errno 24] Too many open files\n"
    )
    assert ENGINE.fatal(passing) is None
    assert ENGINE.fatal(passing + PREFIX + "torch.OutOfMemoryError: CUDA out of memory.") is not None
    assert ENGINE.classify(passing, 1).failure is FailureKind.CRASHED
    assert "13:44" not in ENGINE.classify(passing, 1).reason


@pytest.mark.parametrize(
    ("exit_code", "kind"),
    [
        (None, FailureKind.HUNG), (-9, FailureKind.OUT_OF_MEMORY), (137, FailureKind.OUT_OF_MEMORY),
        (2, FailureKind.BAD_FLAG), (1, FailureKind.CRASHED), (-11, FailureKind.CRASHED), (0, FailureKind.CRASHED),
    ],
)
def test_a_silent_end_goes_by_the_exit_code(exit_code: int | None, kind: FailureKind) -> None:
    assert ENGINE.classify("", exit_code).failure is kind


@given(st.text(), st.one_of(st.none(), st.integers(-64, 255)))
def test_any_text_can_be_classified(text: str, exit_code: int | None) -> None:
    found = ENGINE.classify(text, exit_code)
    assert found.reason
    assert len(found.reason) <= 400
    ENGINE.startup_facts(text, text)
    ENGINE.server_metrics(text)
    assert ENGINE.phase(text)


# --- phases


def test_phases_of_a_real_start_go_forward() -> None:
    text = log("ok.log")
    seen = [ENGINE.phase(text[:end]) for end in range(0, len(text), 200)] + [ENGINE.phase(text)]
    order = list(dict.fromkeys(seen))
    assert order[0] == "starting"
    assert order[-1] == "listening"
    assert "loading weights" in order
    assert [phase for index, phase in enumerate(seen) if phase != seen[max(0, index - 1)]] == order[1:]


# --- the table of flags against the parser's own words


def test_every_flag_of_a_real_starts_log_is_known() -> None:
    line = next(line for line in log("ok.log").splitlines() if "non-default args:" in line)
    names = json.loads(line.split("args: ")[1].replace("'", '"').replace("True", "true"))
    table = flag_table("vllm", "0.32.0")
    assert [name for name in names if name != "model_tag" and table.find(name) is None] == []


def test_a_setting_of_a_trial_is_launched_like_one_of_a_user() -> None:
    by = [Setting(flag="max-num-seqs", value=4, source=source) for source in ("user", "trial", "baseline")]
    specs = {
        ENGINE.launch(MODEL, EngineConfig(engine="vllm", version="0.32.0", settings=(one,)), INSTALL).model_dump_json()
        for one in by
    }
    assert len(specs) == 1
