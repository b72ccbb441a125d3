"""Reads shell scripts, docker run lines, systemd units and env files for the servers that they start."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from tuner.inspect.issue import Word
from tuner.inspect.read_compose import published, seconds
from tuner.inspect.server import Box, DockerRun, Found, Port, Server, docker_run, find_engine, in_container, parse_image
from tuner.inspect.shell import Command, Heredoc, Script, read_shell
from tuner.inspect.tree import Problem

_OWN = re.compile(r"^# Written by llmtune (?:[^\n]*\n#)+? engine +(vllm|trtllm) ", re.MULTILINE)
_VARIABLE_IN_PORT = re.compile(r"\$\{?\w+\}?")


class ReadScript(NamedTuple):
    """The servers of a script, its text as commands, and bodies of heredocs that may be files of their own."""

    servers: list[Server]
    script: Script
    documents: list[Heredoc]


def read_script(text: str, file: str, line: int = 1) -> ReadScript:
    """Read shell text. Never raises."""
    script = read_shell(text, line)
    servers: list[Server] = []
    documents: list[Heredoc] = []
    own = _OWN.search(text)
    for command in script.commands:
        servers += _servers(command, script, file, own[1] if own else None)
        for body in command.heredocs:
            program = command.words[0].text.rsplit("/", 1)[-1]
            inner = read_script(body.text, file, body.line) if program in ("bash", "sh", "ssh", "sudo") else None
            if inner is not None:
                servers += inner.servers
                documents += inner.documents
            else:
                documents.append(body)
    return ReadScript(servers, script, documents)


def _servers(command: Command, script: Script, file: str, own: str | None = None) -> list[Server]:
    run = docker_run(command.words)
    if run is not None:
        server = docker_server(run, file)
        return [server] if server is not None else []
    found = find_engine(command.words) or (_own_engine(command.words, own) if own else None)
    if found is None:
        return []
    env = {**script.exported, **command.env, **_env_words(found.before)}
    server = Server(file, found.start.text.rsplit("/", 1)[-1], found.start.line, "shell", found.engine, found.entry, [])
    server.args, server.env, server.before = found.args, env, found.before
    return [server]


def _own_engine(words: list[Word], engine: str) -> Found | None:
    """Find the server in a script of ours, whose engine may have any name: `exec PROGRAM [serve] ARGUMENTS`."""
    if len(words) < 2 or words[0].text != "exec":
        return None
    if engine == "trtllm":
        return Found(engine, "trtllm-serve", words[2:], words[1], [])
    return Found(engine, "serve", words[3:], words[1], []) if words[2].text == "serve" else None


def _env_words(words: list[Word]) -> dict[str, Word]:
    pairs = [(re.match(r"([A-Za-z_]\w*)=(.*)", word.text, re.DOTALL), word) for word in words]
    return {match[1]: word._replace(text=match[2]) for match, word in pairs if match}


def docker_server(run: DockerRun, file: str) -> Server | None:
    """Return the server that a `docker run` line starts; None when its image is no engine's."""
    if run.image is None:
        return None
    server = Server(file, "docker run", run.image.line, "docker", "", "", [])
    server.image = parse_image(run.image)
    for word in run.options.get("--env", []):
        name, equals, value = word.text.partition("=")
        if equals:
            server.env[name] = word._replace(text=value)
        else:
            server.passed.add(name)
    entrypoint = run.options.get("--entrypoint")
    if in_container(server, entrypoint, run.command) is None:
        return None
    server.box = _docker_box(run)
    return server


def _docker_box(run: DockerRun) -> Box:
    options = run.options
    box = Box(line=run.line)
    for word in options.get("--gpus", []):
        box.gpu_line = word.line
        box.gpus, box.gpu_open = _gpu_option(word)
    if box.gpus is None and any(word.text == "nvidia" for word in options.get("--runtime", [])):
        box.gpus, box.gpu_line = math.inf, options["--runtime"][0].line
    devices = " ".join(word.text for word in options.get("--device", []))
    if box.gpus is None and ("/dev/kfd" in devices or "/dev/dri" in devices or "nvidia" in devices):
        box.gpus, box.gpu_open = math.inf, True
    if any(word.text in ("host", "shareable") for word in options.get("--ipc", [])):
        box.shared_memory = "ipc"
    elif options.get("--shm-size"):
        box.shared_memory = options["--shm-size"][0].text
    for word in options.get("--volume", []):
        parts = _VARIABLE_IN_PORT.sub("VARIABLE", word.text).split(":")
        box.mounts += [word._replace(text=parts[1])] if len(parts) > 1 else []
    for word in options.get("--mount", []):
        target = re.search(r"(?:target|destination|dst)=([^,\"]+)", word.text)
        box.mounts += [word._replace(text=target[1])] if target else []
    host_network = any(word.text == "host" for word in [*options.get("--network", []), *options.get("--net", [])])
    box.ports = [] if host_network else _docker_ports(options.get("--publish", []))
    if options.get("--restart"):
        box.restart = options["--restart"][0]
    box.has_health = "--health-cmd" in options
    if box.has_health:
        box.startup_line = options["--health-cmd"][0].line
        box.startup_s = _number(options, "--health-start-period", 0) + _number(
            options, "--health-interval", 30
        ) * _count(options, "--health-retries", 3)
    box.reads_env_file = "--env-file" in options
    return box


