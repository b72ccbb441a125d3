"""The flag table: what each release has, takes and replaced."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from tuner.errors import EngineError, FlagError
from tuner.facts.flags import FlagTable, flag_table, human_int, parse_version
from tuner.facts.read import data

pytestmark = pytest.mark.unit

TABLE: dict[str, Any] = data("vllm/flags.json")
VERSIONS: list[str] = TABLE["versions"]


def check(name: str, value: Any, version: str = "0.32.0") -> None:
    flag_table("vllm", version).check(name, value)


def refusal(name: str, value: Any, version: str = "0.32.0") -> FlagError:
    with pytest.raises(FlagError) as caught:
        check(name, value, version)
    return caught.value


# --- the table itself


def test_versions_are_in_order() -> None:
    assert [str(version) for version in sorted(map(Version, VERSIONS))] == VERSIONS


@pytest.mark.parametrize("version", VERSIONS[:: len(VERSIONS) // 6] + VERSIONS[-2:])
def test_every_flag_can_be_read_in_every_release(version: str) -> None:
    table = FlagTable("vllm", version)
    found = [flag for name in TABLE["flags"] if (flag := table.find(name)) is not None]
    assert len(found) > 80
    kinds = {"int", "float", "bool", "str", "list", "json", "human_int"}
    assert {flag.kind for flag in found} <= kinds


@pytest.mark.parametrize("version", [*VERSIONS[-1:], "0.32.0", "0.20.0", "0.10.0"])
def test_every_choice_is_a_value_that_its_flag_takes(version: str) -> None:
    table = FlagTable("vllm", version)
    for name in TABLE["flags"]:
        flag = table.find(name)
        for choice in (flag.choices or ()) if flag is not None else ():
            table.check(name, choice)


def test_each_word_of_a_list_is_a_choice() -> None:
    check("collect-detailed-traces", "model worker")
    assert "model" in (refusal("collect-detailed-traces", "model everything").hint or "")


def test_lives_are_within_the_known_releases() -> None:
    for name, entry in TABLE["flags"].items():
        since, until = entry.get("since"), entry.get("until")
        assert since is None or since in VERSIONS, name
        assert until is None or until in VERSIONS, name
        assert since is None or until is None or Version(since) <= Version(until), name


# --- names


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("max-num-seqs", "max-num-seqs"),
        ("max_num_seqs", "max-num-seqs"),
        ("--max-num-seqs", "max-num-seqs"),
        ("--max_num_seqs", "max-num-seqs"),
        ("-tp", "tensor-parallel-size"),
        ("-q", "quantization"),
        ("device-memory-utilization", "gpu-memory-utilization"),
    ],
)
def test_finds_a_flag_by_any_of_its_names(written: str, name: str) -> None:
    flag = flag_table("vllm", "0.32.0").require(written)
    assert flag.name == name


def test_a_typo_gets_the_near_names() -> None:
    error = refusal("max-num-seq", 4)
    assert error.message == "vllm 0.32.0 has no flag --max-num-seq"
    assert error.hint is not None
    assert "--max-num-seqs" in error.hint
    assert error.exit_code == 5
    assert refusal("zzzzzz", 4).hint is None


@pytest.mark.parametrize(
    ("flag", "value", "had", "lacks", "hint"),
    [
        pytest.param("swap-space", 4.0, "0.17.1", "0.18.0", "kv-offloading-size", id="PT-04-swap-space"),
        pytest.param("disable-log-requests", True, "0.10.0", "0.17.0", "leave the flag out", id="peers-disable-log-requests"),
        pytest.param("speculative-model", "TinyLlama/x", "0.8.2", "0.15.0", "--speculative-config", id="UP-B14-speculative-model"),
        pytest.param("num-scheduler-steps", 8, "0.10.0", "0.10.1", "leave the flag out", id="peers-num-scheduler-steps"),
        pytest.param("scheduler-delay-factor", 0.5, "0.10.2", "0.11.0", "leave the flag out", id="peers-scheduler-delay-factor"),
        pytest.param("use-v2-block-manager", True, "0.9.2", "0.15.0", "leave the flag out", id="UP-B07-use-v2-block-manager"),
        pytest.param("max-num-partial-prefills", 2, "0.26.0", "0.32.0", "--long-prefill-token-threshold", id="peers-max-num-partial-prefills"),
        pytest.param("cuda-graph-sizes", "1 2 4", "0.12.0", "0.32.0", "--cudagraph-capture-sizes", id="peers-cuda-graph-sizes"),
        pytest.param("max-seq-len-to-capture", 8192, "0.10.2", "0.32.0", "--max-cudagraph-capture-size", id="peers-max-seq-len-to-capture"),
        pytest.param("guided-decoding-backend", "xgrammar", "0.11.0", "0.23.0", "structured-outputs-config", id="UP-B09-guided-decoding-backend"),
    ],
)
def test_a_removed_flag_names_its_last_release_and_what_replaced_it(
    flag: str, value: Any, had: str, lacks: str, hint: str
) -> None:
    check(flag, value, had)
    error = refusal(flag, value, lacks)
    assert f"vllm {lacks} no longer has --{flag}" in error.message
    assert "was the last release with it" in error.message
    assert hint in (error.hint or "")


def test_negated_flag_of_a_peer_never_existed() -> None:
    assert "has no flag --disable-chunked-prefill" in refusal("disable-chunked-prefill", True).message


def test_a_flag_that_came_later() -> None:
    error = refusal("attention-backend", "FLASH_ATTN", "0.12.0")
    assert error.message == "vllm 0.12.0 does not have --attention-backend yet; it came with 0.13.0"
    assert "0.13.0 or newer" in (error.hint or "")
    check("attention-backend", "FLASH_ATTN", "0.13.0")


# --- environment variables


@pytest.mark.parametrize(
    ("name", "version", "hint"),
    [
        pytest.param("VLLM_ATTENTION_BACKEND", "0.26.0", "--attention-backend", id="UP-B04"),
        pytest.param("VLLM_ATTENTION_BACKEND", "0.15.0", "--attention-backend", id="UP-B07"),
        pytest.param("VLLM_USE_V1", "0.20.0", "V0 code and the variable gone", id="UP-B06"),
    ],
)
def test_a_variable_that_is_silently_ignored_is_refused(name: str, version: str, hint: str) -> None:
    error = refusal(f"env:{name}", "1", version)
    assert f"does not read the variable {name}" in error.message
    assert hint in (error.hint or "")


@pytest.mark.parametrize(
    ("name", "version"),
    [
        pytest.param("VLLM_ATTENTION_BACKEND", "0.14.1", id="UP-B05"),
        pytest.param("VLLM_USE_V1", "0.10.0", id="UP-B06"),
        pytest.param("VLLM_CPU_KVCACHE_SPACE", "0.32.0", id="kv-space"),
        pytest.param("OMP_NUM_THREADS", "0.32.0", id="not-the-engines-own"),
    ],
)
def test_a_variable_that_is_read_passes(name: str, version: str) -> None:
    check(f"env:{name}", "1", version)


def test_an_unknown_variable_of_the_engine_gets_the_near_ones() -> None:
    error = refusal("env:VLLM_CPU_KVCACHE_SPAC", "1")
    assert "VLLM_CPU_KVCACHE_SPACE" in (error.hint or "")


# --- values


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("max-num-seqs", 64), ("gpu-memory-utilization", 0.9), ("gpu-memory-utilization", 1),
        ("enforce-eager", True), ("enable-prefix-caching", False), ("quantization", "fp8"),
        ("max-num-batched-tokens", 8192), ("max-num-batched-tokens", "8k"), ("max-model-len", "auto"),
        ("max-model-len", -1), ("kv-cache-dtype", "fp8"), ("speculative-config", '{"method": "ngram"}'),
        ("moe-backend", "triton"), ("linear-backend", "marlin"), ("headless", True), ("block-size", 7),
    ],
)
def test_takes(flag: str, value: Any) -> None:
    check(flag, value)


@pytest.mark.parametrize(
    ("flag", "value", "says"),
    [
        ("max-num-seqs", "many", "takes a whole number"),
        ("max-num-seqs", 1.5, "takes a whole number"),
        ("max-num-seqs", True, "takes a whole number"),
        ("gpu-memory-utilization", "high", "takes a number"),
        ("gpu-memory-utilization", True, "takes a number"),
        ("gpu-memory-utilization", float("nan"), "takes a number"),
        ("gpu-memory-utilization", float("inf"), "takes a number"),
        ("enforce-eager", 1, "is on or off"),
        ("enforce-eager", "yes", "is on or off"),
        ("max-num-batched-tokens", "8 k", "takes a whole number, also as 8k"),
        ("max-num-batched-tokens", -1.5, "takes a whole number"),
        ("max-num-seqs", "auto", "takes a whole number"),
        ("speculative-config", "ngram", "takes a JSON object"),
        ("speculative-config", "[1]", "takes a JSON object"),
        ("quantization", True, "takes a text"),
        ("kv-cache-dtype", "fp7", "does not take --kv-cache-dtype fp7"),
        ("moe-backend", "fast", "does not take --moe-backend fast"),
    ],
)
def test_refuses_a_value(flag: str, value: Any, says: str) -> None:
    assert says in refusal(flag, value).message


def test_a_wrong_choice_lists_the_right_ones() -> None:
    assert "fp8_e4m3" in (refusal("kv-cache-dtype", "fp7").hint or "")


def test_choices_are_those_of_the_release() -> None:
    check("block-size", 16, "0.10.0")
    assert "does not take --block-size 48" in refusal("block-size", 48, "0.10.0").message
    check("block-size", 48, "0.18.0")
    assert "int8_per_token_head" in refusal("kv-cache-dtype", "int8_per_token_head", "0.18.0").message
    check("kv-cache-dtype", "int8_per_token_head", "0.20.0")


def test_a_flag_without_a_no_form_cannot_be_off() -> None:
    """`--no-enforce-eager` does not exist where the flag is a plain store_true."""
    table = flag_table("vllm", "0.32.0")
    assert table.require("enable-prefix-caching").negatable
    for name in TABLE["flags"]:
        flag = table.find(name)
        if flag is not None and flag.kind == "bool" and not flag.negatable:
            assert "cannot be switched off" in refusal(name, False).message


def test_default_and_kind_are_those_of_the_release() -> None:
    assert flag_table("vllm", "0.10.0").require("gpu-memory-utilization").default == "0.9"
    assert flag_table("vllm", "0.32.0").require("gpu-memory-utilization").default == "0.92"
    assert flag_table("vllm", "0.5.4").require("swap-space").kind == "int"
    assert flag_table("vllm", "0.6.0").require("swap-space").kind == "float"


# --- versions


def test_a_release_between_known_ones_takes_the_flags_of_the_one_below() -> None:
    table = flag_table("vllm", "0.20.3")
    assert not table.exact
    assert flag_table("vllm", "0.20.2").exact
    assert table.find("max-num-partial-prefills") is not None
    future = flag_table("vllm", "1.4.0")
    assert not future.exact
    assert future.find("swap-space") is None


def test_a_local_part_does_not_count() -> None:
    assert flag_table("vllm", "0.32.0+cpu").exact
    assert str(parse_version("0.32.0+cpu")) == "0.32.0"


@pytest.mark.parametrize(
    ("version", "says"), [("0.4.0", "older than the oldest release that llmtune knows"), ("new", "is not an engine version")]
)
def test_versions_that_cannot_be_used(version: str, says: str) -> None:
    with pytest.raises(EngineError, match=says) as caught:
        FlagTable("vllm", version)
    assert caught.value.hint
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("written", "count"),
    [("8k", 8000), ("8K", 8192), ("1.5k", 1500), ("1M", 1 << 20), ("1m", 10**6), ("2G", 2 << 30), (512, 512),
     ("512", 512), (512.0, 512), ("auto", None), (None, None), (True, None), ("8kb", None), ("", None)],
)
def test_human_int(written: Any, count: int | None) -> None:
    assert human_int(written) == count


@given(st.sampled_from(sorted(TABLE["flags"])), st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=5)))
def test_check_ends_in_silence_or_in_a_flag_error(name: str, value: Any) -> None:
    with contextlib.suppress(FlagError):
        check(name, value)
        assert json.dumps(value, allow_nan=False)


def test_a_no_form_is_as_old_as_it_is() -> None:
    """Until 0.8.5 most switches were plain: `--no-enforce-eager` is refused there, and taken since."""
    assert "cannot be switched off" in refusal("enforce-eager", False, "0.7.3").message
    check("enforce-eager", False, "0.9.2")
    check("enforce-eager", True, "0.7.3")


@pytest.mark.parametrize("flag", ["enable-auto-tool-choice", "disable-fastapi-docs", "return-tokens-as-token-ids"])
def test_switches_of_the_server_were_always_switches(flag: str) -> None:
    check(flag, True, "0.7.3")
