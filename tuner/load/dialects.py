"""How servers differ in the one API that they all speak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one server's OpenAI-style API takes beyond the common part."""

    name: str
    token_ids: bool
    """Whether `/v1/completions` takes a list of token ids as the prompt."""
    ignore_eos: bool
    """Whether it can be told not to stop before the asked length."""
    usage: bool = True
    """Whether it knows `stream_options.include_usage`; where not, the option is left out."""
    owned_by: tuple[str, ...] = ()
    """What it calls itself in `/v1/models`."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)


DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        # ignore_eos and lists of ids: vllm/entrypoints/openai/completion/protocol.py
        Dialect("vllm", token_ids=True, ignore_eos=True, owned_by=("vllm",)),
        # ignore_eos and lists of ids: sglang/srt/entrypoints/openai/protocol.py
        Dialect("sglang", token_ids=True, ignore_eos=True, owned_by=("sglang",)),
        # ignore_eos and lists of ids: tensorrt_llm/serve/openai_protocol.py
        Dialect("trtllm", token_ids=True, ignore_eos=True, owned_by=("tensorrt_llm",)),
        # ignore_eos, prompts of ids: llama.cpp tools/server/README.md; a slot's own prompt cache is turned off
        Dialect("llamacpp", token_ids=True, ignore_eos=True, owned_by=("llamacpp",),
                extra_body={"cache_prompt": False}),
        # text only, no way to forbid the end: text-generation-inference router/src/lib.rs
        Dialect("tgi", token_ids=False, ignore_eos=False),
        # text only, no way to forbid the end: ollama docs/openai.md
        Dialect("ollama", token_ids=False, ignore_eos=False, owned_by=("library",)),
        # the common part
        Dialect("openai", token_ids=False, ignore_eos=False),
    )
}


def dialect_of(owned_by: str | None) -> Dialect:
    """Return the dialect of a server by what it calls itself; the common part when that is not known."""
    return next((one for one in DIALECTS.values() if owned_by in one.owned_by), DIALECTS["openai"])
