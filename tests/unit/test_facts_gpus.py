"""GPUs by name: the driver's names, hardware that is not here, and a table that holds together."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.domain.hardware import Gpu
from tuner.errors import UsageError
from tuner.facts.gpus import facts_of, gpu_table, has_unified_memory, parse_hardware, usable_bytes

pytestmark = pytest.mark.unit

GIB = 1 << 30


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"), ("NVIDIA H100 PCIe", "H100-PCIE-80GB"),
        ("NVIDIA H100 NVL", "H100-NVL-94GB"), ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"), ("NVIDIA A100 80GB PCIe", "A100-PCIE-80GB"),
        ("NVIDIA A10", "A10"), ("NVIDIA A10G", "A10G"), ("NVIDIA L4", "L4"), ("NVIDIA L40", "L40"),
        ("NVIDIA L40S", "L40S"), ("NVIDIA GB200", "GB200"), ("NVIDIA B200", "B200-180GB"), ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"), ("NVIDIA GB10", "GB10"), ("AMD Instinct MI300X", "MI300X"),
        ("Tesla V100-SXM2-16GB", "V100-PCIE-16GB"), ("NVIDIA GH200 480GB", "GH200-96GB"),
    ],
)
def test_names_of_drivers(driver: str, name: str) -> None:
    facts = facts_of(driver)
    assert facts is not None
    assert facts.name == name


def test_an_unknown_gpu_is_taken_as_the_driver_says() -> None:
    gpu = Gpu(name="NVIDIA Z999", memory_bytes=50 * GIB)
    assert facts_of(gpu.name) is None
    assert usable_bytes(gpu) == 50 * GIB
    assert not has_unified_memory(gpu)


@pytest.mark.parametrize(
    ("name", "driver_mib", "usable_gib"),
    [
        ("NVIDIA H100 80GB HBM3", 81559, 79.19), ("NVIDIA L40S", 46068, 44.42), ("NVIDIA A10G", 23028, 22.06),
        ("NVIDIA H200", 143771, 139.8),
    ],
)
def test_cuda_sees_less_than_the_driver_shows(name: str, driver_mib: int, usable_gib: float) -> None:
    gpu = Gpu(name=name, memory_bytes=driver_mib << 20)
    assert usable_bytes(gpu) == int(usable_gib * GIB)
    assert usable_bytes(gpu) < gpu.memory_bytes


def test_a_slice_has_less_than_its_gpu() -> None:
    """UP-B26: a plan uses the slice's memory, not its parent's."""
    slice_of = Gpu(name="NVIDIA H100 80GB HBM3 MIG 2g.20gb", memory_bytes=20 * GIB)
    assert usable_bytes(slice_of) == 20 * GIB


@pytest.mark.parametrize(
    ("text", "count", "name"),
    [
        ("h100", 1, "H100 80GB HBM3"), ("h100x8", 8, "H100 80GB HBM3"), ("8xH100", 8, "H100 80GB HBM3"),
        ("8 x h100", 8, "H100 80GB HBM3"), ("a100-40gbx2", 2, "A100-SXM4-40GB"), ("rtx4090", 1, "RTX 4090"),
        ("rtx4090x2", 2, "RTX 4090"), ("RTX 4090", 1, "RTX 4090"), ("2xrtx4090", 2, "RTX 4090"), ("mi300xx8", 8, "MI300X"),
        ("mi300x", 1, "MI300X"), ("NVIDIA L4", 1, "L4"), ("gb10", 1, "GB10"), ("4xA100-80GB", 4, "A100-SXM4-80GB"),
    ],
)
def test_hardware_that_is_not_here(text: str, count: int, name: str) -> None:
    hardware = parse_hardware(text)
    assert (hardware.kind, hardware.devices, hardware.gpus[0].name) == ("cuda", count, name)
    assert [gpu.index for gpu in hardware.gpus] == list(range(count))
    assert usable_bytes(hardware.gpus[0]) == hardware.gpus[0].memory_bytes


@pytest.mark.parametrize("text", ["h101", "h100x0", "h100x9999", "", "x8", "gpu"])
def test_hardware_that_there_is_not(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_hardware(text)
    assert text in caught.value.message
    assert caught.value.hint


def test_a_near_miss_is_told() -> None:
    with pytest.raises(UsageError) as caught:
        parse_hardware("h10")
    assert "h100" in (caught.value.hint or "")


@given(st.text(max_size=12))
def test_any_text_is_hardware_or_one_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert parse_hardware(text).gpus


@pytest.mark.parametrize("name", gpu_table())
def test_a_row_holds_together(name: str) -> None:
    """Sparse rates, or memory as on the label, would show here: tables in the wild have both."""
    facts = gpu_table()[name]
    assert facts.aliases
    assert all(alias == alias.lower() for alias in facts.aliases)
    assert facts.source
    if facts.usable_gib is not None:
        assert facts.usable_gib * GIB <= facts.nominal_gb * GIB
    if facts.fp8_tflops and facts.bf16_tflops:
        assert facts.fp8_tflops == pytest.approx(2 * facts.bf16_tflops, rel=0.02)
    if facts.fp16_tflops and facts.bf16_tflops:
        assert facts.fp16_tflops == facts.bf16_tflops
    if facts.capability is not None and facts.fp8_tflops:
        assert facts.capability >= 8.9
    assert (facts.capability is None) == (facts.architecture is not None)


def test_aliases_are_one_gpu_each() -> None:
    aliases = [alias for facts in gpu_table().values() for alias in facts.aliases]
    assert len(aliases) == len(set(aliases))


def test_bandwidth_grows_by_generation() -> None:
    table = gpu_table()
    flagships = ["V100-SXM2-32GB", "A100-SXM4-80GB", "H100-SXM5-80GB", "H200-SXM-141GB", "B200-180GB"]
    bandwidths = [table[name].bandwidth_gbs or 0 for name in flagships]
    assert bandwidths == sorted(bandwidths)
