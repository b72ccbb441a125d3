"""A model's directory: what config.json and the files' sizes say, and every way it can be broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.errors import ModelError
from tuner.facts.catalog import model_by_hub_id
from tuner.inspect.model_dir import cached_config, read_model_dir, with_config

pytestmark = pytest.mark.unit

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 30, "hidden_size": 576, "intermediate_size": 1536,
    "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}


def make(folder: Path, config: Any = CONFIG, weights: int = 1000) -> Path:
    folder.mkdir(exist_ok=True)
    text = config if isinstance(config, str) else json.dumps(config)
    (folder / "config.json").write_text(text, encoding="utf-8")
    if weights:
        (folder / "model.safetensors").write_bytes(b"0" * weights)
    return folder


def read(folder: Path, config: dict[str, Any], **more: Any) -> Any:
    return read_model_dir(make(folder, {**CONFIG, **config}), requested=str(folder), **more)


def test_reads_the_architecture(tmp_path: Path) -> None:
    model = read_model_dir(make(tmp_path / "tiny"), requested="./tiny")
    assert (model.requested, model.name, model.location) == ("./tiny", "tiny", str((tmp_path / "tiny").resolve()))
    assert (model.source, model.is_local) == ("directory", True)
    assert (model.architecture, model.layers, model.attention_heads, model.kv_heads) == ("LlamaForCausalLM", 30, 9, 3)
    assert (model.head_dim, model.hidden_size, model.intermediate_size) == (64, 576, 1536)
    assert (model.vocab_size, model.max_context, model.dtype) == (49152, 8192, "bfloat16")
    assert (model.weight_bytes, model.quantization, model.is_moe) == (1000, None, False)


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        ({"dtype": "torch.float16"}, "dtype", "float16"),
        ({"head_dim": 128}, "head_dim", 128),
        ({"num_key_value_heads": None}, "kv_heads", 9),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization", "awq"),
        ({"quantization_config": None}, "quantization", None),
        ({"num_local_experts": 8}, "experts", 8),
        ({"n_routed_experts": 256}, "experts", 256),
        ({"text_config": {"num_hidden_layers": 5}, "num_hidden_layers": None}, "layers", 5),
        ({"n_layer": 12, "num_hidden_layers": None}, "layers", 12),
        ({"num_hidden_layers": "many"}, "layers", None),
        ({"num_key_value_heads": [1, 2, 3]}, "kv_heads", None),
        ({"num_attention_heads": 0}, "head_dim", None),
        ({"num_attention_heads": True}, "attention_heads", None),
        ({"torch_dtype": 16}, "dtype", None),
        ({"text_config": "none"}, "layers", 30),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_other_spellings_and_odd_values(tmp_path: Path, config: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(read(tmp_path / "m", config), field) == value


@pytest.mark.parametrize(
    ("scaling", "context"),
    [
        ({"rope_type": "linear", "factor": 4.0}, 32768),
        ({"type": "dynamic", "factor": 2}, 16384),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}, None),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}, 8192),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 8192),
        ({"rope_type": "longrope", "short_factor": [1.0]}, 8192),
        ({"rope_type": "linear", "factor": None}, 8192),
        (None, 8192),
    ],
)
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_context_that_rope_scaling_stretches(tmp_path: Path, key: str, scaling: Any, context: int | None) -> None:
    assert read(tmp_path / "m", {key: scaling}).max_context == context


@pytest.mark.parametrize(
    ("config", "per_token"),
    [
        pytest.param({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, 30 * 576 * 2, id="latent-attention"),
        pytest.param(
            {"layer_types": (["linear_attention"] * 2 + ["full_attention"]) * 10, "linear_num_value_heads": 8,
             "linear_num_key_heads": 4, "linear_key_head_dim": 64, "linear_value_head_dim": 64},
            10 * 2 * 3 * 64 * 2, id="UP-A22",
        ),
        pytest.param({"layer_types": ["linear_attention"] * 30}, None, id="state-of-unknown-size"),
        pytest.param({"layer_types": ["rumination"] * 30}, None, id="unknown-kind"),
        pytest.param(
            {"layer_types": ["sliding_attention", "full_attention"] * 15, "sliding_window": 512},
            30 * 2 * 3 * 64 * 2, id="UP-A24",
        ),
        pytest.param({"sliding_window": 4096}, 30 * 2 * 3 * 64 * 2, id="sliding-window"),
        pytest.param({"mamba_d_state": 16}, None, id="state-space"),
    ],
)
def test_only_layers_that_grow_are_charged_for_a_token(
    tmp_path: Path, config: dict[str, Any], per_token: int | None
) -> None:
    """Charging full-length KV on every layer would rule out what fits."""
    from tuner.capacity.memory import kv_bytes_per_token
    from tuner.domain.engine import Footprint

    model = read(tmp_path / "m", config)
    assert kv_bytes_per_token(model, Footprint()) == per_token
    assert model.attention_heads == 9


@pytest.mark.parametrize(
    "config",
    [
        {"layer_types": ["full_attention"] * 30}, {"sliding_window": None},
        {"sliding_window": 4096, "use_sliding_window": False},
    ],
    ids=["all-full", "no-window", "window-off"],
)
def test_plain_attention_is_counted(tmp_path: Path, config: dict[str, Any]) -> None:
    assert read(tmp_path / "m", config).kv_heads == 3


def test_the_name_can_be_given(tmp_path: Path) -> None:
    assert read(tmp_path / "m", {}, name="mine").name == "mine"


def test_weights_are_summed_and_the_fingerprint_is_theirs(tmp_path: Path) -> None:
    first = read(tmp_path / "a", {})
    same = read_model_dir(make(tmp_path / "b"), requested="b")
    assert first.fingerprint == same.fingerprint
    (tmp_path / "b" / "model-2.safetensors").write_bytes(b"12345")
    (tmp_path / "b" / "notes.txt").write_text("no weight")
    more = read_model_dir(tmp_path / "b", requested="b")
    assert more.weight_bytes == 1005
    assert more.fingerprint != first.fingerprint
    assert read(tmp_path / "a", {"vocab_size": 1}).fingerprint != first.fingerprint


@pytest.mark.parametrize(
    ("config", "weights", "says"),
    [
        (None, 10, "has no config.json"),
        ("{", 10, "config.json:1: not valid JSON"),
        ('{"architectures": ["A"],\n "x": }', 10, "config.json:2: not valid JSON"),
        ("[]", 10, "names no architecture"),
        ({}, 10, "names no architecture"),
        ({"architectures": []}, 10, "names no architecture"),
        ({"architectures": "LlamaForCausalLM"}, 10, "names no architecture"),
        ({"architectures": [None]}, 10, "names no architecture"),
        (CONFIG, 0, "no weights"),
    ],
)
def test_broken_directories(tmp_path: Path, config: Any, weights: int, says: str) -> None:
    folder = make(tmp_path / "m", CONFIG if config is None else config, weights)
    if config is None:
        (folder / "config.json").unlink()
    with pytest.raises(ModelError) as caught:
        read_model_dir(folder, requested="m")
    assert says in caught.value.message
    assert str(folder) in caught.value.message
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("text", ['{"architectures": ["A"], "x": NaN}', '{"architectures": ["A"], "x": "\\ud800"}'])
def test_odd_json_that_still_names_an_architecture(tmp_path: Path, text: str) -> None:
    assert read_model_dir(make(tmp_path / "m", text), requested="m").fingerprint


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a directory"):
        read_model_dir(tmp_path / "none", requested="none")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    folder = make(tmp_path / "m")
    (folder / "config.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(ModelError, match="cannot be read"):
        read_model_dir(folder, requested="m")


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=4), inner, max_size=2)),
    max_leaves=4,
)
KEYS = [*CONFIG, "head_dim", "text_config", "quantization_config", "rope_scaling", "layer_types", "num_experts"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.dictionaries(st.sampled_from(KEYS), json_values))
def test_any_config_ends_in_a_model_or_in_a_model_error(tmp_path: Path, config: dict[str, Any]) -> None:
    try:
        model = read(tmp_path / "m", config)
    except ModelError as error:
        assert "config.json" in error.message  # noqa: PT017
    else:
        assert model.architecture


# --- hub models


def test_a_hub_models_config_comes_from_the_local_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert cached_config("some/body") is None
    snapshot = tmp_path / "hub" / "models--some--body" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    make(snapshot)
    config = cached_config("some/body")
    assert config == CONFIG
    model = with_config(model_by_hub_id("some/body"), config)
    assert (model.source, model.location, model.name) == ("hub", "some/body", "body")
    assert (model.architecture, model.layers) == ("LlamaForCausalLM", 30)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    assert cached_config("some/body") is None
