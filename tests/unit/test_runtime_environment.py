"""What an engine inherits from the shell, and what not."""

from __future__ import annotations

import pytest

from tuner.domain.engine import LaunchSpec
from tuner.runtime.environment import engine_environment, left_out

pytestmark = pytest.mark.unit


def spec_of(**changes: object) -> LaunchSpec:
    fields: dict[str, object] = {
        "program": ("/opt/engine/bin/vllm", "serve"), "arguments": ("m",), "bind": (), "model": "m",
        "model_is_local": False, "served_name": "m",
    }
    return LaunchSpec.model_validate({**fields, **changes})


@pytest.mark.parametrize(
    "name",
    ["HOME", "LANG", "TMPDIR", "HF_HOME", "HF_HUB_OFFLINE", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "HTTPS_PROXY",
     "VLLM_CACHE_ROOT", "TOKENIZERS_PARALLELISM", "OMP_NUM_THREADS"],
)  # fmt: skip
def test_kept(name: str):
    assert engine_environment(spec_of(), {name: "value"})[name] == "value"


@pytest.mark.parametrize(
    "name",
    ["PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LLMTUNE_LAUNCH", "PYTEST_CURRENT_TEST", "VLLM_ATTENTION_BACKEND",
     "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "VLLM_API_KEY"],
)  # fmt: skip
def test_not_kept(name: str):
    assert name not in engine_environment(spec_of(), {name: "value"})


def test_a_secret_that_is_named_is_passed_on():
    env = engine_environment(spec_of(secret_env=("HF_TOKEN", "ABSENT")), {"HF_TOKEN": "hf_x", "OTHER_TOKEN": "y"})
    assert env["HF_TOKEN"] == "hf_x"
    assert "ABSENT" not in env
    assert "OTHER_TOKEN" not in env


def test_the_configuration_wins_over_the_shell():
    env = engine_environment(spec_of(env={"OMP_NUM_THREADS": "2", "VLLM_X": "1"}), {"OMP_NUM_THREADS": "8", "VLLM_X": "0"})
    assert env["OMP_NUM_THREADS"] == "2"
    assert env["VLLM_X"] == "1"


@pytest.mark.parametrize(("before", "after"), [("", "127.0.0.1,localhost,::1"), ("a.b,localhost", "a.b,localhost,127.0.0.1,::1"), ("*", "*")])
def test_proxies_never_apply_to_loopback(before: str, after: str):
    env = engine_environment(spec_of(), {"NO_PROXY": before})
    assert env["NO_PROXY"] == after
    assert "127.0.0.1" in env["no_proxy"]


def test_the_programs_own_directory_leads_the_path():
    assert engine_environment(spec_of(), {"PATH": "/usr/bin"})["PATH"] == "/opt/engine/bin:/usr/bin"
    assert engine_environment(spec_of(), {})["PATH"] == "/opt/engine/bin"
    assert engine_environment(spec_of(program=("vllm", "serve")), {"PATH": "/usr/bin"})["PATH"] == "/usr/bin"


def test_the_user_can_be_told_what_was_left_out():
    ambient = {"VLLM_ATTENTION_BACKEND": "X", "VLLM_CACHE_ROOT": "/c", "VLLM_SET": "1", "PYTHONPATH": "p"}
    assert left_out(spec_of(env={"VLLM_SET": "2"}), ambient) == ("VLLM_ATTENTION_BACKEND",)
