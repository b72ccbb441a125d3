"""TensorRT-LLM: what its start is made of, and what its words mean. Ids such as UP-E13 name public cases."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.plans import hub_model, local_model
from tuner.domain.engine import EngineConfig, LaunchSpec, Setting, Value
from tuner.domain.model import ModelSpec
from tuner.domain.study import EngineInstall
from tuner.domain.trial import FailureKind
from tuner.engines import ENGINES
from tuner.engines.trtllm_config import read_yaml, yaml_text
from tuner.errors import FlagError, LlmtuneError, SpaceError
from tuner.facts.flags import flag_table
from tuner.facts.read import data
from tuner.inspect.trtllm_command import parse_trtllm, read_trtllm_baseline
from tuner.load.target import parse_target

pytestmark = pytest.mark.unit

ENGINE = ENGINES["trtllm"]
TABLE: dict[str, Any] = data("trtllm/flags.json")
NEWEST = TABLE["versions"][-1]


def config(version: str = "1.2.1", **settings: Value) -> EngineConfig:
    """Build a config; `__` stands for the dot of a section."""
    return EngineConfig(engine="trtllm", version=version, settings=tuple(
        Setting(flag=flag.replace("__", "."), value=value) for flag, value in settings.items()))


def install(version: str, build: Any = "cuda") -> EngineInstall:
    return EngineInstall(engine="trtllm", version=version, build=build, program=("trtllm-serve",))


def launch(version: str = "1.2.1", model: ModelSpec | None = None, **settings: Value) -> LaunchSpec:
    return ENGINE.launch(model or hub_model(), config(version, **settings), install(version))


def file_of(spec: LaunchSpec) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(spec.files[0].text)
    return found


def refusal(flag: str, value: Value, version: str = "1.2.1") -> FlagError:
    with pytest.raises(FlagError) as caught:
        ENGINE.check(flag, value, version)
    return caught.value


# --- the launch


def test_every_setting_stands_in_one_place() -> None:
    settings: dict[str, Value] = {
        "max_batch_size": 64, "kv_cache_config__dtype": "fp8", "kv_cache_config__free_gpu_memory_fraction": 0.85,
        "cuda_graph_config__batch_sizes": "[1, 2, 4]", "tool_parser": "qwen3", "env:TRTLLM_ENABLE_PDL": "1",
    }
    spec = launch(**settings)
    words = " ".join(spec.arguments)
    assert file_of(spec) == {
        "max_batch_size": 64, "kv_cache_config": {"dtype": "fp8", "free_gpu_memory_fraction": 0.85},
        "cuda_graph_config": {"batch_sizes": [1, 2, 4]}, "revision": hub_model().revision,
    }
    assert "--tool_parser qwen3" in words
    assert spec.env["TRTLLM_ENABLE_PDL"] == "1"
    assert not any(name in words for name in ("max_batch_size", "fraction", "revision"))


def test_the_command_listens_where_it_is_told() -> None:
    """The engine's own default is localhost, which nobody outside of a container reaches."""
    spec = launch(max_batch_size=8)
    assert spec.command("0.0.0.0", 80, "/x")[-4:] == ("--host", "0.0.0.0", "--port", "80")
    assert spec.command("h", 1, "/x")[:4] == ("trtllm-serve", hub_model().location, "--config", "/x/trtllm-config.yaml")


@pytest.mark.parametrize(("version", "option"), [
    ("1.0.0", "--extra_llm_api_options"), ("1.1.0", "--extra_llm_api_options"), ("1.2.0", "--config"), (NEWEST, "--config")])
def test_the_option_of_the_file_has_the_name_that_the_release_knows(version: str, option: str) -> None:
    arguments = launch(version, max_batch_size=8).arguments
    assert arguments[arguments.index("{file:trtllm-config.yaml}") - 1] == option


def test_without_settings_there_is_no_file() -> None:
    """The engine reads an empty file as nothing at all, which is no mapping."""
    spec = launch(model=local_model())
    assert (spec.files, "--config" in spec.arguments) == ((), False)


