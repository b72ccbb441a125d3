"""What a rule is, and small readers that rules share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from tuner.domain.engine import EngineConfig, Value
from tuner.domain.finding import Finding
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.facts.flags import human_int
from tuner.facts.versions import release

Rule = Callable[[EngineConfig, ModelSpec, Hardware], Iterator[Finding]]


def count(config: EngineConfig, flag: str, default: int | None = None) -> int | None:
    """Return a flag's count as the engine reads it, or the default when it is unset or none."""
    value = human_int(config.get(flag))
    return default if value is None else value


def since(config: EngineConfig, version: str) -> bool:
    """Whether the config is for this release or a later one."""
    return release(config.version) >= release(version)


def finding(
    rule: Callable[..., object], severity: Literal["error", "warning"], reason: str, fix: str, source: str
) -> Finding:
    """Return a finding that carries its rule's name."""
    return Finding(rule=rule.__name__, severity=severity, reason=reason, fix=fix, source=source)


def effective_dtype(config: EngineConfig, model: ModelSpec) -> str | None:
    """Return the type that the model is run in, as far as it is said; `auto` is the checkpoint's own."""
    stated = str(config.get("dtype") or "auto")
    named = model.dtype if stated == "auto" else stated
    return {"half": "float16", "float": "float32"}.get(named or "", named)


def kv_dtype(config: EngineConfig, model: ModelSpec) -> str:
    """Return the type of the KV cache: as set, else as the checkpoint asks for, else `auto`."""
    stated = str(config.get("kv-cache-dtype") or "auto")
    return (model.kv_quantization or "auto") if stated == "auto" else stated


def method_of(config: EngineConfig, model: ModelSpec) -> str | None:
    """Return the quantization method: as set, else the checkpoint's."""
    stated: Value | None = config.get("quantization")
    return str(stated) if stated is not None else model.quantization


def family(method: Value | None) -> str:
    """Return a method's family: its name without the kernel or the variant."""
    text = str(method).replace("auto_", "").replace("_marlin", "")
    return "modelopt" if text.startswith("modelopt") else text
