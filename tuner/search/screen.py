"""Rules out configurations that cannot work, before a launch costs minutes."""

from __future__ import annotations

from tuner.capacity.memory import MemoryPlan, memory_plan
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
    footprint = ENGINES[config.engine].footprint(model, config)
    plan = memory_plan(model, footprint, hardware)
    if isinstance(plan, MemoryPlan) and plan.state_shortage(footprint.max_sequences):
        return Infeasible(
            rule="mamba_blocks",
            reason=f"--max-num-seqs {footprint.max_sequences} needs as many cache blocks for states, and about "
            f"{plan.blocks} fit (PREDICTED)",
            fix=f"use {max(1, plan.blocks * 3 // 4)} or less",
        )
    if isinstance(plan, MemoryPlan) and not plan.fits:
        return Infeasible(
            rule="memory",
            reason=plan.text,
            fix="use more devices, fewer bits for weights or KV cache, or a shorter context",
        )
    return None
