"""Reads Compose files: the services that run an engine, and what their containers give them."""

from __future__ import annotations

import math
import re

from tuner.inspect.issue import Word
from tuner.inspect.server import Box, Port, Server, in_container, parse_image
from tuner.inspect.shell import split_words
from tuner.inspect.tree import Tree

_VARIABLE = re.compile(r"\$(?:\$|([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:?[-?+])((?:[^{}]|\{[^{}]*\})*))?\})")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s|us|ns)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "ns": 1e-9}


def is_compose(tree: Tree) -> bool:
    """Whether a YAML document is a Compose file."""
    return tree.at("services").is_map


def compose_word(node: Tree, *, item: bool = False) -> Word:
    """Return a scalar with its variables replaced by their defaults."""
    return interpolated(node.text, node.line, item=item)


def interpolated(text: str, line: int, *, item: bool = False) -> Word:
    """Replace `${VAR:-default}` as Compose does; what has no default stays, and the word is open."""
    is_open = is_default = False

    def value(match: re.Match[str]) -> str:
        nonlocal is_open, is_default
        if match[0] == "$$":
            return "$"
        if match[3] in ("-", ":-"):
            inner = interpolated(match[4] or "", line)
            is_default = True
            is_open = is_open or inner.open or not inner.text
            return inner.text
        is_open = True
        return match[0]

    return Word(_VARIABLE.sub(value, text), line, is_open, is_default, (), item)


def seconds(text: str) -> float | None:
    """Read a duration such as `1m30s`; None when it is none."""
    found = _DURATION.findall(text)
    if not found or _DURATION.sub("", text).strip():
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in found)


def read_compose(tree: Tree, file: str) -> list[tuple[str, Tree, Server]]:
    """Return the services that run an engine: (name, service, server)."""
    found: list[tuple[str, Tree, Server]] = []
    for name, service in tree.at("services").items():
        image = service.at("image")
        server = Server(file, f"service {name}", service.key_line, "compose", "", "", [])
        server.image = parse_image(compose_word(image)) if image.exists else None
        read_environment(service.at("environment"), server)
        server.box = _box(service, server)
        entrypoint = service.at("entrypoint")
        words = command_words(service.at("command"))
        if in_container(server, command_words(entrypoint) if entrypoint.exists else None, words) is not None:
            found.append((name, service, server))
    return found


def command_words(node: Tree) -> list[Word]:
    """Return a command's words: elements of a list as they are, a text split like a shell does."""
    if node.is_list:
        return [compose_word(item, item=True) for item in node.each() if not (item.is_map or item.is_list)]
    if not node.text:
        return []
    word = compose_word(node)
    return [part._replace(open=part.open or "${" in part.text) for part in split_words(word.text, node.line)]


def read_environment(node: Tree, server: Server) -> None:
    """Read `environment`, written as a mapping or as a list of KEY=value."""
    for key, value in node.items():
        if value.exists:
            server.env[key] = compose_word(value)._replace(line=value.key_line)
        else:
            server.passed.add(key)
    for item in node.each():
        key, equals, text = item.text.partition("=")
        if equals:
            server.env[key] = interpolated(text, item.line)
        elif key:
            server.passed.add(key)


def _box(service: Tree, server: Server) -> Box:
    box = Box(line=service.key_line)
    _gpus(service, box, server)
    if service.at("ipc").text in ("host", "shareable") or service.at("ipc").text.startswith(("service:", "container:")):
        box.shared_memory = "ipc"
    elif service.at("shm_size").exists:
        box.shared_memory = service.at("shm_size").text
    for volume in service.at("volumes").each():
        box.mounts += _mounts(volume)
    for mount in service.at("tmpfs").each():
        if mount.text.startswith("/dev/shm"):  # noqa: S108  (a path in a file that is read)
            box.shared_memory = "tmpfs"
    for port in service.at("ports").each():
        box.ports += _ports(port)
    if service.at("network_mode").text == "host":
        box.ports = []
    if service.at("restart").exists:
        box.restart = compose_word(service.at("restart"))
    box.reads_env_file = service.at("env_file").exists
    _health(service.at("healthcheck"), box)
    return box


def _gpus(service: Tree, box: Box, server: Server) -> None:
    devices = [*service.at("deploy", "resources", "reservations", "devices").each(), *service.at("gpus").each()]
    for device in devices:
        capabilities = [item.text for item in device.at("capabilities").each()]
        if "gpu" not in capabilities and device.at("driver").text != "nvidia" and not service.at("gpus").is_list:
            continue
        box.gpu_line = device.line
        count, ids = device.at("count"), device.at("device_ids")
        if ids.exists:
            texts = [compose_word(item) for item in ids.each()]
            box.gpus = (box.gpus or 0) + sum(len(word.text.split(",")) for word in texts)
            box.gpu_open = box.gpu_open or any(word.open for word in texts)
        elif count.exists and count.text != "all":
            word = compose_word(count)
            box.gpu_open = word.open or not word.text.isdigit()
            box.gpus = (box.gpus or 0) + (int(word.text) if word.text.isdigit() else 0)
        else:
            box.gpus = math.inf
    if service.at("gpus").text == "all":
        box.gpus, box.gpu_line = math.inf, service.at("gpus").line
    if box.gpus is None and service.at("runtime").text == "nvidia":
        visible = server.env.get("NVIDIA_VISIBLE_DEVICES")
        box.gpu_line = service.at("runtime").line
        box.gpus = math.inf if visible is None or visible.text == "all" else float(len(visible.text.split(",")))
        box.gpu_open = visible is not None and visible.open
    if any("/dev/kfd" in item.text or "/dev/dri" in item.text for item in service.at("devices").each()):
        box.gpus, box.gpu_open = box.gpus or 0, True


def _mounts(volume: Tree) -> list[Word]:
    if volume.is_map:
        return [compose_word(volume.at("target"))] if volume.at("target").exists else []
    word = compose_word(volume)
    parts = re.split(r":(?!\\)", re.sub(r"\$\{[^}]*\}", "VARIABLE", word.text))
    return [word._replace(text=parts[1])] if len(parts) > 1 else []


def _ports(port: Tree) -> list[Port]:
    if port.is_map:
        inside = compose_word(port.at("target")).text
        host = port.at("host_ip").text
        return [Port(host, int(inside), port.line)] if inside.isdigit() else []
    return published(compose_word(port))


def published(word: Word) -> list[Port]:
    """Read `[host:]port:port[/tcp]`."""
    match = re.fullmatch(r"(?:(.*):)?([^:]*):(\d+)(?:/tcp)?", word.text.strip())
    return [Port(match[1] or "", int(match[3]), word.line)] if match else []


def _health(check: Tree, box: Box) -> None:
    if not check.exists or check.at("disable").value is True or [i.text for i in check.at("test").each()] == ["NONE"]:
        return
    box.has_health = True
    box.startup_line = check.at("start_period").line if check.at("start_period").exists else check.line
    period = seconds(compose_word(check.at("start_period")).text) or 0.0
    interval = seconds(compose_word(check.at("interval")).text or "30s") or 30.0
    retries = check.at("retries").number() or 3
    box.startup_s = period + interval * retries
