"""What the GPUs do while a load runs, by NVML."""

from __future__ import annotations

from collections.abc import Callable

import pynvml

from tuner.domain.bench import GpuReading
from tuner.runtime.gpu import Device, devices

_HELD_BACK = {
    pynvml.nvmlClocksEventReasonSwPowerCap: "power_cap",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power_brake",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "thermal",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "thermal",
}


def telemetry() -> tuple[GpuReading, ...]:
    """Read every visible GPU; what a GPU does not tell stays None. Empty without a driver."""
    with devices() as found:
        return tuple(_read(device) for device in found)


def _read(device: Device) -> GpuReading:
    milliwatts = _ask(lambda: int(pynvml.nvmlDeviceGetPowerUsage(device)))
    busy = _ask(lambda: int(pynvml.nvmlDeviceGetUtilizationRates(device).gpu))
    reasons = _ask(lambda: int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(device))) or 0
    return GpuReading(
        clock_mhz=_ask(lambda: int(pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM))),
        power_w=None if milliwatts is None else milliwatts / 1000,
        temperature_c=_ask(lambda: int(pynvml.nvmlDeviceGetTemperature(device, pynvml.NVML_TEMPERATURE_GPU))),
        utilization=None if busy is None else busy / 100,
        memory_bytes=_ask(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(device).used)),
        held_back=tuple(sorted({name for bit, name in _HELD_BACK.items() if reasons & bit})),
    )


def _ask(question: Callable[[], int]) -> int | None:
    try:
        return question()
    except pynvml.NVMLError:
        return None