@pytest.mark.parametrize(("version", "option"), [("1.0.0", False), ("1.2.1", False), ("1.4.0rc1", True)])
def test_telemetry_is_off_unless_asked_for(version: str, option: bool) -> None:
    spec = launch(version)
    assert ("--no-telemetry" in spec.arguments) is option
    assert ("TRTLLM_NO_USAGE_STATS" in spec.env) is not option


@pytest.mark.parametrize(("value", "word"), [(True, "--telemetry"), (False, "--no-telemetry")])
def test_telemetry_is_a_choice(value: bool, word: str) -> None:
    arguments = launch("1.4.0rc1", telemetry=value).arguments
    assert [one for one in arguments if "telemetry" in one] == [word]


@pytest.mark.parametrize(
    ("version", "model", "served"),
    [("1.4.0rc1", hub_model(), hub_model().name), ("1.2.1", hub_model(), hub_model().location),
     ("1.2.1", local_model(), "tiny-15m"), ("1.4.0rc1", local_model(name="my-name"), "my-name")],
)
def test_the_served_name_is_the_one_that_the_server_says(version: str, model: ModelSpec, served: str) -> None:
    """Before --served_model_name a server calls a directory by its last part, and a hub model by its id."""
    spec = launch(version, model)
    assert spec.served_name == served
    assert ("--served_model_name" in spec.arguments) is (version != "1.2.1")


def test_image_and_devices() -> None:
    spec = launch(tensor_parallel_size=4, pipeline_parallel_size=2)
    assert (spec.image, spec.image_program, spec.image_runs_commands) == (
        "nvcr.io/nvidia/tensorrt-llm/release:1.2.1", (), True)
    assert (spec.devices, spec.needs_shared_memory, spec.secret_env) == (8, True, ("HF_TOKEN",))


@pytest.mark.parametrize(("on", "path"), [(True, "/prometheus/metrics"), (False, "/metrics")])
def test_metrics_are_where_the_settings_put_them(on: bool, path: str) -> None:
    assert launch(return_perf_metrics=on).metrics_path == path


def test_graphs_off_is_null() -> None:
    assert file_of(launch(cuda_graph_config="null"))["cuda_graph_config"] is None


def test_a_section_is_set_whole_or_in_parts() -> None:
    with pytest.raises(FlagError, match="as a whole and in parts"):
        launch(cuda_graph_config="null", cuda_graph_config__enable_padding=True)


def test_up_e11_chunked_prefill_is_stated() -> None:
    assert file_of(launch("1.0.0", enable_chunked_prefill=True))["enable_chunked_prefill"] is True
    assert file_of(launch("1.0.0", enable_chunked_prefill=False))["enable_chunked_prefill"] is False


# --- legacy engines


def test_up_e02_the_tensorrt_backend_is_asked_for_by_name() -> None:
    assert "--backend tensorrt" in " ".join(launch("1.0.0", backend="tensorrt").arguments)
    error = refusal("env:TLLM_USE_TRT_ENGINE", "1", "1.0.0")
    assert "does not read" in error.message
    assert "backend=tensorrt" in (error.hint or "")


@pytest.mark.parametrize("version", ["1.3.0rc0", "1.3.0rc29", NEWEST])
def test_newer_releases_have_no_tensorrt_backend(version: str) -> None:
    assert "does not take backend tensorrt" in refusal("backend", "tensorrt", version).message
    with pytest.raises(FlagError, match="no trtllm-build"):
        launch(version, backend="tensorrt")


