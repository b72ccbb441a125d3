"""Reads Kubernetes manifests: the pods that run an engine, the services and scalers around them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from tuner.inspect.issue import Word
from tuner.inspect.server import Box, Port, Server, in_container, parse_image
from tuner.inspect.tree import Tree

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/xe", "gpu.intel.com/i915", "habana.ai/gaudi")
_POD_AT: dict[str, tuple[tuple[str, ...], ...]] = {
    "Pod": (("spec",),),
    "LeaderWorkerSet": (
        ("spec", "leaderWorkerTemplate", "leaderTemplate", "spec"),
        ("spec", "leaderWorkerTemplate", "workerTemplate", "spec"),
    ),
    "CronJob": (("spec", "jobTemplate", "spec", "template", "spec"),),
}
_TEMPLATED = ("Deployment", "StatefulSet", "DaemonSet", "Job", "ReplicaSet", "Rollout")
_SUFFIXES = {
    "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "m": 1e-3,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50,
}  # fmt: skip
_QUANTITY = re.compile(r"^([+-]?\d+(?:\.\d*)?)(?:e\d+)?([A-Za-z]*)$")


@dataclass
class Pod:
    """One pod template that runs an engine, the object that owns it, and the container."""

    owner: Tree
    spec: Tree
    container: Tree
    server: Server

    @property
    def kind(self) -> str:
        """Kind of the owner."""
        return self.owner.at("kind").text

    @property
    def name(self) -> str:
        """Name of the owner."""
        return self.owner.at("metadata", "name").text

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the pods."""
        template = self.owner.at("spec", "template", "metadata", "labels")
        node = template if template.is_map else self.owner.at("metadata", "labels")
        return {key: value.text for key, value in node.items()}

    @property
    def is_patch(self) -> bool:
        """Whether this is a part of an object that a kustomization merges into another file's."""
        return self.kind in ("Deployment", "StatefulSet") and not self.owner.at("spec", "selector").exists

    @property
    def replicas(self) -> float:
        """Pods of the owner."""
        return self.owner.at("spec", "replicas").number() or 1


def is_manifest(tree: Tree) -> bool:
    """Whether a YAML document is a Kubernetes object."""
    return tree.at("kind").exists and tree.at("apiVersion").exists


def objects(trees: list[Tree]) -> list[Tree]:
    """Return the objects of all documents; the items of a List count one by one."""
    found: list[Tree] = []
    for tree in trees:
        if is_manifest(tree):
            found += tree.at("items").each() if tree.at("kind").text == "List" else [tree]
    return found


def pod_paths(owner: Tree) -> tuple[tuple[str, ...], ...]:
    """Return where the pod specs of an object of this kind stand; nowhere for kinds that run nothing."""
    kind = owner.at("kind").text
    return _POD_AT.get(kind, (("spec", "template", "spec"),) if kind in _TEMPLATED else ())


def pod_specs(owner: Tree) -> list[Tree]:
    """Return the pod specs of an object."""
    return [spec for path in pod_paths(owner) if (spec := owner.at(*path)).exists]


def quantity(text: str) -> float | None:
    """Read a Kubernetes quantity such as `16Gi`; None when it is none."""
    match = _QUANTITY.match(text.strip())
    return float(match[1]) * _SUFFIXES[match[2]] if match and match[2] in _SUFFIXES else None


def read_pods(trees: list[Tree], file: str) -> list[Pod]:
    """Return the containers that run an engine."""
    pods: list[Pod] = []
    for owner in objects(trees):
        for spec in pod_specs(owner):
            for container in spec.at("containers").each():
                server = _server(owner, spec, container, file)
                if server is not None:
                    pod = Pod(owner, spec, container, server)
                    if pod.is_patch:
                        server.box = None
                    pods.append(pod)
    return pods