def _docker_ports(words: list[Word]) -> list[Port]:
    return [port for word in words for port in published(word._replace(text=_VARIABLE_IN_PORT.sub("0", word.text)))]


def _number(options: dict[str, list[Word]], name: str, default: float) -> float:
    value = seconds(options[name][0].text) if name in options else None
    return default if value is None else value


def _count(options: dict[str, list[Word]], name: str, default: int) -> int:
    text = options[name][0].text if name in options else ""
    return int(text) if text.isdigit() else default


def _gpu_option(word: Word) -> tuple[float, bool]:
    text = word.text.strip("\"'")
    devices = re.search(r"device=([\w,.:-]+)", text)
    if devices:
        return float(len(devices[1].split(","))), False
    count = re.fullmatch(r"(?:count=)?(\d+)", text)
    if count:
        return float(count[1]), False
    return math.inf, word.open or text != "all"


class Unit(NamedTuple):
    """A systemd unit: (section, key, value, line) of each setting."""

    settings: list[tuple[str, str, Word]]
    problems: list[Problem]

    def of(self, key: str, section: str | None = None) -> list[Word]:
        """Return the values of a key."""
        return [word for where, name, word in self.settings if name == key and section in (None, where)]


def read_unit(text: str) -> Unit:
    """Read a systemd unit. Never raises."""
    unit = Unit([], [])
    section, waiting, start = "", "", 0
    for number, raw in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        line = waiting + raw.strip()
        if not waiting:
            start = number
        if line.endswith("\\"):
            waiting = line + "\n"
            continue
        waiting = ""
        if not line or line[0] in "#;":
            continue
        header = re.fullmatch(r"\[(\S+)\]", line)
        if header:
            section = header[1]
            continue
        key, equals, value = line.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z][\w-]*\s*", key):
            unit.problems.append(Problem(start, "neither a section nor a setting"))
            continue
        unit.settings.append((section, key.strip(), Word(value.strip(), start)))
    return unit


def unit_servers(unit: Unit, file: str) -> list[Server]:
    """Return the servers that a unit starts."""
    servers: list[Server] = []
    env: dict[str, Word] = {}
    for word in unit.of("Environment"):
        for command in read_shell(word.text, word.line).commands:
            env.update(_env_words(command.words))
        env.update({name: words[0] for name, words in read_shell(word.text, word.line).assigned.items() if words})
    for start in unit.of("ExecStart"):
        text = start.text.lstrip("@-:+!|")
        for command in read_shell(text, start.line).commands:
            for server in _servers(command, Script([], [], {}, {}), file):
                server.form = "docker" if server.form == "docker" else "systemd"
                if server.form == "systemd":
                    server.env = {**env, **server.env}
                    server.box = Box(start.line, reads_env_file=bool(unit.of("EnvironmentFile")))
                servers.append(server)
    return servers


def read_env_file(text: str) -> tuple[dict[str, Word], list[Problem]]:
    """Read KEY=value lines."""
    found: dict[str, Word] = {}
    problems: list[Problem] = []
    for number, raw in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        line = raw.strip().removeprefix("export ")
        if not line or line.startswith("#"):
            continue
        match = re.match(r"([A-Za-z_][\w.-]*)\s*=(.*)", line)
        if match is None:
            if "=" not in line and re.fullmatch(r"[A-Za-z_]\w*", line):
                continue
            problems.append(Problem(number, "neither a comment nor NAME=value"))
            continue
        value = re.sub(r"\s+#.*$", "", match[2].strip())
        found[match[1]] = Word(value.strip("\"'"), number)
    return found, problems