def test_up_e04_up_e07_the_build_states_its_limits_and_ranks_once(tmp_path: Path) -> None:
    spec = launch(backend="tensorrt", tensor_parallel_size=2, max_batch_size=256, max_seq_len=4096)
    script = next(file for file in spec.files if file.name.endswith(".sh"))
    assert "WARNING: legacy" in script.text
    for flag in ("--max_batch_size 256", "--max_num_tokens 8192", "--max_seq_len 4096", "--tp_size 2 --pp_size 1"):
        assert flag in script.text
    assert "mpirun -n" not in script.text
    path = tmp_path / script.name
    path.write_text(script.text)
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, "-S", "style", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_build_needs_a_length() -> None:
    with pytest.raises(FlagError, match="how long a sequence"):
        launch(model=hub_model(max_context=None), backend="tensorrt")


# --- what settings are


@pytest.mark.parametrize(
    ("flag", "value", "told"),
    [
        ("quantization", "fp8", "choice of checkpoint"),
        ("quant_config", "{}", "choice of checkpoint"),
        ("gpu-memory-utilization", 0.9, "free_gpu_memory_fraction"),
        ("max-num-seqs", 64, "max_batch_size"),
        ("kv_cache_dtype", "fp8", "kv_cache_config.dtype"),
        ("tokens_per_block", 32, "kv_cache_config.tokens_per_block"),
        ("max_batchsize", 1, "max_batch_size"),
        ("use_cuda_graph", True, "cuda_graph_config"),
    ],
)
def test_a_wrong_name_is_told_the_right_one(flag: str, value: Value, told: str) -> None:
    assert told in (refusal(flag, value).hint or "")


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("kv_cache_config.free_gpu_memory_fraction", 1.5, "at most 1"),
        ("max_batch_size", 0, "at least 1"),
        ("max_batch_size", "64", "whole number"),
        ("enable_chunked_prefill", "yes", "on or off"),
        ("kv_cache_config.dtype", "int8", "does not take"),
        ("cuda_graph_config.batch_sizes", "1 2", "JSON list"),
        ("cuda_graph_config", "off", "does not take"),
        ("host", "0.0.0.0", "cannot be set here"),
        ("env:TRTLLM_SECRET", "x", "secret"),
        ("--config", "x", "cannot be set here"),
    ],
)
def test_values_are_checked(flag: str, value: Value, said: str) -> None:
    assert said in refusal(flag, value).message


def test_kv_types_came_one_by_one() -> None:
    ENGINE.check("kv_cache_config.dtype", "nvfp4", "1.2.1")
    assert "does not take" in refusal("kv_cache_config.dtype", "nvfp4", "1.0.0").message
    assert "does not take" in refusal("kv_cache_config.dtype", "fp8_ds_mla", "1.2.1").message


@pytest.mark.parametrize("name", [
    "tensor_parallel_size", "pipeline_parallel_size", "moe_expert_parallel_size", "enable_attention_dp",
    "enable_chunked_prefill", "max_batch_size", "max_num_tokens", "max_seq_len", "kv_cache_config.free_gpu_memory_fraction",
    "kv_cache_config.dtype", "kv_cache_config.tokens_per_block", "kv_cache_config.enable_block_reuse",
    "cuda_graph_config.enable_padding", "cuda_graph_config.batch_sizes", "disable_overlap_scheduler", "moe_config.backend",
    "print_iter_log", "trust_remote_code",
])
def test_what_the_vendor_uses_from_1_2_to_1_4_is_there(name: str) -> None:
    """The keys of NVIDIA's own templates for 1.2.0rc5 to 1.3.0rc23, which the 1.4 line still has."""
    for version in ("1.2.0", "1.2.1", "1.3.0rc12", "1.3.0rc23", NEWEST):
        assert flag_table("trtllm", version).find(name) is not None


@pytest.mark.parametrize("version", TABLE["versions"])
def test_every_known_value_is_taken_and_survives_the_file(version: str) -> None:
    table = flag_table("trtllm", version)
    examples: dict[str, Value] = {"int": 1, "float": 1.0, "bool": True, "json": "{}", "json_list": "[1]", "str": "x", "list": "x"}
    for name in table.names():
        flag = table.require(name)
        value = flag.choices[-1] if flag.choices else examples[flag.kind]
        table.check(name, value)
        if flag.where != "cli" and name != "cuda_graph_config":
            text = yaml_text([Setting(flag=name, value=value)], version)
            assert read_yaml(yaml.safe_load(text), version) == {name: value}


