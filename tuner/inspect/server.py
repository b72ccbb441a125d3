"""A server as a file starts it: which engine, which image and version, which arguments, what its container gives it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from tuner.inspect.issue import Word
from tuner.inspect.shell import read_shell, split_words

MODULE = "vllm.entrypoints.openai.api_server"
_MODULES = (MODULE, "vllm.entrypoints.api_server")
_SHELLS = ("bash", "sh", "zsh", "dash", "ash")
_TAG_VERSION = re.compile(r"(?:^|[^\d.])v?(\d+\.\d+\.\d+(?:\.post\d+|\.?(?:rc|a|b|dev)\d+)*)")
_ENGINES = (
    ("trtllm", re.compile(r"tensorrt[-_]?llm|trtllm")),
    ("llama.cpp", re.compile(r"llama[.-]?cpp|llama-server")),
    ("sglang", re.compile(r"sglang")),
    ("tgi", re.compile(r"text-generation-inference")),
    ("vllm", re.compile(r"vllm")),
)
_OFFICIAL = re.compile(r"^(?:.*/)?vllm-openai(?:-\w+)?$")
_PROGRAMS = {"llama-server": "llama.cpp", "text-generation-launcher": "tgi"}
_TALKERS = {"command", "which", "type", "hash", "echo", "printf", "grep", "pgrep", "pkill", "killall", "[", "[["}
_DOCKER_SWITCHES = {
    "--detach", "--interactive", "--tty", "--rm", "--init", "--privileged", "--read-only", "--publish-all", "--quiet",
    "--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--disable-content-trust", "--help",
}  # fmt: skip
_DOCKER_SHORT = {
    "-p": "--publish", "-v": "--volume", "-e": "--env", "-w": "--workdir", "-u": "--user", "-m": "--memory",
    "-h": "--hostname", "-l": "--label", "-c": "--cpu-shares", "-a": "--attach",
}  # fmt: skip


class Image(NamedTuple):
    """An image's name taken apart."""

    word: Word
    repository: str
    tag: str | None
    digest: str | None

    @property
    def engine(self) -> str:
        """The engine that the name speaks of, or nothing."""
        name = self.repository.lower()
        return next((engine for engine, pattern in _ENGINES if pattern.search(name)), "")

    @property
    def is_official(self) -> bool:
        """Whether it is the image that vLLM publishes, whose entry point is known."""
        return _OFFICIAL.match(self.repository) is not None

    @property
    def version(self) -> str | None:
        """The engine version that the tag names."""
        match = _TAG_VERSION.search(self.tag or "")
        return match[1] if match else None

    @property
    def is_cpu(self) -> bool:
        """Whether the image holds a build for CPUs."""
        return "cpu" in self.repository.rsplit("/", 1)[-1] or "cpu" in (self.tag or "")


class Port(NamedTuple):
    """A published port: `host` is the address it is bound to (empty: all), `inside` the port in the container."""

    host: str
    inside: int
    line: int


@dataclass
class Box:
    """What the container or unit around a server gives it. None: the file does not say."""

    line: int
    gpus: float | None = None
    """GPUs that are reserved; infinity for all of them."""
    gpu_line: int = 0
    gpu_open: bool = False
    shared_memory: str | None = None
    mounts: list[Word] = field(default_factory=list)
    """Paths inside the container that outlive it."""
    ports: list[Port] = field(default_factory=list)
    restart: Word | None = None
    startup_s: float | None = None
    startup_line: int = 0
    has_health: bool = False
    pods: int = 1
    """Containers that together make one server (LeaderWorkerSet)."""
    reads_env_file: bool = False


@dataclass
class Server:
    """One engine command. `entry`: serve, module, image (the entry point of the image), config or trtllm-serve."""

    file: str
    name: str
    line: int
    form: str
    engine: str
    entry: str
    args: list[Word]
    env: dict[str, Word] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    """Variables passed on by name, without a value in the file."""
    image: Image | None = None
    box: Box | None = None
    repeated: Word | None = None
    before: list[Word] = field(default_factory=list)
    """Words in front of the engine's own, e.g. those of mpirun."""

    @property
    def in_container(self) -> bool:
        """Whether the file starts it in a container."""
        return self.form in ("compose", "kubernetes", "docker")


def parse_image(word: Word) -> Image:
    """Take an image's name apart: repository, tag, digest."""
    text, _, digest = word.text.partition("@")
    head, slash, last = text.rpartition("/")
    name, _, tag = last.partition(":")
    return Image(word, f"{head}{slash}{name}", tag or None, digest or None)


class Found(NamedTuple):
    """An engine's own words inside a longer command."""

    engine: str
    entry: str
    args: list[Word]
    start: Word
    before: list[Word]


