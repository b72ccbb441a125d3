"""Other people's commands and files, read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner.domain.plan import Plan
from tuner.errors import FlagError, LlmtuneError, SpaceError
from tuner.facts.flags import flag_table
from tuner.inspect.command import ReadCommand, parse_serve, parse_value, read_baseline

pytestmark = pytest.mark.unit


def read(text: str, version: str = "0.32.0") -> ReadCommand:
    return read_baseline(text, engine="vllm", version=version)


def refusal(text: str, version: str = "0.32.0") -> LlmtuneError:
    with pytest.raises(LlmtuneError) as caught:
        read(text, version)
    return caught.value


# --- one string


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("--max-num-seqs 64", {"max-num-seqs": 64}),
        ("--max-num-seqs=64", {"max-num-seqs": 64}),
        ("--max_num_seqs 64", {"max-num-seqs": 64}),
        ("-tp 2", {"tensor-parallel-size": 2}),
        ("-tp=2", {"tensor-parallel-size": 2}),
        ("--gpu-memory-utilization .9", {"gpu-memory-utilization": 0.9}),
        ("--gpu-memory-utilization 1", {"gpu-memory-utilization": 1.0}),
        ("--enforce-eager", {"enforce-eager": True}),
        ("--no-enable-prefix-caching", {"enable-prefix-caching": False}),
        ("--no-enable_prefix_caching", {"enable-prefix-caching": False}),
        ("--max-model-len -1", {"max-model-len": -1}),
        ("--max-model-len auto", {"max-model-len": "auto"}),
        ("--max-num-batched-tokens 8k", {"max-num-batched-tokens": "8k"}),
        ("--kv-cache-dtype fp8 --quantization fp8", {"kv-cache-dtype": "fp8", "quantization": "fp8"}),
        ("""--speculative-config '{"method": "ngram"}'""", {"speculative-config": '{"method": "ngram"}'}),
        (
            "--speculative-config.method ngram --speculative-config.num_speculative_tokens 5",
            {"speculative-config": '{"method": "ngram", "num_speculative_tokens": 5}'},
        ),
        (
            """--compilation-config '{"mode": 3, "a": 1}' --compilation-config.pass_config.fuse true -cc.mode 2""",
            {"compilation-config": '{"a": 1, "mode": 2, "pass_config": {"fuse": true}}'},
        ),
        ("--cudagraph-capture-sizes 1 2 4", {"cudagraph-capture-sizes": "1 2 4"}),
        ("--max-num-seqs 2 --max-num-seqs 4", {"max-num-seqs": 4}),
        ("-O3", {"optimization-level": "3"}),
        ("", {}),
    ],
)
def test_reads_settings_as_the_engine_would(words: str, values: dict[str, Any]) -> None:
    found = read(f"vllm serve some/model {words}")
    assert found.config.values == values
    assert [type(value) for value in found.config.values.values()] == [type(value) for value in values.values()]
    assert found.model == "some/model"
    assert all(setting.source == "baseline" for setting in found.config.settings)


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("vllm serve m", "m"),
        ("/opt/vllm/bin/vllm serve --max-num-seqs 2 m", "m"),
        ("vllm serve --enforce-eager m", "m"),
        ("vllm serve --model m", "m"),
        ("vllm serve --model=m", "m"),
        ("python -m vllm.entrypoints.openai.api_server --model m", "m"),
        ("nohup vllm serve m --max-num-seqs 2 > vllm.log 2>&1 &", "m"),
        ("vllm serve m 2>/dev/null", "m"),
        ("vllm serve m | tee log", "m"),
        ("vllm serve m && echo done", "m"),
        ("vllm serve m; echo done", "m"),
        ("sudo -E env A=b vllm serve m", "m"),
        ("CUDA_VISIBLE_DEVICES=0,1 exec vllm serve m", "m"),
        ('vllm serve "$MODEL"', None),
        ("vllm serve", None),
    ],
)
def test_finds_the_model_wherever_the_command_stands(text: str, model: str | None) -> None:
    found = read(text)
    assert found.model == model
    assert set(found.config.values) <= {"max-num-seqs", "enforce-eager"}


def test_lines_go_on_after_a_backslash() -> None:
    found = read("vllm serve m \\\n  --max-num-seqs 2 \\\n  --enforce-eager  # why not\n")
    assert found.config.values == {"max-num-seqs": 2, "enforce-eager": True}


def test_the_engines_variables_are_settings_and_secrets_are_not() -> None:
    found = read("HF_TOKEN=hf_x VLLM_API_KEY=k OMP_NUM_THREADS=2 VLLM_CPU_KVCACHE_SPACE=2 vllm serve m")
    assert found.config.values == {"env:VLLM_CPU_KVCACHE_SPACE": "2"}
    assert "hf_x" not in found.model_dump_json()


def test_what_llmtune_sets_is_left_aside_and_told() -> None:
    found = read("vllm serve m --host 0.0.0.0 --port 80 --served-model-name a b --api-key secret --max-num-seqs 2")
    assert found.ignored == ("--host", "--port", "--served-model-name", "--api-key")
    assert found.config.values == {"max-num-seqs": 2}
    assert "secret" not in found.model_dump_json()


@pytest.mark.parametrize(
    ("words", "version", "kind", "says", "hint"),
    [
        pytest.param("--swap-space 4", "0.32.0", FlagError, "no longer has --swap-space", "kv-offloading", id="PT-04"),
        pytest.param("--guided-decoding-backend xgrammar", "0.23.0", FlagError, "no longer has", "structured-outputs",
                     id="UP-B09"),
        pytest.param("--speculative-model a/b --num-speculative-tokens 5", "0.15.0", FlagError, "no longer has",
                     "--speculative-config", id="UP-B14"),
        pytest.param("--max-num-seqs many", "0.32.0", FlagError, "takes a whole number", None, id="kind"),
        pytest.param("--max-num-seqs", "0.32.0", FlagError, "needs a value", None, id="no-value"),
        pytest.param("--max-num-seqs --enforce-eager", "0.32.0", FlagError, "needs a value", None, id="flag-as-value"),
        pytest.param("--enforce-eager=false", "0.32.0", FlagError, "takes no value", "--no-enforce-eager", id="bool"),
        pytest.param("--no-max-num-seqs", "0.32.0", FlagError, "has no flag", None, id="not-negatable"),
        pytest.param("'--dtype auto'", "0.32.0", FlagError, "has no flag --dtype auto", "--dtype", id="UP-B10-one-word"),
        pytest.param("'unbalanced", "0.32.0", SpaceError, "cannot split the command", None, id="quote"),
    ],
)
def test_refuses_and_says_how(words: str, version: str, kind: type, says: str, hint: str | None) -> None:
    error = refusal(f"vllm serve m {words}", version)
    assert type(error) is kind
    assert says in error.message
    assert hint is None or hint in (error.hint or "")


def test_a_variable_of_another_release_is_refused() -> None:
    error = refusal("VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve m", "0.26.0")
    assert "VLLM_ATTENTION_BACKEND" in error.message
    assert read("VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve m", "0.14.1").config.values


@pytest.mark.parametrize(
    "text",
    ["echo hello", "python serve.py", "vllm bench serve", "", "docker run " + "-v /data/models/" * 40 + " image --model m",
     "x" * 300],
    ids=["echo", "other", "bench", "empty", "docker", "long"],
)
def test_no_serve_command(text: str) -> None:
    error = refusal(text)
    assert isinstance(error, SpaceError)
    assert "no `vllm serve` command in it" in error.message
    assert "vllm serve MODEL" in (error.hint or "")


# --- files


def test_reads_a_shell_script(tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text(
        "#!/bin/sh\n# vllm serve old --max-num-seqs 1\nexport VLLM_CPU_KVCACHE_SPACE='2'\nexport HF_TOKEN=hf_x\n"
        "export VLLM_LOGGING_LEVEL=WARNING\n"
        'exec vllm serve /models/m \\\n  --max-num-seqs 64 \\\n  --port "${PORT:-8000}" "$@"\n'
    )
    found = read(str(script))
    assert found.model == "/models/m"
    assert found.config.values == {
        "max-num-seqs": 64, "env:VLLM_CPU_KVCACHE_SPACE": "2", "env:VLLM_LOGGING_LEVEL": "WARNING"}


def test_reads_a_vllm_config(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "model: some/model\nport: 8000\nmax-num-seqs: 64\ngpu_memory_utilization: 0.9\nenforce-eager: true\n"
        'enable-prefix-caching: false\nspeculative-config: {"method": "ngram"}\nserved-model-name: [a, b]\n'
    )
    found = read(str(file))
    assert found.model == "some/model"
    assert found.config.values == {
        "max-num-seqs": 64, "gpu-memory-utilization": 0.9, "enforce-eager": True, "enable-prefix-caching": False,
        "speculative-config": '{"method": "ngram"}'}


COMPOSE = """\
services:
  proxy:
    image: nginx
    command: ["nginx"]
  llm:
    image: vllm/vllm-openai:v0.32.0
    environment: {env}
    command: {command}
