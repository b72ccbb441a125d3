"""Reads a Dockerfile for the server that its last stage starts. Nothing is built."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from tuner.domain.json_text import parse_json
from tuner.inspect.issue import Word
from tuner.inspect.server import Server, in_container, parse_image
from tuner.inspect.shell import split_words

_NAME = re.compile(r"(?:^|[./-])(?:docker|container)file(?:$|[.-])", re.IGNORECASE)
_ASSIGN = re.compile(r"([A-Za-z_]\w*)=(?:\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|(\S*))")
_INSTALL = re.compile(r"\bpip3? install\b(?![^&|;]*(?:==|\s-r\s))[^&|;]*\bvllm\b")
_MOST = 5_000


class Step(NamedTuple):
    """One instruction with its text, a line of it a line."""

    name: str
    text: str
    line: int


class Dockerfile(NamedTuple):
    """The server of the last stage, if one is started, and lines that install vLLM without a release."""

    server: Server | None
    unpinned: list[int]


def is_dockerfile(name: str) -> bool:
    """Whether a file's name says that it is one."""
    return _NAME.search(name.rsplit("/", 1)[-1]) is not None


def read_dockerfile(text: str, file: str) -> Dockerfile:
    """Read the last stage. Never raises."""
    stages: dict[str, _Stage] = {}
    current = _Stage(Word("", 1))
    unpinned: list[int] = []
    arguments: dict[str, str] = {}
    for step in _steps(text):
        if step.name == "FROM":
            words = _filled(step.text, arguments).split()
            words = [word for word in words if not word.startswith("--")] or [""]
            current = stages.get(words[0].lower(), _Stage(Word(words[0], step.line, open="$" in words[0]))).copy()
            if len(words) > 2:
                stages[words[2].lower()] = current
        elif step.name == "ARG":
            name, _, value = step.text.partition("=")
            arguments.setdefault(name.strip(), value.strip().strip("\"'"))
        elif step.name == "RUN" and _INSTALL.search(step.text):
            unpinned.append(step.line)
        else:
            current.take(step)
    return Dockerfile(current.server(file), unpinned)


@dataclass
class _Stage:
    image: Word
    env: dict[str, Word] = field(default_factory=dict)
    entrypoint: list[Word] | None = None
    command: list[Word] | None = None

    def copy(self) -> _Stage:
        """Return what a stage starts with that is built on this one."""
        return _Stage(self.image, dict(self.env), self.entrypoint, self.command)

    def take(self, step: Step) -> None:
        """Apply one instruction."""
        if step.name == "ENV":
            self.env |= _variables(step)
        elif step.name == "ENTRYPOINT":
            self.entrypoint, self.command = _words(step), None
        elif step.name == "CMD":
            self.command = _words(step)

    def server(self, file: str) -> Server | None:
        """Return what is started; an image without a command of its own is only looked at for its name."""
        if not self.image.text:
            return None
        line = (self.entrypoint or self.command or [self.image])[0].line
        server = Server(file, "the image", line, "dockerfile", "", "", [], env=self.env, image=parse_image(self.image))
        if self.entrypoint is None and self.command is None:
            return server if server.image is not None and server.image.engine else None
        return in_container(server, self.entrypoint, self.command or [])


def _steps(text: str) -> list[Step]:
    steps: list[Step] = []
    held: list[str] = []
    start = 0
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            held += [""] * bool(held)
            continue
        start = start if held else number
        held.append(line.removesuffix("\\").rstrip())
        if line.endswith("\\"):
            continue
        name, _, rest = "\n".join(held).partition(" ")
        steps.append(Step(name.upper(), rest, start))
        held = []
        if len(steps) >= _MOST:
            break
    return steps


def _filled(text: str, arguments: dict[str, str]) -> str:
    """Put in the defaults of ARG; a variable without one stays as it is written."""
    return re.sub(r"\$\{?(\w+)\}?", lambda found: arguments.get(found[1]) or found[0], text)


def _variables(step: Step) -> dict[str, Word]:
    found = {}
    for match in _ASSIGN.finditer(step.text):
        value = "".join(part or "" for part in match.groups()[1:])
        line = step.line + step.text.count("\n", 0, match.start())
        found[match[1]] = Word(value, line, open="$" in value)
    if not found:
        name, _, value = step.text.strip().partition(" ")
        found = {name: Word(value.strip(), step.line, open="$" in value)}
    return found


def _words(step: Step) -> list[Word]:
    if step.text.lstrip().startswith("["):
        try:
            items = parse_json(step.text)
        except ValueError:
            items = None
        if isinstance(items, list):
            return [Word(str(item), step.line, open="$" in str(item), item=True) for item in items]
    return split_words(step.text.replace("\n", "\\\n"), step.line)
