"""What the rules look at: one server with its arguments read, and what the user said of version, model and hardware."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from packaging.version import Version

from tuner.domain.engine import EngineConfig
from tuner.domain.finding import Judged
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.errors import EngineError, LlmtuneError
from tuner.facts.catalog import model_by_alias, model_by_hub_id
from tuner.facts.flags import parse_version
from tuner.facts.read import data
from tuner.inspect.arguments import Arguments, newest, read_arguments
from tuner.inspect.issue import Word
from tuner.inspect.server import Server

_BILLIONS = re.compile(r"(?:^|[-_/.])(?:(\d+)x)?(\d+(?:\.\d+)?)[bB](?:$|[-_.:])")
_FOUR_BITS = re.compile(r"awq|gptq|int4|fp4|4bit|w4a|q4_", re.IGNORECASE)
_EIGHT_BITS = re.compile(r"fp8|int8|8bit|w8a|q8_", re.IGNORECASE)
_LARGE = {"deepseek-r1": 685.0, "deepseek-v3": 685.0, "kimi-k2": 1000.0}


@dataclass(frozen=True)
class Context:
    """What the user said beside the files. None: not said."""

    version: str | None = None
    hardware: Hardware | None = None
    model: ModelSpec | None = None
    judge: Callable[[EngineConfig, ModelSpec, Hardware], Judged] | None = None
    """Asks an installed engine itself, for servers whose model and hardware are known."""
    lookup: Callable[[str], ModelSpec | None] | None = None
    """Finds a model that a file names; None: the tables alone do."""
    assumed: str | None = None
    """The release where neither the user nor a file names one; None: the newest known."""


@dataclass(frozen=True)
class View:
    """One server and all that is known of it. `text` is the whole file."""

    server: Server
    arguments: Arguments
    version: str
    is_stated: bool
    """Whether a file or the user names the version; else it is the newest known."""
    context: Context
    text: str

    @property
    def model(self) -> Word | None:
        """The model that the command names."""
        return self.arguments.model

    @property
    def line(self) -> int:
        """A line to point at when nothing finer is known."""
        return self.server.line

    def at_least(self, version: str) -> bool:
        """Whether the engine is this release or a newer one."""
        return parse_version(self.version) >= Version(version)

    def flag_line(self, flag: str) -> int:
        """Line of a flag, or of the server."""
        word = self.arguments.words.get(flag)
        return word.line if word else self.line

    @property
    def spec(self) -> ModelSpec | None:
        """The model with its architecture, as far as tables know it."""
        if self.context.model is not None:
            return self.context.model
        find = self.context.lookup or known_model
        return find(self.model.text) if self.model is not None and not self.model.open else None

    @property
    def weight_gb(self) -> float | None:
        """Rough size of the weights in GB (10^9 bytes): from the model's facts, else from its name. PREDICTED."""
        spec, name = self.spec, self.model.text if self.model else ""
        if spec is not None and spec.weight_bytes:
            return spec.weight_bytes / 1e9
        billions = spec.parameters / 1e9 if spec is not None and spec.parameters else named_billions(name)
        if billions is None:
            return None
        words = f"{name} {self.arguments.values.get('quantization', '')} {spec.quantization if spec else ''}"
        if "gpt-oss" in name or _FOUR_BITS.search(words):
            return billions * 0.6
        return billions * (1.0 if _EIGHT_BITS.search(words) or billions in _LARGE.values() else 2.0)


def named_billions(name: str) -> float | None:
    """Read the size out of a model's name: `Qwen3-30B-A3B` has 30 billion parameters."""
    last = name.rsplit("/", 1)[-1].lower()
    for prefix, size in _LARGE.items():
        if last.startswith(prefix) and "distill" not in last:
            return size
    found = _BILLIONS.search(last)
    return (float(found[1]) if found[1] else 1.0) * float(found[2]) if found else None


@cache
def known_model(name: str) -> ModelSpec | None:
    """Return the model of an alias or hub id that the tables know with its architecture."""
    try:
        model = model_by_alias(name) or model_by_hub_id(name)
    except LlmtuneError:
        return None
    return model if model.architecture is not None else None


@lru_cache(maxsize=16)
def installed(package: str, text: str) -> str | None:
    """Return the version that a file's own `pip install package==version` names, or the head of a file of ours."""
    number = r"(\d+\.\d+\.\d+(?:\.post\d+|rc\d+)?)"
    match = re.search(rf"\b{package}(?:\[[\w,]+\])?=={number}", text)
    if match is None and "# Written by llmtune" in text[:500]:
        match = re.search(rf"^# engine +{package} {number}", text, re.MULTILINE)
    return match[1] if match else None


def view_of(server: Server, context: Context, text: str) -> tuple[View, str | None]:
    """Read a server's arguments; the second result says why its flags could not be checked."""
    image = server.image.version if server.image is not None else None
    stated = context.version or image or installed("vllm", text)
    version = stated or context.assumed or newest("vllm")
    problem = None
    try:
        arguments = read_arguments(server, version)
    except EngineError as error:
        problem = f"{error.message}: its flags were not checked"
        arguments = _shape_only(server)
    return View(server, arguments, version, stated is not None, context, text), problem


def _shape_only(server: Server) -> Arguments:
    """Read model and parallel sizes without a table of flags."""
    try:
        found = read_arguments(server, str(data("vllm/flags.json")["versions"][0]))
    except EngineError:
        return Arguments()
    found.issues.clear()
    return found


def facts() -> Any:  # noqa: ANN401  (a data file)
    """Return the table of deployment facts."""
    return data("deploy.yaml")