def test_lives_are_in_order() -> None:
    for name, entry in TABLE["flags"].items():
        for history in (entry["kinds"], entry["defaults"], entry.get("choices", [])):
            assert [since for since, _ in history] == sorted((since for since, _ in history)), name


# --- the file


@pytest.mark.parametrize(
    ("document", "said", "told"),
    [
        pytest.param({"free_gpu_memory_fraction": 0.8}, "has no key free_gpu_memory_fraction in its file",
                     "kv_cache_config.free_gpu_memory_fraction", id="UP-E14"),
        pytest.param(["max_batch_size: 8"], "a mapping of keys, not a list", "key: value", id="UP-E13-list"),
        ({"kv_cache_config": {"fraction": 0.8}}, "no key kv_cache_config.fraction", None),
        ({"kv_cache_config": 0.8}, "a section with keys of its own", None),
        ({"tool_parser": "x"}, "has no key tool_parser in its file", "--tool_parser"),
        ({"quantization": "fp8"}, "no key quantization", "choice of checkpoint"),
        ({"max_batch_size": "many"}, "takes a whole number", None),
        ({1: 2}, "no key 1", None),
        ("text", "not a text", None),
    ],
)
def test_a_file_is_as_strict_as_the_engine(document: object, said: str, told: str | None) -> None:
    with pytest.raises(FlagError) as caught:
        read_yaml(document, "1.2.1")
    assert said in caught.value.message
    assert told is None or told in (caught.value.hint or "")


def test_null_is_the_default_except_where_it_switches_off() -> None:
    text = "max_seq_len: null\nspeculative_config: null\ncuda_graph_config: null\nkv_cache_config: {dtype: null}\n"
    assert read_yaml(yaml.safe_load(text), "1.2.1") == {"cuda_graph_config": "null"}


@given(st.dictionaries(st.sampled_from(["max_batch_size", "kv_cache_config.max_tokens", "stream_interval"]),
                       st.integers(1, 10**9)), st.booleans())
def test_settings_survive_the_file(numbers: dict[str, int], reuse: bool) -> None:
    values: dict[str, Value] = {**numbers, "kv_cache_config.enable_block_reuse": reuse}
    text = yaml_text([Setting(flag=flag, value=value) for flag, value in values.items()], "1.2.1")
    assert read_yaml(yaml.safe_load(text), "1.2.1") == values


# --- commands of others


def test_a_command_is_read_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "extra.yaml").write_text("max_num_tokens: 4096\ncuda_graph_config: null\nkv_cache_config:\n  dtype: fp8\n")
    script = tmp_path / "serve.sh"
    script.write_text("export TLLM_LOG_LEVEL=INFO\nexec trtllm-serve serve /models/llama \\\n  --tp_size 2 --host 0.0.0.0 "
                      "--kv_cache_free_gpu_memory_fraction=0.8 \\\n  --extra_llm_api_options extra.yaml --trust_remote_code\n")
    read = read_trtllm_baseline(str(script), version="1.2.1")
    assert read.config.values == {
        "env:TLLM_LOG_LEVEL": "INFO", "tensor_parallel_size": 2, "kv_cache_config.free_gpu_memory_fraction": 0.8,
        "max_num_tokens": 4096, "cuda_graph_config": "null", "kv_cache_config.dtype": "fp8", "trust_remote_code": True,
    }
    assert (read.model, read.ignored) == ("/models/llama", ("--host",))


