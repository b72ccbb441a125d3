"""Static validity: what cannot work is found before anything is launched."""

from __future__ import annotations

from tuner.domain.engine import EngineConfig
from tuner.domain.finding import Finding
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.rules import trtllm, vllm

RULES = {"vllm": vllm.RULES, "trtllm": trtllm.RULES}


def findings(config: EngineConfig, model: ModelSpec, hardware: Hardware) -> tuple[Finding, ...]:
    """Return all that the rules of the config's engine have to say, errors first."""
    found = [finding for rule in RULES.get(config.engine, ()) for finding in rule(config, model, hardware)]
    return tuple(sorted(found, key=lambda finding: finding.severity))
