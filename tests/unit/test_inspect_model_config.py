"""config.json of many families: what caches, what is quantized, how many parameters; and headers of weight files."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import ModelError
from tuner.facts.catalog import model_by_alias, model_by_hub_id
from tuner.facts.read import data
from tuner.inspect.model_dir import model_facts, read_model_dir, with_config

pytestmark = pytest.mark.unit

MODELS = data("models.json")["models"]
BASE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 8, "hidden_size": 512, "intermediate_size": 1024,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


def facts(**changes: Any) -> dict[str, Any]:
    return model_facts({**BASE, **changes})


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        ({}, ""),
        ({"layer_types": ["full_attention"] * 8}, ""),
        ({"layer_types": ["sliding_attention", "full_attention"] * 4}, "sfsfsfsf"),
        ({"layer_types": ["linear_attention"] * 3 + ["full_attention"] + ["linear_attention"] * 3 + ["full_attention"]},
         "mmmfmmmf"),
        ({"layer_types": ["conv"] * 8}, "????????"),
        ({"full_attention_interval": 4}, "mmmfmmmf"),
        ({"hybrid_override_pattern": "MEM*-M-*"}, "mxmfxmxf"),
        ({"hybrid_layer_pattern": [0, 1, 1, 1, 0, 1, 1, 1]}, "fsssfsss"),
        ({"attention_chunk_size": 8192}, "cccfcccf"),
        ({"attn_layer_period": 4, "attn_layer_offset": 2}, "mmfmmmfm"),
        ({"attn_layer_indices": [1, 5]}, "mfmmmfmm"),
        ({"linear_attn_config": {"full_attn_layers": [4, 8], "kda_layers": [1, 2, 3, 5, 6, 7]}}, "mmmfmmmf"),
        ({"sliding_window": 1024}, "ssssssss"),
        ({"sliding_window": 1024, "model_type": "gemma2"}, "sfsfsfsf"),
        ({"sliding_window": 1024, "model_type": "gemma3_text"}, "sssssfss"),
        ({"sliding_window": 8192}, ""),
        ({"sliding_window": 1024, "use_sliding_window": False}, ""),
        ({"num_kv_shared_layers": 3}, "fffffxxx"),
        ({"mamba_d_state": 16}, "????????"),
        ({"block_configs": [{"attention": {"n_heads_in_group": 4}}, {"attention": {"no_op": True}}] * 4}, "fxfxfxfx"),
        ({"block_configs": ["odd"] * 8}, "????????"),
    ],
)
def test_kinds_of_layers(config: dict[str, Any], kinds: str) -> None:
    assert facts(**config)["layer_kinds"] == kinds


def test_attention_named_beside_unused_state_keys_is_attention() -> None:
    assert facts(layer_types=["attention"] * 8, mamba_n_heads=8, mamba_d_state=16)["layer_kinds"] == ""


def test_a_list_of_layers_gives_their_number() -> None:
    assert facts(num_hidden_layers=None, hybrid_override_pattern="MM*-")["layers"] == 4


def test_states_of_linear_attention() -> None:
    found = facts(
        full_attention_interval=4, linear_num_value_heads=48, linear_num_key_heads=16, linear_key_head_dim=128,
        linear_value_head_dim=128, linear_conv_kernel_dim=4, mamba_ssm_dtype="float32",
    )
    assert found["state_elements"] == 48 * 128 * 128
    assert found["conv_elements"] == (2 * 16 * 128 + 48 * 128) * 3
    assert found["state_dtype"] == "float32"


def test_states_of_mamba() -> None:
    found = facts(
        hybrid_override_pattern="M*M*M*M*", mamba_num_heads=64, mamba_head_dim=64, ssm_state_size=128, n_groups=8,
        conv_kernel=4,
    )
    assert found["state_elements"] == 64 * 64 * 128
    assert found["conv_elements"] == (64 * 64 + 2 * 8 * 128) * 3
    first = facts(attn_layer_period=8, attn_layer_offset=4, mamba_d_state=16, mamba_d_conv=4, mamba_expand=2)
    assert (first["state_elements"], first["conv_elements"]) == (1024 * 16, 1024 * 3)


def test_full_layers_of_another_shape() -> None:
    found = facts(
        layer_types=["sliding_attention"] * 7 + ["full_attention"], sliding_window=1024, head_dim=256,
        global_head_dim=512, num_key_value_heads=8, num_global_key_value_heads=2,
    )
    assert (found["kv_heads"], found["head_dim"]) == (2, 512)
    assert (found["sliding_kv_heads"], found["sliding_head_dim"]) == (8, 256)


def test_latent_attention_caches_rank_and_position() -> None:
    found = facts(kv_lora_rank=512, qk_rope_head_dim=64, v_head_dim=128, index_head_dim=128)
    assert (found["head_dim"], found["index_layers"]) == (576, 8)
    assert facts(kv_lora_rank=512, index_head_dim=128, indexer_types=["full", "shared"] * 4)["index_layers"] == 4


@pytest.mark.parametrize(
    ("scaling", "rows"),
    [(None, 4096), ({"rope_type": "linear", "factor": 8.0}, 32768), ({"type": "yarn", "factor": 4.0}, 4096),
     ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}, 8192)],
)
def test_rotary_tables(scaling: Any, rows: int) -> None:
    assert facts(rope_scaling=scaling)["rope_elements"] == rows * 64
    assert facts(rope_scaling=scaling, partial_rotary_factor=0.5)["rope_elements"] == rows * 32


QUANTIZED: list[Any] = [
    pytest.param({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq", 4.0, 128, None, "linear", None, id="awq"),
    pytest.param({"quant_method": "gptq", "bits": 8, "group_size": -1}, "gptq", 8.0, None, None, "linear", None, id="gptq"),
    pytest.param({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 8.0, None, (128, 128), "linear", None,
                 id="fp8-blocks"),
    pytest.param({"quant_method": "fp8", "weight_block_size": [128]}, "fp8", 8.0, None, None, "linear", None, id="odd-block"),
    pytest.param({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}, "mxfp4", 4.0, None, None,
                 "experts", None, id="mxfp4"),
    pytest.param({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 4, "group_size": 32}}},
                  "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"]}, "compressed-tensors", 4, 32, None,
                 "experts", None, id="experts-only"),
    pytest.param({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"},
                  "config_groups": {"a": {"weights": {"num_bits": 8}}}}, "compressed-tensors", 8, None, None, "linear", "fp8",
                 id="kv-scales"),
    pytest.param({"quant_method": "modelopt", "quant_algo": "NVFP4", "config_groups": {"a": {"weights": {
        "num_bits": 4, "group_size": 16}}}, "ignore": ["model.layers.0.self_attn*"]}, "modelopt_fp4", 4, 16, None, "mlp", None,
        id="nvfp4"),
    pytest.param({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "config_groups": {
        "a": {"weights": {"num_bits": 4}}, "b": {"weights": {"num_bits": 8}}}}, "modelopt_mixed", None, None, None, "linear",
        None, id="mixed"),
    pytest.param({"quant_algo": "FP8", "config_groups": {"a": {"weights": {"num_bits": 8}}}}, "modelopt", 8, None, None,
                 "linear", None, id="algorithm-only"),
    pytest.param({"bits": "four"}, None, None, None, None, None, None, id="nonsense"),
    pytest.param({"quant_method": ["fp8"], "config_groups": [1]}, None, None, None, None, None, None, id="lists"),
]


@pytest.mark.parametrize(("config", "method", "bits", "group", "block", "part", "cache"), QUANTIZED)
def test_how_a_checkpoint_is_quantized(
    config: dict[str, Any], method: Any, bits: Any, group: Any, block: Any, part: Any, cache: Any
) -> None:
    found = facts(quantization_config=config)
    wanted = {
        "quantization": method, "quantization_bits": bits, "quantization_group": group, "quantization_block": block,
        "quantized_part": part, "kv_quantization": cache,
    }
    assert {key: found.get(key) for key in wanted} == wanted


def test_the_file_beside_says_it_where_config_does_not() -> None:
    beside = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    found = model_facts(BASE, beside)
    assert (found["quantization"], found["quantization_bits"], found["kv_quantization"]) == ("modelopt", 8.0, "fp8")


@pytest.mark.parametrize(
    ("alias", "billions"),
    [
        ("llama-3.1-405b", 405.85), ("deepseek-r1", 671.03), ("kimi-k2", 1026.4), ("gpt-oss-120b", 116.83),
        ("qwen3-235b-a22b", 235.09), ("qwen3-coder-480b-a35b", 480.15), ("nemotron-3-super-120b-fp8", 120.67),
        ("mixtral-8x22b", 140.63), ("glm-4.5-air", 106.9), ("gemma-4-26b-a4b", 25.8), ("nemotron-h-56b", 56.3),
        ("qwen3.5-397b-a17b", 396.8), ("llama-4-maverick", 401.6), ("minimax-m2.5", 228.7),
    ],
)
def test_parameters_that_publishers_state(alias: str, billions: float) -> None:
    spec = model_by_alias(alias)
    assert spec is not None
    assert spec.parameters is not None
    assert spec.parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_the_table_is_wide() -> None:
    assert len(MODELS) >= 60
    families = ("llama-2", "llama-3-", "llama-3.1", "llama-3.3", "llama-4", "qwen2.5", "qwen3-", "qwen3.5", "mistral",
                "mixtral", "gemma-2", "gemma-3", "gemma-4", "deepseek-v3", "deepseek-r1", "gpt-oss", "phi-4", "glm-5",
                "kimi-k2", "nemotron")
    assert [name for name in families if not any(alias.startswith(name) for alias in MODELS)] == []


@pytest.mark.parametrize(
    ("hub_id", "alias"),
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"), ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("redhatai/llama-3.3-70b-instruct-fp8-dynamic", "llama-3.3-70b-fp8"), ("google/gemma-2-27b-it", "gemma-2-27b"),
    ],
)
def test_hub_ids_of_the_same_shape(hub_id: str, alias: str) -> None:
    by_id, by_alias = model_by_hub_id(hub_id), model_by_alias(alias)
    assert by_alias is not None
    assert by_id.location == hub_id
    assert (by_id.layers, by_id.parameters, by_id.quantization) == (by_alias.layers, by_alias.parameters, by_alias.quantization)


def test_a_config_at_hand_keeps_a_published_count() -> None:
    spec = model_by_hub_id("meta-llama/Llama-3.1-8B-Instruct")
    same = {**BASE, "num_hidden_layers": 32}
    assert with_config(spec, same).parameters == 8_030_261_248
    assert with_config(model_by_hub_id("a/b"), same).parameters == facts(num_hidden_layers=32)["parameters"]


@given(st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=False), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)), max_leaves=6,
), st.sampled_from([
    "layer_types", "quantization_config", "rope_scaling", "text_config", "vision_config", "linear_attn_config",
    "block_configs", "hybrid_override_pattern", "sliding_window", "moe_layer_freq", "num_experts", "kv_lora_rank",
    "mlp_layer_types", "partial_rotary_factor", "linear_num_value_heads", "num_kv_shared_layers",
]))
def test_any_value_of_any_key_is_survived(value: Any, key: str) -> None:
    found = facts(**{key: value})
    assert found["architecture"] == "LlamaForCausalLM"


# --- headers of weight files


def tensors(path: Path, shapes: dict[str, tuple[int, int]]) -> None:
    header = json.dumps({
        "__metadata__": {"format": "pt"},
        **{name: {"dtype": "BF16", "shape": [1], "data_offsets": list(offsets)} for name, offsets in shapes.items()},
    }).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(BASE), encoding="utf-8")
    return tmp_path


def test_headers_say_what_is_loaded(folder: Path) -> None:
    tensors(folder / "model-00001-of-00002.safetensors", {"model.embed_tokens.weight": (0, 1000), "lm_head.weight": (1000, 1600)})
    tensors(folder / "model-00002-of-00002.safetensors", {"model.layers.7.mlp.weight": (0, 500)})
    assert read_model_dir(folder, requested="m").weight_bytes == 2100


def test_layers_for_speculation_are_left_out(folder: Path) -> None:
    tensors(folder / "model.safetensors", {
        "model.layers.7.mlp.weight": (0, 500), "model.layers.8.mlp.weight": (500, 900), "mtp.layers.0.weight": (900, 950),
        "vision_tower.layers.9.weight": (950, 1000),
    })
    assert read_model_dir(folder, requested="m").weight_bytes == 550


def test_the_same_weights_are_not_counted_twice(folder: Path) -> None:
    for name in ("model.safetensors", "consolidated.safetensors"):
        tensors(folder / name, {"w": (0, 500)})
    (folder / "pytorch_model.bin").write_bytes(b"0" * 777)
    assert read_model_dir(folder, requested="m").weight_bytes == 500


@pytest.mark.parametrize("content", [b"", b"1234567", b"\xff" * 20, struct.pack("<Q", 4) + b"nope", struct.pack("<Q", 2) + b"[]"])
def test_a_broken_header_leaves_the_files_size(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)
    assert read_model_dir(folder, requested="m").weight_bytes == len(content)


def test_up_e17_a_pointer_is_not_weights(folder: Path) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 4976698672\n"
    (folder / "model-00001-of-00004.safetensors").write_text(text, encoding="utf-8")
    with pytest.raises(ModelError) as caught:
        read_model_dir(folder, requested="m")
    assert "Git LFS pointer of 135 bytes" in caught.value.message
    assert "git lfs pull" in (caught.value.hint or "")


def test_hf_quant_config_beside_the_weights(folder: Path) -> None:
    (folder / "hf_quant_config.json").write_text(
        json.dumps({"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}}), encoding="utf-8"
    )
    tensors(folder / "model.safetensors", {"w": (0, 500)})
    spec = read_model_dir(folder, requested="m")
    assert (spec.quantization, spec.quantization_bits, spec.quantization_group) == ("modelopt_fp4", 4.0, 16)
    (folder / "hf_quant_config.json").write_text("{broken", encoding="utf-8")
    assert read_model_dir(folder, requested="m").quantization is None
