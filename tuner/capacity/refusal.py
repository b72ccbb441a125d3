"""What memory is not predicted for, by name."""

from __future__ import annotations

from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.domain.record import Record
from tuner.facts.read import data


class Refused(Record):
    """No prediction, and why."""

    reason: str

    @property
    def fits(self) -> bool:
        """Nothing speaks against a launch."""
        return True


def refusal(model: ModelSpec, hardware: Hardware) -> Refused | None:
    """Say why there is no prediction for a model on this hardware, or None when there is one."""
    if hardware.kind != "cuda" or not hardware.gpus:
        return Refused(reason="there is no GPU: a CPU's cache has the size that it is given")
    if model.architecture is None:
        return Refused(reason=f"the architecture of {model.name} is not known without its config.json")
    facts = data("vllm/memory.yaml")
    if model.architecture in facts["refused"]:
        return Refused(reason=f"{model.architecture}: {facts['refused'][model.architecture]}")
    if not any(model.architecture in names for names in facts["architectures"].values()):
        return Refused(reason=f"how {model.architecture} lays out its KV cache is not known")
    missing = [name for name in ("layers", "kv_heads", "head_dim") if getattr(model, name) is None]
    if "?" in model.layer_kinds:
        missing.append("kinds of layers")
    if missing:
        return Refused(reason=f"{model.name}: {', '.join(missing)} not known from its config.json")
    return None
