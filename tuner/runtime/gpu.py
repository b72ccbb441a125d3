"""NVIDIA GPUs, read through NVML. Nothing here changes a GPU; MIG instances are taken as they are.

Without a driver every list is empty. `CUDA_VISIBLE_DEVICES` is followed, as the engine will follow it; its numbers are
taken in bus order, which on hosts with different GPUs is what `CUDA_DEVICE_ORDER=PCI_BUS_ID` gives.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pynvml

from tuner.domain.hardware import Gpu
from tuner.runtime.settle import Settled, wait_until

Device = Any  # NVML's handles are opaque
MEMORY_TOLERANCE_BYTES = 256 << 20


@contextlib.contextmanager
def devices(environment: Mapping[str, str] | None = None) -> Iterator[list[Device]]:
    """Yield the handles of the visible GPUs, in their order; an empty list without a driver."""
    visible = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield []
        return
    try:
        yield [_instance(device) for device in _visible(visible)]
    finally:
        pynvml.nvmlShutdown()


def inventory(environment: Mapping[str, str] | None = None) -> tuple[tuple[Gpu, ...], str | None]:
    """Return the visible GPUs, and the driver's version when there are any."""
    with devices(environment) as found:
        gpus = tuple(_describe(index, device) for index, device in enumerate(found))
        return gpus, _text(pynvml.nvmlSystemGetDriverVersion()) if found else None


def memory_used_bytes() -> tuple[int, ...]:
    """Memory in use on each visible GPU, by whomever."""
    with devices() as found:
        return tuple(int(pynvml.nvmlDeviceGetMemoryInfo(device).used) for device in found)


def clocks_mhz() -> tuple[int, ...]:
    """Present SM clock of each visible GPU that tells it."""
    clocks = []
    with devices() as found:
        for device in found:
            with contextlib.suppress(pynvml.NVMLError):
                clocks.append(int(pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM)))
    return tuple(clocks)


def wait_gpu_memory_back(
    base: Sequence[int], tolerance_bytes: int = MEMORY_TOLERANCE_BYTES, timeout_s: float = 30.0
) -> Settled:
    """Wait until no GPU holds more than `base` (what `memory_used_bytes` said before the launch) and a tolerance.

    At once, and settled, where there is no GPU.
    """

    def missing() -> int:
        excess = [now - before for now, before in zip(memory_used_bytes(), base, strict=False)]
        return max([0, *excess])

    return wait_until(missing, tolerance_bytes, timeout_s)


def _visible(setting: str | None) -> list[Device]:
    if setting is None:
        return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    found: list[Device] = []
    for name in (part.strip() for part in setting.split(",")):
        device = _named(name)
        if device is None:
            break  # CUDA reads the list up to the first name that is none
        found.append(device)
    return found


def _named(name: str) -> Device | None:
    try:
        if name.isdigit():
            return pynvml.nvmlDeviceGetHandleByIndex(int(name))
        return pynvml.nvmlDeviceGetHandleByUUID(name) if name.startswith(("GPU-", "MIG-")) else None
    except pynvml.NVMLError:
        return None


def _instance(device: Device) -> Device:
    """Return the MIG instance that CUDA uses when a GPU is divided (the first), else the GPU itself."""
    with contextlib.suppress(pynvml.NVMLError):
        if pynvml.nvmlDeviceGetMigMode(device)[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
            return pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device, 0)
    return device


def _describe(index: int, device: Device) -> Gpu:
    capability: float | None = None
    for whole in (device, _parent(device)):
        with contextlib.suppress(pynvml.NVMLError):
            major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(whole)
            capability = major + minor / 10
            break
    return Gpu(
        name=_text(pynvml.nvmlDeviceGetName(device)),
        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(device).total),
        capability=capability,
        index=index,
    )


def _parent(device: Device) -> Device:
    try:
        return pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
    except pynvml.NVMLError:
        return device


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
