"""compose.yaml: one service, pinned, with its health check sized from the measured start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.domain.plan import Plan
from tuner.output.container import HUB_TOKEN, TOKEN_FILE, Container, container, container_refusal
from tuner.output.header import header_lines
from tuner.output.quoting import comment, dump_yaml

_HUB_VOLUME = "hf-cache"
_ENGINE_VOLUME = "engine-cache"


class ComposeEmitter:
    """Docker Compose, for `docker compose up`. Nothing is emitted for a plan without an image."""

    name = "compose"
    summary = "the server as a Docker Compose service"

    def refusal(self, plan: Plan) -> str | None:
        """Say what a container needs and the plan lacks."""
        return container_refusal(plan)

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return `compose.yaml`, or nothing."""
        box = container(plan)
        if box is None:
            return {}
        head = "\n".join(comment(line) for line in (*header_lines(plan), *_usage(box)))
        return {"compose.yaml": f"{head}\n{dump_yaml(document(box))}"}


def document(box: Container) -> dict[str, Any]:
    """Return the compose document of a container."""
    services = {_numbered("server", index): _service(box, index) for index in range(box.replicas)}
    result: dict[str, Any] = {"name": box.name, "services": services}
    volumes: dict[str, Any] = {
        _numbered(_ENGINE_VOLUME, index): {"name": _numbered(box.engine_cache[0], index)}
        for index in range(box.replicas)}
    if box.hub_cache:
        volumes = {_HUB_VOLUME: {"name": f"llmtune-{_HUB_VOLUME}"}, **volumes}
    result["volumes"] = volumes
    if box.hub_token:
        result["secrets"] = {"hf_token": {"environment": HUB_TOKEN}}
    return result


def escape(text: str) -> str:
    """Keep Compose from reading `$` as a variable."""
    return text.replace("$", "$$")


def unescape(text: str) -> str:
    """Undo `escape`."""
    return text.replace("$$", "$")


def _numbered(name: str, index: int) -> str:
    """Return the name of the first replica as it is, and those of the others with their number."""
    return f"{name}-{index}" if index else name


def _service(box: Container, index: int) -> dict[str, Any]:
    service: dict[str, Any] = {"image": escape(box.image)}
    if box.entrypoint:
        service["entrypoint"] = [escape(word) for word in box.entrypoint]
    service["command"] = [escape(word) for word in box.command]
    environment: dict[str, str | None] = {name: escape(value) for name, value in box.env.items()}
    environment.update(dict.fromkeys(box.pass_env))
    if box.hub_token:
        environment["HF_TOKEN_PATH"] = TOKEN_FILE
    if environment:
        service["environment"] = environment
    if box.hub_token:
        service["secrets"] = ["hf_token"]
    variable = f"LLMTUNE_PORT_{index}" if index else "LLMTUNE_PORT"
    service["ports"] = [f"${{LLMTUNE_BIND:-127.0.0.1}}:${{{variable}:-{box.port + index}}}:{box.port}"]
    service["volumes"] = _mounts(box, index)
    if box.shared_memory:
        service["ipc"] = "host"
    if box.ulimits:
        service["ulimits"] = box.ulimits
    if box.devices:
        first = index * box.devices
        which: dict[str, Any] = {"count": box.devices} if box.replicas == 1 else {
            "device_ids": [str(number) for number in range(first, first + box.devices)]}
        reserved = {"driver": "nvidia", **which, "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [reserved]}}}
    service["healthcheck"] = {
        "test": ["CMD", "curl", "-f", "-sS", escape(box.health_url)],
        "interval": "10s",
        "timeout": "10s",
        "retries": 6,
        "start_period": f"{box.start_period_s}s",
    }
    service["restart"] = "on-failure:3"
    service["stop_grace_period"] = f"{box.stop_grace_s}s"
    return service


def _mounts(box: Container, index: int) -> list[Any]:
    mounts: list[Any] = []
    if box.model_target:
        source = "${MODEL_DIR:?set MODEL_DIR to the directory of the model}"
        mounts.append({"type": "bind", "source": source, "target": box.model_target, "read_only": True})
    for name, target in box.files:
        mounts.append({"type": "bind", "source": f"./{name}", "target": target, "read_only": True})
    if box.hub_cache:
        mounts.append(f"${{LLMTUNE_HF_CACHE:-{_HUB_VOLUME}}}:{box.hub_cache}")
    mounts.append(f"{_numbered(_ENGINE_VOLUME, index)}:{box.engine_cache[1]}")
    return mounts


def _usage(box: Container) -> tuple[str, ...]:
    lines = ["", "Start: docker compose up --detach --wait     Stop: docker compose down"]
    if box.model_target or box.hub_token:
        lines.append("Variables: copy .env.example to .env and fill it in. Changes belong in compose.override.yaml.")
    else:
        lines.append("Variables: see .env.example. Changes belong in compose.override.yaml.")
    if box.replicas > 1:
        last = box.replicas - 1
        lines.append(f"{box.replicas} servers with GPUs and ports of their own, {box.port} to {box.port + last}, or "
                     f"LLMTUNE_PORT, LLMTUNE_PORT_1 to LLMTUNE_PORT_{last}: spread requests over all of them.")
    return tuple(lines)
