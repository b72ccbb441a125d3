"""Values of the wrong kind, which the tool that a file is for refuses: a list where a mapping stands, a bare number.

Kinds are those of the Compose specification and of the Kubernetes API. Only what a server's start depends on is looked
at; templates and values that are null are left alone.
"""

from __future__ import annotations

from tuner.inspect.issue import Edit, Report
from tuner.inspect.read_kubernetes import objects, pod_paths, pod_specs
from tuner.inspect.tree import Tree

MAP, LIST, TEXT, SCALAR = "a mapping", "a list", "text", "a single value"
_COMPOSE: dict[str, tuple[str, ...]] = {
    "image": (TEXT,),
    "command": (TEXT, LIST),
    "entrypoint": (TEXT, LIST),
    "environment": (MAP, LIST),
    "env_file": (TEXT, LIST),
    "ports": (LIST,),
    "volumes": (LIST,),
    "devices": (LIST,),
    "deploy": (MAP,),
    "healthcheck": (MAP,),
    "depends_on": (MAP, LIST),
    "ulimits": (MAP,),
    "ipc": (TEXT,),
    "shm_size": (SCALAR,),
    "network_mode": (TEXT,),
}
_CONTAINER: dict[str, tuple[str, ...]] = {
    "name": (TEXT,),
    "image": (TEXT,),
    "command": (LIST,),
    "args": (LIST,),
    "env": (LIST,),
    "ports": (LIST,),
    "volumeMounts": (LIST,),
    "resources": (MAP,),
    "livenessProbe": (MAP,),
    "readinessProbe": (MAP,),
    "startupProbe": (MAP,),
}
_OF_TEXT = ("command", "entrypoint", "args")
"""Lists whose every element is text."""


def lint_compose_form(tree: Tree, report: Report) -> None:
    """Check a document that has `services`."""
    form = _Form(report, booleans=("true", "false"))
    services = tree.at("services")
    form.needs(services, "services", (MAP,))
    for name, service in services.items():
        if form.needs(service, f"service {name}", (MAP,)):
            form.fields(service, f"service {name}", _COMPOSE)


def lint_pod_form(trees: list[Tree], report: Report) -> None:
    """Check the parts of Kubernetes objects that lead to their containers, and the containers."""
    form = _Form(report, booleans=("true", "false", "yes", "no", "on", "off"))
    for item in objects(trees):
        owner = f"{item.at('kind').text} {item.at('metadata', 'name').text}".strip()
        form.needs(item.at("metadata"), f"{owner}: metadata", (MAP,))
        if not pod_paths(item):
            continue
        for path in (("spec",), ("spec", "template"), ("spec", "template", "spec"), ("spec", "leaderWorkerTemplate")):
            form.needs(item.at(*path), f"{owner}: {'.'.join(path)}", (MAP,))
        for spec in pod_specs(item):
            for group in ("containers", "initContainers"):
                form.needs(spec.at(group), f"{owner}: {group}", (LIST,))
                for container in spec.at(group).each():
                    _container(form, container, owner)


def _container(form: _Form, container: Tree, owner: str) -> None:
    if not form.needs(container, f"{owner}: each container", (MAP,)):
        return
    name = f"{owner}, container {container.at('name').text}"
    form.fields(container, name, _CONTAINER)
    for entry in container.at("env").each():
        if form.needs(entry, f"{name}: each variable", (MAP,)):
            form.needs(entry.at("value"), f"{name}: the value of {entry.at('name').text}", (TEXT,))


class _Form:
    """Says what is not of the kind that it must be. `booleans` are the bare words that the file's tool takes as such.

    Compose reads YAML 1.2, in which `yes` and `no` are text; Kubernetes reads YAML 1.1, in which they are not.
    """

    def __init__(self, report: Report, *, booleans: tuple[str, ...]) -> None:
        self._report = report
        self._booleans = booleans

    def fields(self, node: Tree, owner: str, kinds: dict[str, tuple[str, ...]]) -> None:
        for key, wanted in kinds.items():
            value = node.at(key)
            if self.needs(value, f"{owner}: {key}", wanted) and key in _OF_TEXT:
                for item in value.each():
                    self.needs(item, f"{owner}: each element of {key}", (TEXT,))

    def needs(self, node: Tree, what: str, wanted: tuple[str, ...]) -> bool:
        """Whether the node is of a wanted kind, or not there; says so where it is not."""
        kind = self._kind(node)
        if not node.exists or kind in wanted or (SCALAR in wanted and kind not in (MAP, LIST)):
            return True
        in_quotes = TEXT in wanted and kind not in (MAP, LIST)
        self._report.error(
            node.line,
            "yaml-type",
            f"{what} must be {' or '.join(wanted)}, but {f'{node.text!r} is {kind}' if node.text else f'is {kind}'}",
            f'write "{node.text}"' if in_quotes else f"give {wanted[0]}",
            edit=Edit(line=node.line, old=node.text, new=f'"{node.text}"') if in_quotes else None,
        )
        return False

    def _kind(self, node: Tree) -> str:
        if node.is_map:
            return MAP
        if node.is_list:
            return LIST
        if isinstance(node.value, bool) and node.text.lower() in self._booleans:
            return "a boolean"
        return "a number" if isinstance(node.value, (int, float)) and not isinstance(node.value, bool) else TEXT