def test_our_own_command_is_read_back(tmp_path: Path) -> None:
    spec = launch("1.4.0rc1", local_model(), max_batch_size=64, tool_parser="x", telemetry=False)
    (tmp_path / spec.files[0].name).write_text(spec.files[0].text)
    words = " ".join(spec.command("127.0.0.1", 8000, str(tmp_path)))
    read = parse_trtllm(words, version="1.4.0rc1", where="x", folder=tmp_path)
    assert read.config.values == {"max_batch_size": 64, "tool_parser": "x", "telemetry": False}


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("vllm serve m --max-num-seqs 8", SpaceError, "no `trtllm-serve` command"),
        ("trtllm-serve m --config missing.yaml", SpaceError, "missing.yaml"),
        ("trtllm-serve m --max_batch_size", FlagError, "needs a value"),
        ("trtllm-serve m --max-num-seqs 8", FlagError, "no key max_num_seqs"),
        ("trtllm-build --checkpoint_dir x", SpaceError, "no `trtllm-serve` command"),
        ("", SpaceError, "no `trtllm-serve` command"),
        ("trtllm-serve 'm", SpaceError, "--baseline:1: "),
    ],
)
def test_a_command_that_cannot_be_read(text: str, error: type[LlmtuneError], said: str) -> None:
    with pytest.raises(error, match=re.escape(said)):
        read_trtllm_baseline(text, version="1.2.1")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"- a\n", b"a: [", b"a: 1\n---\nb: 2\n", b"", b"&a {x: *a}", b"max_batch_size: 9" * 9])
