"""Rules about a Compose file as a whole, and about services in their own words."""

from __future__ import annotations

import re
from itertools import pairwise

from tuner.inspect.issue import Edit, Report
from tuner.inspect.lint_environment import variable
from tuner.inspect.read_compose import compose_word, interpolated, seconds
from tuner.inspect.server import Server
from tuner.inspect.tree import Tree
from tuner.inspect.view import View

_RESTARTS = ("no", "always", "unless-stopped", "on-failure")
_JSON = ("{", "'", '"', "[")


def lint_compose(tree: Tree, services: list[tuple[str, Tree, View]], report: Report) -> None:
    """Check a Compose file; `services` are those that run an engine."""
    version = tree.at("version")
    if version.exists:
        report.warning(
            version.key_line,
            "compose-version",
            "the key `version` is obsolete; Compose ignores it with a warning",
            "take it out",
            edit=Edit(line=version.key_line, old="version", new=None),
        )
    project = tree.at("name")
    if project.text != project.text.lower() and "$" not in project.text:
        report.warning(
            project.line,
            "name-invalid",
            f"the project is called {project.text.lower()!r}: Compose makes names lower-case without a word",
            f"name: {project.text.lower()}",
        )
    engines = {name for name, _, _ in services}
    for name, service in tree.at("services").items():
        _any_service(name, service, engines, report)
    for name, service, view in services:
        _devices(name, service, report)
        _command(service, report)
        _stop(service, view, report)
    _shared_gpus(services, report)


def _any_service(name: str, service: Tree, engines: set[str], report: Report) -> None:
    for needed in service.at("depends_on").each():
        if needed.text in engines:
            report.warning(
                needed.line,
                "depends-on",
                f"{name} starts as soon as {needed.text} has been started, minutes before the model is loaded",
                f"depends_on: {{{needed.text}: {{condition: service_healthy}}}}, and a health check there",
            )
    restart = compose_word(service.at("restart"))
    if restart.text and not restart.open and restart.text.split(":")[0] not in _RESTARTS:
        report.error(
            restart.line,
            "restart-unknown",
            f"{name}: restart {restart.text!r} is no policy; Compose does not notice, the daemon does",
            f"one of: {', '.join(_RESTARTS)}",
        )
    condition = service.at("deploy", "restart_policy", "condition")
    if condition.text and "$" not in condition.text and condition.text not in ("none", "on-failure", "any"):
        report.error(
            condition.line,
            "restart-unknown",
            f"{name}: restart_policy {condition.text!r} is no condition",
            "one of: none, on-failure, any",
        )
    check = service.at("healthcheck")
    durations = {key: check.at(key) for key in ("interval", "timeout", "start_period", "start_interval")}
    for key, node in {**durations, "stop_grace_period": service.at("stop_grace_period")}.items():
        if node.exists and "$" not in node.text and seconds(node.text) is None:
            report.error(node.line, "duration-unit", f"{name}: {key} {node.text!r} has no unit", f"write {node.text}s")
    if name not in engines:
        for key, value in service.at("environment").items():
            variable(key, compose_word(value)._replace(line=value.key_line), report)
        for item in service.at("environment").each():
            key, _, text = item.text.partition("=")
            variable(key, interpolated(text, item.line), report)


def _devices(name: str, service: Tree, report: Report) -> None:
    for device in service.at("deploy", "resources", "reservations", "devices").each():
        count, ids = device.at("count"), device.at("device_ids")
        if not device.at("capabilities").is_list:
            report.error(
                device.line,
                "gpu-capabilities",
                f"{name}: the device has no list of capabilities",
                "capabilities: [gpu]",
            )
        if count.exists and ids.exists:
            report.error(
                device.line, "gpu-count-twice", f"{name}: count and device_ids exclude one another", "keep one of them"
            )
        elif not count.exists and not ids.exists and device.at("capabilities").exists:
            report.warning(
                device.line,
                "gpu-count-missing",
                f"{name}: neither count nor device_ids: how many GPUs the server gets is left to the runtime",
                "add count (as many as tensor x pipeline x data parallel ranks), or device_ids",
            )
        for item in ids.each():
            word = compose_word(item)
            if "," in word.text:
                report.warning(
                    item.line,
                    "gpu-ids-joined",
                    f"{name}: {word.text!r} is one element; Docker's NVIDIA runtime happens to split it, others do not",
                    "one list element an id",
                )
            elif not item.is_quoted and isinstance(item.value, int):
                report.error(item.line, "gpu-ids-number", f"{name}: device ids are texts", f'write "{item.text}"')
    if service.at("runtime").text == "nvidia":
        report.note(
            service.at("runtime").line,
            "gpu-runtime",
            f"{name}: `runtime: nvidia` works only where the daemon knows that runtime",
            "reserve devices under deploy.resources, or use `gpus: all`",
        )


def _command(service: Tree, report: Report) -> None:
    command = service.at("command")
    plain = re.sub(r"\$\{[^}]*\}", "", command.text)
    if any(mark in plain for mark in _JSON):
        report.warning(
            command.line,
            "command-string",
            "the command is one string and holds quotes or braces, which are split again on the way to the engine",
            "write it as a list, JSON values as one element each",
        )
    elif command.text:
        report.note(
            command.line, "command-string", "the command is one string; a list keeps each argument apart", "use a list"
        )


def _stop(service: Tree, view: View, report: Report) -> None:
    wait = view.arguments.count("shutdown-timeout")
    grace = seconds(service.at("stop_grace_period").text or "10s")
    if wait is not None and grace is not None and grace < wait + 15:
        report.warning(
            service.at("stop_grace_period").line,
            "grace-short",
            f"the container is killed after {grace:.0f} s, but --shutdown-timeout is {wait} s",
            f"stop_grace_period: {wait + 15}s",
        )


def _shared_gpus(services: list[tuple[str, Tree, View]], report: Report) -> None:
    """Servers that reserve the same GPU share its memory; the shares must not exceed one."""
    by_device: dict[str, list[tuple[str, Server, float]]] = {}
    for name, service, view in services:
        share = view.arguments.values.get("gpu-memory-utilization")
        default = 0.92 if view.at_least("0.20.0") else 0.9
        used = float(share) if isinstance(share, (int, float)) else default
        for device in service.at("deploy", "resources", "reservations", "devices").each():
            ids = [part for item in device.at("device_ids").each() for part in compose_word(item).text.split(",")]
            for place in ids or (["0"] if not service.at("profiles").exists else []):
                by_device.setdefault(place, []).append((name, view.server, used))
    for place, users in by_device.items():
        total = sum(used for _, _, used in users)
        names = [name for name, _, _ in users]
        if len(set(names)) > 1 and total > 1 and all(a != b for a, b in pairwise(names)):
            report.warning(
                users[-1][1].box.gpu_line if users[-1][1].box else users[-1][1].line,
                "gpu-shared",
                f"{', '.join(names)} can land on the same GPU ({place}) and ask for {total:.2f} of its memory together",
                "give each its own device_ids, or shares that add up to less than 0.95",
            )