def find_engine(words: list[Word], depth: int = 0) -> Found | None:
    """Find the words of an engine command in a command, also behind `sh -c`."""
    if words and words[0].text in _TALKERS:
        return None
    for index, word in enumerate(words):
        found = _engine_at(words, index)
        if found is None and depth < 3 and re.search(r"\s", word.text) and _could_hold_command(words[:index]):
            found = find_in_text(word, depth + 1)
        if found is not None:
            return found
    return None


def _engine_at(words: list[Word], index: int) -> Found | None:
    word = words[index]
    name = word.text.rsplit("/", 1)[-1]
    following = words[index + 1].text if index + 1 < len(words) else ""
    before, after = words[:index], words[index + 1 :]
    if word.text == "serve" and index and _is_program(words[index - 1]):
        return Found("vllm", "serve", after, words[index - 1], words[: index - 1])
    if word.text == "-m" and following in _MODULES:
        return Found("vllm", "module", words[index + 2 :], words[index + 1], before)
    if name in ("trtllm-serve", "trtllm-build"):
        return Found("trtllm", name, after, word, before)
    if name in _PROGRAMS or (name == "sglang.launch_server" and index):
        return Found(_PROGRAMS.get(name, "sglang"), "serve", after, word, before)
    return None


def _is_program(word: Word) -> bool:
    name = word.text.rsplit("/", 1)[-1]
    return "vllm" in name.lower() or "VLLM" in word.text or (word.default and "llm" in name)


def _could_hold_command(words: list[Word]) -> bool:
    return any(word.text.rsplit("/", 1)[-1] in (*_SHELLS, "ssh", "tmux", "screen", "srun", "eval") for word in words)


def find_in_text(word: Word, depth: int = 0) -> Found | None:
    """Find an engine command in shell text that is one word of another command."""
    for command in read_shell(word.text, word.line).commands:
        found = find_engine(command.words, depth)
        if found is not None:
            return found
    return None


def in_container(
    server: Server, entrypoint: list[Word] | None, command: list[Word], *, replaces: bool = False
) -> Server | None:
    """Fill in what a container of `server.image` runs; None when it is no engine's.

    `replaces`: the command takes the place of the image's entry point (Kubernetes `command`).
    """
    image = server.image
    words = [*(entrypoint or []), *command]
    found = find_engine(_split_items(words))
    known_entry = image is not None and image.is_official and not entrypoint and not replaces
    if found is not None:
        server.engine, server.entry, server.args = found.engine, found.entry, found.args
        server.before = found.before
        if known_entry and found.engine == "vllm":
            server.repeated = words[0]
        return server
    if image is None or not image.engine or (entrypoint and not _passes_on(entrypoint)) or replaces:
        return None
    server.engine, server.entry, server.args = image.engine, "image", list(command)
    if known_entry and command and command[0].text in ("serve", "vllm"):
        server.repeated, server.args = command[0], command[1:]
    return server


def _passes_on(entrypoint: list[Word]) -> bool:
    return any("vllm" in word.text for word in entrypoint)


def _split_items(words: list[Word]) -> list[Word]:
    """Split list elements that hold a whole engine command, so that the command is still found."""
    done: list[Word] = []
    for word in words:
        if word.item and re.match(r"^\s*(?:vllm serve|python3? -m vllm|trtllm-serve) ", word.text):
            done += split_words(word.text, word.line)
        else:
            done.append(word)
    return done


class DockerRun(NamedTuple):
    """A `docker run` line: options by their long names, the image and what follows it."""

    options: dict[str, list[Word]]
    image: Word | None
    command: list[Word]
    line: int


def docker_run(words: list[Word]) -> DockerRun | None:
    """Read a `docker run` (or podman, nerdctl) command; None when it is none."""
    for index, word in enumerate(words[:-1]):
        program = word.text.rsplit("/", 1)[-1]
        following = [item.text for item in words[index + 1 : index + 3]]
        if program in ("docker", "podman", "nerdctl", "nvidia-docker") and following:
            skip = 2 if following[0] in ("run", "create") else 3 if following[:2] == ["container", "run"] else 0
            if skip:
                return _docker_words(words[index + skip :], word.line)
    return None


def _docker_words(words: list[Word], line: int) -> DockerRun:
    options: dict[str, list[Word]] = {}
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        text = word.text
        if not text.startswith("-") or text == "-":
            return DockerRun(options, word, words[position:], line)
        name, equals, value = text.partition("=")
        if not name.startswith("--"):
            short = name[:2]
            if short not in _DOCKER_SHORT:
                continue
            value = text[2:].removeprefix("=")
            name, equals = _DOCKER_SHORT[short], value
        if name in _DOCKER_SWITCHES and not equals:
            options.setdefault(name, []).append(word)
        elif equals:
            options.setdefault(name, []).append(word._replace(text=value))
        elif position < len(words):
            options.setdefault(name, []).append(words[position])
            position += 1
    return DockerRun(options, None, [], line)
