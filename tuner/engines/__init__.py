"""Pure translation between llmtune's nouns and one engine's own words; one file an engine."""

from __future__ import annotations

from tuner.engines.base import Engine
from tuner.engines.trtllm import TrtllmEngine
from tuner.engines.vllm import VllmEngine

ENGINES: dict[str, Engine] = {"vllm": VllmEngine(), "trtllm": TrtllmEngine()}