def test_a_file_that_is_no_file_of_ours(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(content)
    with pytest.raises(LlmtuneError) as caught:
        read_trtllm_baseline(str(path), version="1.2.1")
    assert caught.value.message


def test_up_e13_the_same_setting_twice_is_refused(tmp_path: Path) -> None:
    """The engine lets the file win over the option, silently."""
    (tmp_path / "c.yaml").write_text("max_batch_size: 2048\n")
    with pytest.raises(FlagError, match="max_batch_size is set twice: 8 as an option and 2048 in the file"):
        parse_trtllm("trtllm-serve m --max_batch_size 8 --config c.yaml", version="1.2.1", where="x", folder=tmp_path)


# --- what it says of itself


LOG = """\
[12/20/2025-03:40:40] [TRT-LLM] [I] Using LLM with PyTorch backend
[12/20/2025-03:40:41] [TRT-LLM] [I] Prefetching 15.00GB checkpoint files.
[12/20/2025-03:40:44] [TRT-LLM] [I] Memory used after loading model weights (inside torch) in memory usage profiling: 15.00 GiB
[12/20/2025-04:21:10] [TRT-LLM] [W] Adjusted max_seq_len to 8224
[TensorRT-LLM][INFO] Number of tokens per block: 32.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 2.25 GiB for max tokens in paged KV cache (262112).
[12/20/2025-04:21:10] [TRT-LLM] [I] max_seq_len=8224, max_num_requests=64, max_num_tokens=8192, max_batch_size=64
INFO:     Application startup complete.
"""
STATS = [{"numActiveRequests": 1}, {
    "iter": 154, "numActiveRequests": 3, "numQueuedRequests": 2, "kvCacheStats": {
        "freeNumBlocks": 75, "maxNumBlocks": 100, "missedBlocks": 30, "reusedBlocks": 10, "tokensPerBlock": 32,
        "usedNumBlocks": 25}}]
SCRAPE = """\
# HELP trtllm_num_requests_running Number of active requests
trtllm_num_requests_running{model_name="m",engine_type="trtllm"} 3.0
trtllm_num_requests_waiting{model_name="m",engine_type="trtllm"} 2.0
trtllm_kv_cache_utilization{model_name="m"} 0.25
trtllm_prompt_tokens_total{model_name="m"} 1280.0
trtllm_generation_tokens_total{model_name="m"} 640.0
trtllm_prompt_cached_tokens_total{model_name="m"} 320.0
trtllm_request_success_total{model_name="m",finished_reason="length"} 20.0
trtllm_request_success_total{model_name="m",finished_reason="stop"} 1.0
"""


def test_startup_facts() -> None:
    facts = ENGINE.startup_facts(LOG, "")
    assert (facts.kv_cache_tokens, facts.kv_cache_bytes) == (262112, int(2.25 * 2**30))
    assert facts.weight_bytes == 15 << 30
    assert facts.resolved == {"max_seq_len": "8224", "max_num_requests": "64", "max_num_tokens": "8192",
                              "max_batch_size": "64", "tokens_per_block": "32"}
    assert facts.warnings == ("Adjusted max_seq_len to 8224",)
    assert ENGINE.startup_facts("", json.dumps(STATS)).kv_cache_tokens == 3200
    assert ENGINE.startup_facts("", "").kv_cache_tokens is None


def test_phases() -> None:
    lines = LOG.splitlines()
    seen = [ENGINE.phase("\n".join(lines[:count])) for count in range(len(lines) + 1)]
    assert list(dict.fromkeys(seen)) == ["starting", "loading weights", "sizing the KV cache", "listening"]


def test_metrics_of_both_pages() -> None:
    page, json_page = ENGINE.server_metrics(SCRAPE), ENGINE.server_metrics(json.dumps(STATS))
    assert (page.running, page.waiting, page.kv_usage) == (json_page.running, json_page.waiting, json_page.kv_usage) == (3, 2, 0.25)
    assert (page.prompt_tokens, page.generation_tokens, page.requests_finished) == (1280, 640, 21)
    assert (page.prefix_queries, page.prefix_hits) == (json_page.prefix_queries, json_page.prefix_hits) == (1280, 320)


@pytest.mark.parametrize("text", ["", "[]", "[", "[1, null]", "<html>", '[{"kvCacheStats": null}]', "{}"])
def test_a_page_that_says_nothing(text: str) -> None:
    metrics = ENGINE.server_metrics(text)
    assert (metrics.running, metrics.kv_usage, metrics.prompt_tokens) == (None, None, None)


@pytest.mark.parametrize(
    ("log", "code", "kind", "said"),
    [
        pytest.param(
            "[12/20/2025-03:40:47] [TRT-LLM] [E] Executor creation failed due to insufficient GPU memory.\n\nThe following "
            "component could not be created: KV cache\nTotal GPU memory (GiB): 139.81\nFree GPU memory before component "
            "creation attempt (GiB): 108.10\nRuntimeError: Executor worker returned error", 1,
            FailureKind.OUT_OF_MEMORY, "could not be created: KV cache", id="UP-E12"),
        (("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\nRuntimeError: Executor worker returned "
         "error"), 1, FailureKind.OUT_OF_MEMORY, "Tried to allocate"),
        (("pydantic_core._pydantic_core.ValidationError: 1 validation error for TorchLlmArgs\nkv_cache_config.fraction\n  "
         "Extra inputs are not permitted [type=extra_forbidden, input_value=0.8, input_type=float]"), 1,
         FailureKind.BAD_FLAG, "kv_cache_config.fraction: Extra inputs are not permitted"),
        ("Usage: trtllm-serve [OPTIONS] MODEL\n\nError: No such option: --max_num_seqs", 2, FailureKind.BAD_FLAG,
         "No such option: --max_num_seqs"),
        pytest.param("[TensorRT-LLM][ERROR] Assertion failed: mpiSize == tp * pp (/src/worldConfig.cpp:99)", 1,
                     FailureKind.UNSUPPORTED, "mpiSize == tp * pp", id="UP-E04"),
        pytest.param("[TensorRT-LLM][ERROR] Cannot determine size of FP4 data type", 1, FailureKind.UNSUPPORTED,
                     "FP4", id="UP-E16"),
        ("[Errno 98] error while attempting to bind on address", 1, FailureKind.MACHINE, "bind"),
        ("[12/20/2025-03:40:47] [TRT-LLM] [W] insufficient GPU memory for CUDA graphs, capturing fewer batch sizes", 1,
         FailureKind.CRASHED, "no known error"),
        ("", -9, FailureKind.OUT_OF_MEMORY, "SIGKILL"),
        ("", None, FailureKind.HUNG, "still running"),
    ],
)
def test_failures(log: str, code: int | None, kind: FailureKind, said: str) -> None:
    diagnosis = ENGINE.classify(log, code)
    assert diagnosis.failure is kind
    assert said in diagnosis.reason


def test_fatal_lines() -> None:
    assert ENGINE.fatal(LOG) is None
    assert ENGINE.fatal(LOG + "[TRT-LLM] [W] retry after CUDA out of memory\n") is None
    assert ENGINE.fatal(LOG + "RuntimeError: Executor worker returned error\n") == "RuntimeError: Executor worker returned error"


# --- the neutral view


def test_footprint() -> None:
    view = ENGINE.footprint(hub_model(), config(
        tensor_parallel_size=8, max_batch_size=256, max_seq_len=4096, kv_cache_config__dtype="fp8",
        cuda_graph_config="null", enable_chunked_prefill=True))
    assert (view.tensor_parallel, view.devices, view.max_sequences, view.max_context) == (8, 8, 256, 4096)
    assert (view.weight_bits, view.kv_bits, view.kv_dtype, view.eager, view.chunked_prefill) == (16.0, 8.0, "fp8", True, True)


def test_a_context_that_is_not_set_is_shortened_to_the_cache() -> None:
    """`Adjusted max_seq_len to ...`: vLLM refuses to start in its place."""
    assert ENGINE.footprint(hub_model(max_context=131072), config()).max_context is None


@pytest.mark.parametrize(("set_to", "expected"), [({}, 0.9), ({"kv_cache_config__free_gpu_memory_fraction": 0.5}, 0.5)])
def test_the_fraction_is_of_free_memory_never_of_the_device(set_to: dict[str, Value], expected: float) -> None:
    view = ENGINE.footprint(hub_model(), config(**set_to))
    assert (view.free_memory_fraction, view.memory_fraction) == (expected, None)


@pytest.mark.parametrize(
    ("facts", "bits"),
    [({"quantization": "modelopt", "quantization_bits": 8.0}, 8.0), ({"quantization": "modelopt", "quantization_format": "NVFP4"}, 4.5),
     ({"quantization": "fp8"}, 8.0), ({"dtype": "float32"}, 32.0)],
)
def test_weights_have_the_bits_of_the_checkpoint(facts: dict[str, Any], bits: float) -> None:
    assert ENGINE.footprint(hub_model(**facts), config()).weight_bits == bits


def test_a_build_gets_more_time() -> None:
    plain, built = (ENGINE.start_timeout_s(hub_model(), config(**s)) for s in ({}, {"backend": "tensorrt"}))
    assert built > plain > ENGINE.start_timeout_s(local_model(), config())


def test_up_e15_the_load_sends_nothing_that_is_vllm_s_own() -> None:
    target = parse_target("http://127.0.0.1:8000", "m", dialect="trtllm")
    assert "top_k" not in target.extra_body
    assert target.ignore_eos


@pytest.mark.parametrize(("settings", "hosts"), [
    ({"tensor_parallel_size": 16, "gpus_per_node": 8}, 2),
    ({"tensor_parallel_size": 8, "pipeline_parallel_size": 3, "gpus_per_node": 8}, 3),
    ({"tensor_parallel_size": 8, "gpus_per_node": 8}, None),
    ({"tensor_parallel_size": 16}, None),
    ({"tensor_parallel_size": 12, "gpus_per_node": 8}, None),
])  # fmt: skip
def test_several_hosts_are_started_by_mpi(settings: dict[str, Value], hosts: int | None) -> None:
    spec = launch(**settings)
    assert (spec.nodes.count if spec.nodes else None) == hosts
    if spec.nodes:
        assert spec.nodes.launcher == ("trtllm-llmapi-launch",)
        assert spec.nodes.count * spec.nodes.devices == spec.devices
        assert spec.nodes.arguments == ()
