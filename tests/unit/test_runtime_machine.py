"""Reading the machine: CPU, control groups, GPUs (a stand-in for NVML), host load, and waiting until it has settled."""
# ruff: noqa: N802  (the stand-in has NVML's own names)

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.runtime import cgroup, detect, gpu, host, settle
from tuner.runtime.detect import detect_hardware, read_cpuinfo, usable_cores

pytestmark = pytest.mark.unit

GIB = 1 << 30


def test_cpuinfo():
    text = "processor\t: 0\nmodel name\t: A CPU @ 2.0GHz\nflags\t\t: fpu avx2 avx512f amx_tile sse\n\nprocessor\t: 1\nmodel name\t: Other\nflags : avx512_bf16\n"
    assert read_cpuinfo(text) == ("A CPU @ 2.0GHz", ("avx2", "avx512f", "amx_tile"))
    assert read_cpuinfo("") == (None, ())


@pytest.mark.parametrize(
    ("cpus", "quota", "cores"),
    [({0, 1, 2, 3}, None, 2), ({0, 1}, None, 1), ({0, 2}, None, 2), ({0, 1, 2, 3}, 1.5, 1), ({0}, 0.5, 1), ({0, 2}, 8.0, 2), ({8, 9}, None, 2)],
)
def test_cores_are_physical_and_paid_for(tmp_path: Path, cpus: set[int], quota: float | None, cores: int):
    for cpu, siblings in enumerate(["0-1", "0-1", "2-3", "2-3"]):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    assert usable_cores(cpus, quota, tmp_path) == cores


class TestControlGroups:
    def write(self, root: Path, files: dict[str, str]) -> None:
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)

    def test_version_2_takes_the_tightest_on_the_way_up(self, tmp_path: Path):
        self.write(tmp_path, {
            "membership": "0::/a/b\n",
            "root/a/b/cpu.max": "400000 100000\n", "root/a/cpu.max": "150000 100000\n", "root/cpu.max": "max 100000\n",
            "root/a/b/memory.max": "max\n", "root/a/memory.max": f"{3 * GIB}\n",
        })
        assert cgroup.cpu_quota(tmp_path / "root", tmp_path / "membership") == 1.5
        assert cgroup.memory_limit_bytes(tmp_path / "root", tmp_path / "membership") == 3 * GIB

    def test_version_1(self, tmp_path: Path):
        self.write(tmp_path, {
            "membership": "4:memory:/job\n3:cpu,cpuacct:/job\n0::/\n",
            "root/cpu,cpuacct/job/cpu.cfs_quota_us": "250000\n", "root/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
            "root/cpu,cpuacct/cpu.cfs_quota_us": "-1\n", "root/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "root/memory/job/memory.limit_in_bytes": f"{GIB}\n", "root/memory/memory.limit_in_bytes": "9223372036854771712\n",
        })
        assert cgroup.cpu_quota(tmp_path / "root", tmp_path / "membership") == 2.5
        assert cgroup.memory_limit_bytes(tmp_path / "root", tmp_path / "membership") == GIB

    def test_a_path_of_the_host_falls_back_to_the_mount(self, tmp_path: Path):
        self.write(tmp_path, {"membership": "0::/docker/0123\n", "root/memory.max": f"{GIB}\n"})
        assert cgroup.memory_limit_bytes(tmp_path / "root", tmp_path / "membership") == GIB

    def test_no_groups_no_limits(self, tmp_path: Path):
        assert cgroup.cpu_quota(tmp_path, tmp_path / "absent") is None
        assert cgroup.memory_limit_bytes(tmp_path, tmp_path / "absent") is None


