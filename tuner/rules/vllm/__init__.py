"""What vLLM refuses or silently changes, as far as it can be known without a launch. One function a rule."""

from __future__ import annotations

from tuner.rules.base import Rule
from tuner.rules.vllm import attention, counts, parallel, serving, types

RULES: tuple[Rule, ...] = (*counts.RULES, *parallel.RULES, *types.RULES, *attention.RULES, *serving.RULES)