def _server(owner: Tree, spec: Tree, container: Tree, file: str) -> Server | None:
    kind, name = owner.at("kind").text, owner.at("metadata", "name").text
    server = Server(file, f"{kind} {name}", container.line, "kubernetes", "", "", [])
    image = container.at("image")
    server.image = parse_image(_word(image)) if image.exists else None
    for entry in container.at("env").each():
        key, value = entry.at("name").text, entry.at("value")
        if value.exists:
            server.env[key] = _word(value)
        else:
            server.passed.add(key)
    command, args = _words(container.at("command"), server), _words(container.at("args"), server)
    has_command = container.at("command").exists
    if in_container(server, command if has_command else None, args, replaces=has_command) is None:
        return None
    server.box = _box(owner, spec, container)
    return server


def _word(node: Tree, *, item: bool = False) -> Word:
    return Word(node.text, node.line, item=item)


def _words(node: Tree, server: Server) -> list[Word]:
    """Return a command's words; `$(NAME)` takes the value that the container's environment gives it."""
    words = []
    for item in node.each():
        is_open = False

        def value(match: re.Match[str]) -> str:
            nonlocal is_open
            known = server.env.get(match[1])
            is_open = is_open or known is None
            return known.text if known else match[0]

        text = re.sub(r"\$\(([A-Za-z_]\w*)\)", value, item.text)
        words.append(Word(text, item.line, is_open, item=True))
    return words


def _box(owner: Tree, spec: Tree, container: Tree) -> Box:
    box = Box(line=container.line)
    for where in ("limits", "requests"):
        for key, node in container.at("resources", where).items():
            if (key in GPU_RESOURCES or key.startswith("nvidia.com/mig-")) and box.gpus is None:
                count = node.number()
                box.gpus, box.gpu_line, box.gpu_open = count or 0, node.line, count is None
    claims = container.at("resources", "claims").exists or spec.at("resourceClaims").exists
    if box.gpus is None and (claims or spec.at("runtimeClassName").exists):
        box.gpus, box.gpu_open, box.gpu_line = math.inf, True, container.line
    volumes = {volume.at("name").text: volume for volume in spec.at("volumes").each()}
    for mount in container.at("volumeMounts").each():
        volume = volumes.get(mount.at("name").text, Tree(mount.line))
        path = mount.at("mountPath").text.rstrip("/")
        if path == "/dev/shm":  # noqa: S108  (a path in a file that is read)
            box.shared_memory = volume.at("emptyDir", "sizeLimit").text or "mount"
        elif not volume.at("emptyDir").is_map and not volume.at("configMap").exists and not volume.at("secret").exists:
            box.mounts.append(_word(mount.at("mountPath")))
    claims_of_set = {claim.at("metadata", "name").text for claim in owner.at("spec", "volumeClaimTemplates").each()}
    box.mounts += [
        _word(mount.at("mountPath"))
        for mount in container.at("volumeMounts").each()
        if mount.at("name").text in claims_of_set
    ]
    if spec.at("hostIPC").value is True:
        box.shared_memory = "ipc"
    box.ports = [
        Port("", int(number), port.line)
        for port in container.at("ports").each()
        if (number := port.at("containerPort").number())
    ]
    box.pods = int(owner.at("spec", "leaderWorkerTemplate", "size").number() or 1)
    box.reads_env_file = container.at("envFrom").exists
    _startup(container, box)
    return box


def _startup(container: Tree, box: Box) -> None:
    startup, liveness = container.at("startupProbe"), container.at("livenessProbe")
    box.has_health = any(container.at(probe).exists for probe in ("startupProbe", "livenessProbe", "readinessProbe"))
    probe = startup if startup.exists else liveness
    if probe.exists:
        box.startup_line = probe.key_line
        box.startup_s = probe_budget(probe)


def probe_budget(probe: Tree) -> float:
    """Seconds from the container's start until this probe has it killed."""
    period = probe.at("periodSeconds").number() or 10
    failures = probe.at("failureThreshold").number() or 3
    return (probe.at("initialDelaySeconds").number() or 0) + period * failures
