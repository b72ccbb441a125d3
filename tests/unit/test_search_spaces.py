"""Search spaces: what a file may say, what is open on a machine, and that every point is a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from tests.fakes import plans
from tests.fakes.spaces import dimensions, spaces
from tuner.domain.engine import Setting
from tuner.domain.hardware import Gpu, Hardware
from tuner.domain.space import Condition, SearchSpace, SpaceSetting
from tuner.errors import SpaceError
from tuner.facts.read import bundled
from tuner.search.spaces import OpenSpace, load_space, open_space

pytestmark = pytest.mark.unit

VERSION = "0.32.0"
LLAMA = plans.hub_model()
MOE = plans.hub_model(experts=8)


def load(tmp_path: Path, text: str, version: str = VERSION) -> SearchSpace:
    path = tmp_path / "space.yaml"
    path.write_text(text)
    return load_space(path, version)


def settings(tmp_path: Path, text: str, version: str = VERSION) -> tuple[SpaceSetting, ...]:
    return load(tmp_path, "engine: vllm\nsettings:\n" + text, version).settings


def opened(space: SearchSpace, hardware: Hardware = plans.H100, model: Any = LLAMA, **changes: Any) -> OpenSpace:
    given_values: dict[str, Any] = {"version": VERSION, "pins": (), "left": (), **changes}
    return open_space(space, model=model, hardware=hardware, **given_values)


def space(*dimensions: SpaceSetting) -> SearchSpace:
    return SearchSpace(engine="vllm", settings=dimensions)


# --- files


def test_reads_a_space(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        "schema_version: 1\nengine: vllm\nversions: '>=0.16'\nsettings:\n"
        "  - flag: max-num-seqs\n    values: [unset, 64, 256]\n    why: batch\n"
        "  - flag: enable-prefix-caching\n    values: [unset, false]\n"
        "  - flag: env:VLLM_CPU_KVCACHE_SPACE\n    values: ['1', '2']\n"
        "    when: {hardware: cpu}\n",
    )
    assert found.origin == "space.yaml"
    assert [(s.flag, s.values, s.line) for s in found.settings] == [
        ("max-num-seqs", (None, 64, 256), 5),
        ("enable-prefix-caching", (None, False), 8),
        ("env:VLLM_CPU_KVCACHE_SPACE", ("1", "2"), 10),
    ]
    assert found.settings[1].values[1] is False
    assert found.size == 12


def test_flags_get_their_own_name_however_they_are_written(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        "  - {flag: max_num_seqs, values: [2]}\n  - {flag: --enforce-eager, values: [true]}\n"
        "  - {flag: block_size, values: [16], when: {settings: {max_num_seqs: [2]}}}\n",
    )
    assert [s.flag for s in found] == ["max-num-seqs", "enforce-eager", "block-size"]
    assert found[2].when.settings == {"max-num-seqs": (2,)}


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("engine: vllm\nsettings:\n  - flag: max-num-seq\n    values: [1]\n", 3, "has no flag --max-num-seq"),
        ("engine: vllm\nsettings:\n  - flag: swap-space\n    values: [4]\n", 3, "no longer has --swap-space"),
        ("engine: vllm\nsettings:\n  - flag: max-num-seqs\n    values: []\n", 4, "domain of max-num-seqs is empty"),
        ("engine: vllm\nsettings:\n  - flag: max-num-seqs\n", 3, "domain of max-num-seqs is empty"),
        ("engine: vllm\nsettings:\n  - flag: max-num-seqs\n    values: 4\n", 4, "domain of max-num-seqs is empty"),
        ("engine: vllm\nsettings:\n  - flag: max-num-seqs\n    values: [unset]\n", 4, "no value besides unset"),
        ("engine: vllm\nsettings:\n  - flag: max-num-seqs\n    values:\n      - 4\n      - many\n", 6, "takes a whole number"),
        ("engine: vllm\nsettings:\n  - flag: max-num-seqs\n    values: [4, 4]\n", 4, "each stands once"),
        ("engine: vllm\nsettings:\n  - flag: max-num-seqs\n    values: [[4]]\n", 4, "values are plain"),
        ("engine: vllm\nsettings:\n  - flag: gpu-memory-utilization\n    values: [.nan]\n", 3, "takes a number"),
        ("engine: vllm\nsettings:\n  - flag: dtype\n    values: [2020-01-01]\n", 4, "settings"),
        ("engine: vllm\nsettings:\n  - flag: host\n    values: [a]\n", 3, "cannot be set here"),
        ("engine: vllm\nsettings:\n  - flag: env:VLLM_USE_V1\n    values: ['1']\n", 3, "does not read the variable"),
        ("engine: vllm\nsettings:\n  - flag: env:HF_TOKEN\n    values: [x]\n", 3, "secret"),
        ("engine: vllm\nsettings:\n  - values: [1]\n", 3, "'flag' is missing"),
        ("engine: vllm\nsettings:\n  - flag: max-num-seqs\n    values: [1]\n    wen: {}\n", 5, "unknown key 'wen'"),
        ("engine: vllm\nsettings:\n  - max-num-seqs\n", 3, "each setting is a mapping"),
        ("engine: vllm\nsettings: []\n", 2, "a list of at least one"),
        ("engine: vllm\n", 1, "a list of at least one"),
        ("settings:\n  - {flag: max-num-seqs, values: [1]}\n", 1, "'engine' is missing"),
        ("engine: vlm\nsettings:\n  - {flag: max-num-seqs, values: [1]}\n", 1, "unknown engine 'vlm'"),
        ("engine: vllm\nversions: '>=0.40'\nsettings:\n  - {flag: max-num-seqs, values: [1]}\n", 2, "the engine here is 0.32.0"),
        ("engine: vllm\nversions: new\nsettings:\n  - {flag: max-num-seqs, values: [1]}\n", 2, "not a version range"),
        ("engine: vllm\nversions: 0.3\nsettings:\n  - {flag: max-num-seqs, values: [1]}\n", 2, "versions"),
        ("schema_version: 2\nengine: vllm\nsettings:\n  - {flag: max-num-seqs, values: [1]}\n", 1, "schema_version"),
        ("- 1\n", 1, "a search space is a mapping"),
        ("", 1, "a search space is a mapping"),
        ("engine: vllm\nsettings:\n  - flag: max-num-seqs\n    values: [1]\n    when: {versions: new}\n", 5, "not a version range"),
        ("engine: vllm\nsettings:\n  - flag: max-num-seqs\n    values: [1, 2]\n    values_when:\n      2: {versions: new}\n", 6, "not a version range"),
        ("engine: vllm\nsettings:\n  - flag: max-num-seqs\n    values: [1, 2]\n    values_when: {3: {hardware: cpu}}\n", 5, "3 is not among the values"),
        ("engine: vllm\nsettings:\n  - flag: max-num-seqs\n    values: [1]\n    when: {hardware: tpu}\n", 5, "when.hardware"),
        ("engine: vllm\nsettings:\n  - flag: max-num-seqs\n    values: [1]\n    when:\n      settings: {enforce-eagr: [true]}\n", 6, "has no flag --enforce-eagr"),
        ("engine: vllm\nsettings:\n  - flag: max-num-seqs\n    values: [1]\n    when:\n      settings: {enforce-eager: ['yes']}\n", 6, "is on or off"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(tmp_path: Path, text: str, line: int, says: str) -> None:
    with pytest.raises(SpaceError) as caught:
        load(tmp_path, text)
    assert says in caught.value.message
    assert caught.value.message.startswith(f"{tmp_path}/space.yaml:{line}: ")
    assert caught.value.exit_code == 6


def test_a_removed_flag_brings_its_replacement(tmp_path: Path) -> None:
    """PT-04: a rival ships default files that tune a flag which is gone, so every trial fails to start."""
    with pytest.raises(SpaceError) as caught:
        settings(tmp_path, "  - {flag: swap-space, values: [0, 4]}\n")
    assert "kv-offloading-size" in (caught.value.hint or "")


def test_what_another_release_needs_is_not_checked_against_this_one(tmp_path: Path) -> None:
    text = (
        "  - {flag: swap-space, values: [4], when: {versions: '<0.18'}}\n"
        "  - flag: kv-cache-dtype\n    values: [auto, int8_per_token_head]\n"
        "    values_when: {int8_per_token_head: {versions: '>=0.20'}}\n"
    )
    assert len(settings(tmp_path, text)) == 2
    assert len(settings(tmp_path, text.replace("swap-space", "swap_space"), "0.16.0")) == 2


@pytest.mark.parametrize("name", ["vllm.yaml", "vllm-cpu-demo.yaml"])
@pytest.mark.parametrize("version", ["0.16.0", "0.20.2", "0.32.0", "0.33.0"])
def test_the_bundled_spaces_are_sound(name: str, version: str) -> None:
    found = load_space(bundled("search_spaces") / name, version)
    assert found.origin == name
    assert all(setting.why for setting in found.settings)
    for hardware in (plans.CPU, plans.H100):
        for model in (LLAMA, MOE, plans.local_model(quantization="awq")):
            open_here = opened(found, hardware, model, version=version)
            assert open_here.size > 1
            assert open_here.point_of(open_here.config({})) is not None
            for dimension in open_here.dimensions:
                assert None in dimension.values, "the engine's own default must be a point of the space"


# --- what is open here


GB = 1 << 30
A100 = Hardware(kind="cuda", gpus=(Gpu(name="A100", memory_bytes=80 * GB, capability=8.0),))


@pytest.mark.parametrize(
    ("condition", "hardware", "model", "reason"),
    [
        ({}, plans.CPU, LLAMA, None),
        ({"hardware": "cuda"}, plans.H100, LLAMA, None),
        ({"hardware": "cuda"}, plans.CPU, LLAMA, "needs cuda, this machine is cpu"),
        ({"min_capability": 8.9}, plans.H100, LLAMA, None),
        ({"min_capability": 8.9}, A100, LLAMA, "needs compute capability 8.9, the GPU has 8.0"),
        ({"min_capability": 8.9}, plans.CPU, LLAMA, "the GPU has none"),
        ({"min_devices": 2}, plans.H100, LLAMA, None),
        ({"min_devices": 2}, A100, LLAMA, "needs 2 devices, there are 1"),
        ({"versions": ">=0.17"}, plans.CPU, LLAMA, None),
        ({"versions": ">=0.40"}, plans.CPU, LLAMA, "needs engine version >=0.40, this is 0.32.0"),
        ({"cpu_features": ["avx2"]}, plans.CPU, LLAMA, None),
        ({"cpu_features": ["avx2", "amx_tile"]}, plans.CPU, LLAMA, "needs a CPU with amx_tile"),
        ({"model": ["moe"]}, plans.H100, MOE, None),
        ({"model": ["moe"]}, plans.H100, LLAMA, "needs a model that is moe"),
        ({"model": ["dense", "unquantized"]}, plans.H100, LLAMA, None),
        ({"model": ["dense", "quantized"]}, plans.H100, MOE, "needs a model that is dense, quantized"),
        ({"hardware": "cpu", "model": ["moe"]}, plans.H100, MOE, "needs cpu"),
    ],
)
def test_conditions(condition: dict[str, Any], hardware: Hardware, model: Any, reason: str | None) -> None:
    found = opened(space(SpaceSetting(flag="a", values=(1, 2), when=Condition(**condition))), hardware, model)
    if reason is None:
        assert [d.flag for d in found.dimensions] == ["a"]
        assert found.closed == ()
    else:
        assert found.dimensions == ()
        assert reason in found.closed[0].reason


def test_single_values_can_be_closed() -> None:
    setting = SpaceSetting(
        flag="kv", values=(None, "fp8", "auto", True, 8),
        values_when={"fp8": Condition(hardware="cuda"), "unset": Condition(hardware="cpu"),
                     "true": Condition(hardware="cpu"), "8": Condition(hardware="cpu")},
    )
    found = opened(space(setting), plans.H100)
    assert found.dimensions[0].values == ("fp8", "auto")
    assert [closed.value for closed in found.closed] == [None, True, 8]
    assert opened(space(setting), plans.CPU).dimensions[0].values == (None, "auto", True, 8)


def test_a_setting_whose_values_are_all_closed_is_no_dimension() -> None:
    setting = SpaceSetting(flag="kv", values=("fp8",), values_when={"fp8": Condition(hardware="cuda")})
    assert opened(space(setting), plans.CPU).dimensions == ()


def test_pins_and_what_is_left_to_the_engine_are_not_searched() -> None:
    found = opened(
        space(*(SpaceSetting(flag=flag, values=(None, 1, 2)) for flag in "abc")),
        pins=(Setting(flag="a", value=7),), left=("b",),
    )
    assert [d.flag for d in found.dimensions] == ["c"]
    assert [(closed.flag, closed.reason) for closed in found.closed] == [("a", "set by you"), ("b", "set by you")]
    assert found.config({"c": 2}).values == {"a": 7, "c": 2}
    assert found.size == 3


def test_a_flag_may_not_be_open_twice() -> None:
    twice = space(SpaceSetting(flag="a", values=(1,)), SpaceSetting(flag="a", values=(2,)))
    with pytest.raises(SpaceError, match="a is open twice for this machine") as caught:
        opened(twice)
    assert "exclude each other" in (caught.value.hint or "")


def test_a_flag_may_stand_twice_when_conditions_exclude_each_other() -> None:
    twice = space(
        SpaceSetting(flag="a", values=(1,), when=Condition(hardware="cuda")),
        SpaceSetting(flag="a", values=(2,), when=Condition(hardware="cpu")),
    )
    assert opened(twice, plans.CPU).dimensions[0].values == (2,)


# --- points and configurations


def test_a_setting_whose_needs_do_not_hold_is_left_out() -> None:
    found = dimensions(
        ("eager", (None, True), {}), ("graphs", (None, 8, 16), {"eager": ("unset",)}),
        ("deep", (None, 1), {"graphs": (16,)}),
    )
    assert found.config({"eager": True, "graphs": 16, "deep": 1}).values == {"eager": True}
    assert found.config({"eager": None, "graphs": 16, "deep": 1}).values == {"graphs": 16, "deep": 1}
    assert found.config({"eager": None, "graphs": 8, "deep": 1}).values == {"graphs": 8}


def test_needs_are_met_by_pins_and_true_is_not_one() -> None:
    needs = {"mode": (1,)}
    assert dimensions(("a", (5,), needs), pins=(Setting(flag="mode", value=1),)).config({"a": 5}).get("a") == 5
    assert dimensions(("a", (5,), needs), pins=(Setting(flag="mode", value=True),)).config({"a": 5}).get("a") is None


def test_the_point_of_a_configuration() -> None:
    found = dimensions(("a", (None, 1, 2), {}), ("b", (False, True), {}), pins=(Setting(flag="p", value=1),))
    inside = found.config({"a": 2, "b": True})
    assert found.point_of(inside) == {"a": 2, "b": True}
    assert found.point_of(inside.with_settings(Setting(flag="a", value=3))) is None
    assert found.point_of(inside.with_settings(Setting(flag="a", value=True))) is None
    assert found.point_of(inside.with_settings(Setting(flag="other", value=1))) is None
    assert found.point_of(inside.with_settings(Setting(flag="p", value=2))) is None
    assert found.point_of(found.config({})) is None, "b has no unset value"


@given(spaces())
def test_every_point_honours_pins_domains_and_needs(found: OpenSpace) -> None:
    points = list(found.points())
    assert len(points) == found.size
    by_flag = {dimension.flag: dimension for dimension in found.dimensions}
    for point in points:
        config = found.config(point)
        for pin in found.pins:
            assert config.get(pin.flag) == pin.value
        for setting in config.settings:
            if setting.flag not in by_flag:
                assert setting in found.pins
                continue
            dimension = by_flag[setting.flag]
            assert setting.value == point[setting.flag]
            assert type(setting.value) is type(point[setting.flag])
            assert setting.source == "trial"
            for flag, allowed in dimension.needs.items():
                assert config.get(flag) in allowed
        back = found.point_of(config)
        assert back is None or found.config(back).key == config.key


def test_points_come_in_a_fixed_order() -> None:
    found = dimensions(("a", (1, 2), {}), ("b", (None, 3), {}))
    assert list(found.points()) == [
        {"a": 1, "b": None}, {"a": 1, "b": 3}, {"a": 2, "b": None}, {"a": 2, "b": 3}]