"""


@pytest.mark.parametrize(
    ("env", "command"),
    [
        ('{VLLM_LOGGING_LEVEL: "WARNING", HF_TOKEN: x, EMPTY: null}', '["some/model", "--max-num-seqs", "64", "--port", 80]'),
        ('["VLLM_LOGGING_LEVEL=WARNING", "HF_TOKEN"]', "some/model --max-num-seqs 64"),
        ("{VLLM_LOGGING_LEVEL: WARNING}", "--model some/model --max-num-seqs=64"),
        ("{VLLM_LOGGING_LEVEL: WARNING}", '["vllm", "serve", "some/model", "--max-num-seqs", "64"]'),
        ("{VLLM_LOGGING_LEVEL: WARNING}", '["serve", "some/model", "--max-num-seqs", "64"]'),
    ],
    ids=["list", "text", "model-flag", "UP-B10", "UP-B10-serve"],
)
def test_reads_a_compose_file(tmp_path: Path, env: str, command: str) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE.format(env=env, command=command))
    found = read(str(file))
    assert found.model == "some/model"
    assert found.config.values == {"max-num-seqs": 64, "env:VLLM_LOGGING_LEVEL": "WARNING"}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.yaml", "services: {db: {image: postgres}}\n", "no service with a vLLM image and a command"),
        ("a.yaml", "- 1\n", "neither a vLLM config nor a Compose file"),
        ("a.yaml", "a: [\n", "not valid YAML"),
        ("a.yaml", "max-num-seq: 4\n", "has no flag --max-num-seq"),
        ("a.sh", "echo\n", "no `vllm serve` command in it"),
        ("none.sh", None, "cannot be read"),
        ("none.yaml", None, "no such file"),
    ],
)
def test_files_that_hold_no_baseline(tmp_path: Path, name: str, text: str | None, says: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    error = refusal(str(tmp_path / name))
    assert says in error.message
    assert "\n" not in error.message


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_bytes(b"\xff\xfe vllm serve")
    assert "cannot be read" in refusal(str(tmp_path / "a.sh")).message


@pytest.mark.parametrize("case", ["cpu-local", "h100x8-gated", "predicted", "no-image"])
@pytest.mark.parametrize("name", ["serve.sh", "compose.yaml"])
def test_reads_the_files_that_llmtune_writes(case: str, name: str) -> None:
    """An emitted file is a good baseline for the next study."""
    folder = Path(__file__).resolve().parent.parent / "golden" / case
    file = folder / "deploy" / name
    plan = Plan.model_validate_json((folder / "plan.json").read_text())
    if not file.exists():
        assert plan.launch.image is None, "only a plan without an image has no Compose file"
        return
    words = [*(f"{key}={value}" for key, value in plan.launch.env.items()), "vllm", "serve", *plan.launch.arguments]
    launched = parse_serve(words, engine="vllm", version=plan.config.version, where="launch")
    assert read(str(file), plan.config.version).config.key == launched.config.key


# --- single values


@pytest.mark.parametrize(
    ("flag", "text", "value"),
    [
        ("max-num-seqs", "64", 64), ("max-num-seqs", "-1", -1), ("max-num-seqs", "6.5", "6.5"),
        ("gpu-memory-utilization", "0.9", 0.9), ("gpu-memory-utilization", "1e-1", 0.1),
        ("gpu-memory-utilization", "nan", "nan"), ("enforce-eager", "true", True), ("enforce-eager", "OFF", False),
        ("enforce-eager", "maybe", "maybe"), ("quantization", "1", "1"), ("max-num-batched-tokens", "8k", "8k"),
        ("max-num-batched-tokens", "8192", 8192),
    ],
)
def test_parse_value(flag: str, text: str, value: Any) -> None:
    found = parse_value(flag_table("vllm", "0.32.0").require(flag), text)
    assert found == value
    assert type(found) is type(value)
