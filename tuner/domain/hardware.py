"""Hardware: what the engine has to run on."""

from __future__ import annotations

from typing import Literal

from tuner.domain.record import Record


class Gpu(Record):
    """One GPU. `memory_bytes` is the total that the driver reports; `capability` is CUDA's, e.g. 9.0."""

    name: str
    memory_bytes: int
    capability: float | None = None
    index: int = 0


class Hardware(Record):
    """The devices of one host. Without GPUs the engine's CPU build is the only one that can run."""

    kind: Literal["cuda", "cpu"]
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    cpu: str | None = None
    cores: int = 1
    memory_bytes: int = 0
    cpu_features: tuple[str, ...] = ()
    """Of `avx2`, `avx512f`, `avx512_bf16`, `amx_tile`: the ones that decide which kernels exist."""

    @property
    def devices(self) -> int:
        """How many devices tensor, pipeline and data parallelism can share."""
        return len(self.gpus) if self.kind == "cuda" else 1

    @property
    def label(self) -> str:
        """Short text for tables and headers."""
        if self.kind == "cuda":
            return f"{len(self.gpus)} x {self.gpus[0].name}"
        return f"CPU, {self.cores} cores ({self.cpu or 'unknown'})"

    @property
    def capability(self) -> float | None:
        """The lowest compute capability among the GPUs."""
        known = [gpu.capability for gpu in self.gpus if gpu.capability is not None]
        return min(known) if known else None
