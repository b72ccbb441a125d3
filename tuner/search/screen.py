"""Rules out configurations that cannot work, before a launch costs minutes."""

from __future__ import annotations

from tuner.capacity.memory import memory_plan
from tuner.domain.engine import EngineConfig
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.domain.trial import Infeasible
from tuner.engines import ENGINES
from tuner.rules import findings


def screen(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> Infeasible | None:
    """Return why this configuration cannot work, or None when nothing speaks against a launch."""
    for finding in findings(config, model, hardware):
        if finding.severity == "error":
            return Infeasible(rule=finding.rule, reason=finding.reason, fix=finding.fix)
    plan = memory_plan(model, ENGINES[config.engine].footprint(model, config), hardware)
    if plan is not None and not plan.fits:
        return Infeasible(
            rule="memory",
            reason=plan.text,
            fix="use more devices, fewer bits for weights or KV cache, or a shorter context",
        )
    return None
