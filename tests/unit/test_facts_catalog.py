"""Models, images, workload presets and architectures: exact names, near misses, and sound tables."""

from __future__ import annotations

import pytest

from tuner.domain.workload import Workload
from tuner.errors import ModelError, UsageError
from tuner.facts.catalog import (
    architecture_problem,
    image_of,
    model_by_alias,
    model_by_hub_id,
    workload_preset,
)
from tuner.facts.read import bundled, data

pytestmark = pytest.mark.unit

MODELS = data("models.json")["models"]
WORKLOADS = data("workloads.yaml")["workloads"]


@pytest.mark.parametrize("alias", MODELS)
def test_every_alias_is_a_sound_model(alias: str) -> None:
    model = model_by_alias(alias)
    assert model is not None
    assert model.requested == alias
    assert model.source == "alias"
    assert not model.is_local
    assert model.attention_heads
    assert model.kv_heads
    assert model.head_dim
    assert model.hidden_size
    assert model.attention_heads % model.kv_heads == 0
    assert architecture_problem("vllm", "0.32.0", model.architecture or "") is None
    assert model.is_moe == bool(MODELS[alias].get("experts"))
    assert not model.layer_kinds or len(model.layer_kinds) == model.layers


@pytest.mark.parametrize("alias", MODELS)
def test_parameters_are_near_what_the_architecture_gives(alias: str) -> None:
    """Embeddings, attention and MLP of each layer: a slip of a digit in the table would show here."""
    model = model_by_alias(alias)
    assert model is not None
    if model.is_moe or model.multimodal or set(model.layer_kinds) & set("mx") or model.architecture == "PhiForCausalLM":
        return
    assert model.layers
    assert model.hidden_size
    assert model.vocab_size
    assert model.intermediate_size
    attention = model.hidden_size * model.head_dim * (2 * model.attention_heads + 2 * model.kv_heads)  # type: ignore[operator]
    layer = attention + 3 * model.hidden_size * model.intermediate_size
    body = model.layers * layer
    embedding = model.vocab_size * model.hidden_size
    assert model.parameters is not None
    assert body + embedding <= model.parameters * 1.001
    assert model.parameters <= (body + 2 * embedding) * 1.002


def test_an_alias_is_matched_exactly() -> None:
    assert model_by_alias("llama-3-70b") is not None
    assert model_by_alias("llama-3-70") is None
    assert model_by_alias("Llama-3-70b") is None


def test_a_near_miss_is_told_and_not_taken() -> None:
    with pytest.raises(ModelError) as caught:
        model_by_hub_id("llama-3-70")
    assert "neither a known alias, a directory nor a hub id" in caught.value.message
    assert "llama-3-70b" in (caught.value.hint or "")
    assert caught.value.exit_code == 3


def test_a_name_that_is_not_known_gets_the_nearest_five_and_where_all_are() -> None:
    with pytest.raises(ModelError) as caught:
        model_by_hub_id("???")
    names, rest = (caught.value.hint or "").removeprefix("the nearest are ").split("; ")
    assert len(set(names.split(", ")) & set(MODELS)) == 5
    assert rest == "`llmtune models` lists all"


@pytest.mark.parametrize("text", ["a/b/c", "/a", "a/", "owner/na me", "-x/y", ""])
def test_not_a_hub_id(text: str) -> None:
    with pytest.raises(ModelError):
        model_by_hub_id(text)


def test_a_hub_id_of_the_table_brings_its_architecture() -> None:
    model = model_by_hub_id("Qwen/Qwen2.5-7B-Instruct")
    assert (model.source, model.name, model.location) == ("hub", "qwen2.5-7b-instruct", "Qwen/Qwen2.5-7B-Instruct")
    assert model.attention_heads == 28


def test_another_hub_id_is_taken_as_it_is() -> None:
    model = model_by_hub_id("somebody/Some.Model_7B")
    assert (model.name, model.location, model.architecture) == ("some.model_7b", "somebody/Some.Model_7B", None)


def test_images_carry_the_exact_release_and_never_a_floating_tag() -> None:
    assert image_of("vllm", "0.32.0", "cuda") == ("vllm/vllm-openai:v0.32.0", ("vllm", "serve"))
    assert image_of("vllm", "0.32.0+cpu", "cpu") == ("vllm/vllm-openai-cpu:v0.32.0", ("vllm", "serve"))
    assert image_of("vllm", "0.32.0", "unknown") is None
    assert image_of("other", "1.0", "cuda") is None
    for builds in data("images.yaml")["images"].values():
        for entry in builds.values():
            assert "{version}" in entry["image"].rsplit(":", 1)[1]


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_preset_is_a_workload_and_says_why(name: str) -> None:
    workload = workload_preset(name)
    assert isinstance(workload, Workload)
    assert workload.name == name
    assert WORKLOADS[name]["why"]
    assert workload.requests >= 2 * workload.arrivals.concurrency  # type: ignore[union-attr]


def test_an_unknown_preset_lists_those_there_are() -> None:
    with pytest.raises(UsageError) as caught:
        workload_preset("chatt")
    assert "chat, rag, summarize" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("architecture", "version", "certain"),
    [
        ("LlamaForCausalLM", "0.32.0", None),
        ("BertModel", "0.32.0", True),
        ("BrandNewForCausalLM", "0.32.0", False),
    ],
)
def test_architectures(architecture: str, version: str, certain: bool | None) -> None:
    problem = architecture_problem("vllm", version, architecture)
    if certain is None:
        assert problem is None
    else:
        assert problem is not None
        assert architecture in problem[0]
        assert problem[1] is certain


def test_an_architecture_that_was_dropped_is_refused_only_afterwards() -> None:
    name, last = next(iter(data("vllm/architectures.json")["removed_after"].items()))
    assert architecture_problem("vllm", last, name) is None
    problem = architecture_problem("vllm", "99.0", name)
    assert problem is not None
    assert problem[1]
    assert last in problem[0]


def test_bundled_files_are_found_in_a_checkout() -> None:
    assert (bundled("search_spaces") / "vllm.yaml").is_file()
    assert (bundled("templates") / "serve.sh.j2").is_file()
