"""The whole live path with TensorRT-LLM's stand-in: search, verification, files. It stands for no number of the engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.fakes import trtllm_serve
from tuner.output.bundle import load_plan
from tuner.runtime.detect import detect_engine

pytestmark = [pytest.mark.contract, pytest.mark.timeout(300)]

MODEL = {
    "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "hidden_size": 256, "intermediate_size": 512,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 4096, "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
SPACE = """\
schema_version: 1
engine: trtllm
settings:
  - flag: max_num_tokens
    values: [unset, 65536]
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MODEL))
    (folder / "model.safetensors").write_bytes(b"0" * 1000)
    return folder


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trtllm_serve.install(tmp_path_factory.mktemp("engines") / "e", "1.2.1")


def optimize(program: Path, model: Path, out: Path, *extra: str) -> subprocess.CompletedProcess[str]:
    space = out / "space.yaml"
    space.write_text(SPACE)
    command = [
        sys.executable, "-m", "tuner", "optimize", "--engine", "trtllm", "--engine-command", str(program), "--model",
        str(model), "--space", str(space), "--workload", "16x8@c4", "--requests", "16", "--finalists", "1",
        "--verify-rounds", "2", "--out", str(out), "--study", "live", *extra,
    ]
    env = {**os.environ, "PYTHONPATH": str(trtllm_serve.ROOT), "COLUMNS": "200"}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def outcomes(folder: Path) -> dict[int, dict[str, Any]]:
    trials = [json.loads(path.read_text()) for path in sorted((folder / "trials").glob("*/outcome.json"))]
    return {trial["number"]: trial["outcome"] for trial in trials}


@pytest.fixture(scope="module")
def study(program: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out")
    done = optimize(program, model, out, "--trials", "3", "--set", "return_perf_metrics=true", "--set",
                    "kv_cache_config.dtype=fp8", "--baseline", f"trtllm-serve {model} --max_batch_size 2 --port 80")
    assert done.returncode == 0, done.stderr
    return out / "tiny" / "live"


def test_the_installation_is_found_and_its_version_read(program: Path) -> None:
    for command in (program, program.parent.parent):
        install = detect_engine("trtllm", str(command))
        assert (install.engine, install.version, install.build) == ("trtllm", "1.2.1", "cpu")
        assert install.program == (str(program),)


def test_the_study_measures_and_decides(study: Path) -> None:
    plan = load_plan(study)
    assert {arm.label for arm in plan.arms} == {"baseline", "best"}
    assert plan.config.get("kv_cache_config.dtype") == "fp8"
    baseline = next(arm for arm in plan.arms if arm.label == "baseline")
    assert baseline.config.get("max_batch_size") == 2


def test_out_of_memory_is_named(study: Path) -> None:
    failed = [outcome for outcome in outcomes(study).values() if outcome["kind"] == "failed"]
    assert [(one["failure"], one["phase"]) for one in failed] == [("out_of_memory", "start")]
    assert "component could not be created" in failed[0]["reason"]


def test_the_file_of_each_trial_is_kept(study: Path) -> None:
    settings = yaml.safe_load((study / "trials" / "0000" / "trtllm-config.yaml").read_text())
    assert settings == {"kv_cache_config": {"dtype": "fp8"}, "return_perf_metrics": True}


def test_what_the_server_said_is_read(study: Path) -> None:
    measured = outcomes(study)[0]
    assert measured["startup"]["kv_cache_tokens"] > 100_000
    assert measured["startup"]["resolved"]["max_num_tokens"] == "8192"
    before, after = measured["metrics_before"], measured["metrics_after"]
    assert after["generation_tokens"] - before["generation_tokens"] >= measured["measurement"]["output_tokens"]


def test_the_stand_in_says_what_it_is(study: Path) -> None:
    assert "STAND-IN for trtllm-serve 1.2.1: it loads no model" in (study / "trials" / "0000" / "engine.log").read_text()


def test_the_emitted_script_serves_what_was_measured(study: Path, program: Path, model: Path) -> None:
    plan = load_plan(study)
    port = "18473"
    env = {**os.environ, "TRTLLM_SERVE": str(program), "MODEL_DIR": str(model), "PORT": port}
    server = subprocess.Popen([str(study / "deploy" / "serve.sh")], env=env, cwd="/", start_new_session=True,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        settings = None
        deadline = time.monotonic() + 60
        while settings is None and time.monotonic() < deadline and server.poll() is None:
            time.sleep(0.1)
            try:
                settings = httpx.get(f"http://127.0.0.1:{port}/settings", trust_env=False).json()
            except httpx.HTTPError:
                continue
        assert settings is not None
        assert {flag: settings.get(flag) for flag in plan.config.values} == plan.config.values
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


def test_a_key_that_the_engine_does_not_know_stops_its_start(model: Path, tmp_path: Path) -> None:
    """The metadata says a newer release than the program is, so that the tool lets the key pass and the program does not."""
    program = trtllm_serve.install(tmp_path / "e", "1.0.0", says="1.2.1")
    done = optimize(program, model, tmp_path, "--trials", "1", "--set", "kv_cache_config.tokens_per_block=64")
    assert done.returncode == 11, done.stderr
    assert "FAILED bad_flag" in done.stderr
    failed = outcomes(tmp_path / "tiny" / "live")[0]
    assert (failed["failure"], failed["exit_code"]) == ("bad_flag", 1)
    assert "kv_cache_config.tokens_per_block: Extra inputs are not permitted" in failed["reason"]


@pytest.mark.parametrize(
    ("words", "config", "code", "said"),
    [
        (["m", "--max-num-seqs", "8"], None, 2, "No such option: --max-num-seqs"),
        (["m", "--max_batch_size", "many"], None, 2, "is not a valid int"),
        (["m", "--backend", "cuda"], None, 2, "is not one of"),
        ([], None, 2, "Missing argument"),
        (["m"], "kv_cache_config:\n  disk_cache_size: 1\n", 1, "disk_cache_size\n  Extra inputs are not permitted"),
        (["m"], "quantization: fp8\n", 1, "quantization\n  Extra inputs are not permitted"),
        (["m"], "max_batch_size: '8'\n", 1, "valid int"),
        (["m"], "kv_cache_config:\n  dtype: int8\n", 1, "Input should be 'auto'"),
        (["m"], "- max_batch_size: 8\n", 1, "not a mapping"),
        (["m"], "tensor_parallel_size: 16\n", 1, "larger than the 8 GPUs"),
        (["m"], "max_num_tokens: 40000\n", 1, "CUDA out of memory"),
    ],
)
def test_the_stand_in_is_strict(
    program: Path, tmp_path: Path, words: list[str], config: str | None, code: int, said: str
) -> None:
    if config is not None:
        (tmp_path / "c.yaml").write_text(config)
        words = [*words, "--config", str(tmp_path / "c.yaml")]
    done = subprocess.run([str(program), *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert said in done.stderr