class Nvml:
    """A stand-in for NVML with two whole GPUs and a third that is divided."""

    NVML_CLOCK_SM = 1
    NVML_DEVICE_MIG_ENABLE = 1

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.used = [1 * GIB, 2 * GIB, 3 * GIB]
        self.open = 0

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:
        if index > 2:
            raise self.NVMLError
        return index

    def nvmlDeviceGetHandleByUUID(self, name: str) -> object:
        known = {"GPU-b": 1, "MIG-x": "slice"}
        if name not in known:
            raise self.NVMLError
        return known[name]

    def nvmlDeviceGetMigMode(self, device: object) -> list[int]:
        if device == 0:
            raise self.NVMLError  # a GPU that cannot be divided
        return [1 if device == 2 else 0, 0]

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: object, index: int) -> object:
        assert (device, index) == (2, 0)
        return "slice"

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, device: object) -> object:
        if device != "slice":
            raise self.NVMLError
        return 2

    def nvmlDeviceGetName(self, device: object) -> str | bytes:
        return b"NVIDIA H100 MIG 1g.10gb" if device == "slice" else "NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetMemoryInfo(self, device: object) -> Any:
        if device == "slice":
            return SimpleNamespace(total=10 * GIB, used=GIB)
        return SimpleNamespace(total=80 * GIB, used=self.used[int(str(device))])

    def nvmlDeviceGetCudaComputeCapability(self, device: object) -> tuple[int, int]:
        if device == "slice":
            raise self.NVMLError
        return 9, 0

    def nvmlDeviceGetClockInfo(self, device: object, kind: int) -> int:
        if device == "slice":
            raise self.NVMLError
        return 1980

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.65.06"


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    fake = Nvml()
    monkeypatch.setattr(gpu, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


class TestGpus:
    def test_inventory_takes_the_first_instance_of_a_divided_gpu(self, nvml: Nvml):
        gpus, driver = gpu.inventory()
        assert driver == "580.65.06"
        assert [(found.index, found.name, found.memory_bytes // GIB, found.capability) for found in gpus] == [
            (0, "NVIDIA H100 80GB HBM3", 80, 9.0), (1, "NVIDIA H100 80GB HBM3", 80, 9.0), (2, "NVIDIA H100 MIG 1g.10gb", 10, 9.0),
        ]
        assert nvml.open == 0

    @pytest.mark.parametrize(
        ("setting", "memory_gib"),
        [("1", [80]), ("1,0", [80, 80]), ("GPU-b", [80]), ("MIG-x", [10]), ("", []), ("-1", []), ("0,9,1", [80]), ("NoDevFiles", [])],
    )
    def test_visible_devices_are_followed_as_cuda_does(self, nvml: Nvml, setting: str, memory_gib: list[int]):
        gpus, _ = gpu.inventory({"CUDA_VISIBLE_DEVICES": setting})
        assert [found.memory_bytes // GIB for found in gpus] == memory_gib

    def test_readings(self, nvml: Nvml):
        assert gpu.memory_used_bytes() == (GIB, 2 * GIB, GIB)
        assert gpu.clocks_mhz() == (1980, 1980)

    def test_memory_comes_back_or_not(self, nvml: Nvml):
        base = gpu.memory_used_bytes()
        assert gpu.wait_gpu_memory_back(base, timeout_s=0).settled
        nvml.used[1] += 5 * GIB
        result = gpu.wait_gpu_memory_back(base, timeout_s=0)
        assert not result.settled
        assert result.missing_bytes == 5 * GIB

    def test_without_a_driver_everything_is_empty(self, monkeypatch: pytest.MonkeyPatch, nvml: Nvml):
        def fail() -> None:
            raise nvml.NVMLError

        monkeypatch.setattr(nvml, "nvmlInit", fail)
        assert gpu.inventory() == ((), None)
        assert gpu.memory_used_bytes() == ()
        assert gpu.clocks_mhz() == ()
        assert gpu.wait_gpu_memory_back((), timeout_s=0).settled

    def test_hardware_with_gpus(self, nvml: Nvml, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
        hardware = detect_hardware()
        assert (hardware.kind, hardware.devices, hardware.driver, hardware.capability) == ("cuda", 2, "580.65.06", 9.0)


def test_hardware_without_gpus_is_within_its_limits(nvml: Nvml, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(detect.cgroup, "memory_limit_bytes", lambda: 123)
    monkeypatch.setattr(detect.cgroup, "cpu_quota", lambda: 0.5)
    hardware = detect_hardware()
    assert (hardware.kind, hardware.gpus, hardware.driver) == ("cpu", (), None)
    assert (hardware.cores, hardware.memory_bytes) == (1, 123)


class Times(SimpleNamespace):
    @property
    def _fields(self) -> tuple[str, ...]:
        return tuple(vars(self))


class TestHost:
    @pytest.fixture
    def times(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        monkeypatch.setattr(gpu, "clocks_mhz", lambda: (1980,))

        def set_times(**seconds: float) -> None:
            full = {"user": 0.0, "system": 0.0, "idle": 0.0, "iowait": 0.0, "steal": 0.0, "guest": 0.0, **seconds}
            monkeypatch.setattr(host.psutil, "cpu_times", lambda: Times(**full))

        return set_times

    def test_shares_since_the_watch_was_made(self, times: Callable[..., None]):
        times(user=100, idle=100, steal=7)
        watch = host.HostWatch()
        times(user=106, system=2, idle=108, iowait=2, steal=9, guest=50)
        environment = watch.environment(known_cpu_s=3.0)
        assert environment.cpu_steal_share == pytest.approx(2 / 10)
        assert environment.host_cpu_share == pytest.approx((8 - 3) / 20)
        assert environment.gpu_clocks_mhz == (1980,)
        assert environment.memory_available_bytes is not None
        assert watch.environment(known_cpu_s=1e9).host_cpu_share == 0.0

    def test_no_time_passed(self, times: Callable[..., None]):
        times(user=100, idle=100)
        environment = host.HostWatch().environment()
        assert environment.host_cpu_share is None
        assert environment.cpu_steal_share == 0.0

    def test_a_snapshot_has_no_shares(self, times: Callable[..., None]):
        environment = host.snapshot()
        assert environment.cpu_steal_share is None
        assert environment.host_cpu_share is None

    def test_waiting_for_memory(self, monkeypatch: pytest.MonkeyPatch):
        readings = iter([5 * GIB, 6 * GIB, 8 * GIB])
        monkeypatch.setattr(host, "memory_available_bytes", lambda: next(readings))
        monkeypatch.setattr(settle.time, "sleep", lambda _: None)
        result = host.wait_settled(8 * GIB, timeout_s=60)
        assert result.settled
        assert result.missing_bytes == 0

    def test_memory_that_does_not_come_back(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(host, "memory_available_bytes", lambda: 5 * GIB)
        result = host.wait_settled(8 * GIB, timeout_s=0)
        assert not result.settled
        assert result.missing_bytes == 3 * GIB
