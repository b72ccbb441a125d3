"""One server as a container of a pod, for every manifest that Kubernetes reads.

Probes and times come from the measured start, memory from what the server was seen to use.
"""

from __future__ import annotations

import math
from typing import Any

from tuner.domain.engine import LaunchSpec
from tuner.domain.plan import Plan
from tuner.output.container import FILES, HUB_TOKEN, Container, needs_hub_token, pod_container
from tuner.output.quoting import dns_label

GIB = 1 << 30
DRAIN_S = 15
"""How long a stopping pod keeps answering while load balancers forget it."""
_PERIOD_S = 10
_DOWNLOAD_BYTES_PER_S = 100e6
_UNKNOWN_DOWNLOAD_S = 1800
_MARGIN_S = 60
_MEMORY_HEADROOM = 1.25
_CACHE_SPARE = 20 * GIB
_RUNTIME_BYTES = 8 * GIB
_HOST_SHARE = 0.8
_SHM_BYTES_PER_GPU = 2 * GIB
SHM = "/dev/shm"  # noqa: S108  (shared memory of a container)
SECRETS = "llm-secrets"
"""The Secret that holds tokens and keys, one key for each variable; it is not written here."""


def refusal(plan: Plan) -> str | None:
    """Say why no pod can serve the plan; None when one can."""
    nodes = plan.launch.nodes
    if nodes is not None and nodes.launcher:
        return f"MPI starts its server on {nodes.count} hosts, which pods do not do by themselves; use slurm"
    return None if plan.launch.image else "it names no container image; tune again with --image NAME:VERSION"


def name_of(plan: Plan) -> str:
    """Return the name of the server's objects. Never `vllm`: Kubernetes would set VLLM_PORT, which vLLM reads."""
    name = dns_label(plan.study.model.name)
    return f"{name}-server" if name in ("vllm", "server", plan.config.engine) else name


def labels(plan: Plan) -> dict[str, str]:
    """Return the labels of every object."""
    return {"app.kubernetes.io/name": name_of(plan), "app.kubernetes.io/managed-by": "llmtune"}


def box_of(plan: Plan) -> Container:
    """Return the container of a plan that `refusal` let through."""
    box = pod_container(plan)
    if box is None:
        raise TypeError("a plan without an image has no pod")
    return box


def startup_budget_s(plan: Plan) -> int:
    """Return how long a start may take: twice the measured one, and the download of the weights on a first start."""
    box = box_of(plan)
    download = 0.0
    if not plan.launch.model_is_local:
        size = weight_bytes(plan)
        download = size / _DOWNLOAD_BYTES_PER_S if size else _UNKNOWN_DOWNLOAD_S
    return math.ceil((box.start_period_s + download + _MARGIN_S) / 60) * 60


def weight_bytes(plan: Plan) -> int | None:
    """Return the size of the weights as files, as far as it is known."""
    model = plan.study.model
    return model.weight_bytes or (2 * model.parameters if model.parameters else None)


def cache_bytes(plan: Plan) -> int:
    """Return the size of the cache: the weights twice over, for a change of revision, and compiled code."""
    return (0 if plan.launch.model_is_local else 2 * (weight_bytes(plan) or 100 * GIB)) + _CACHE_SPARE


def memory_bytes(plan: Plan) -> int | None:
    """Return a host's memory limit: a quarter more than was seen in use, and shared memory; None when not measured.

    On GPUs never less than the weights that pass through it while loading, but not more than most of the measured host.
    """
    seen = plan.sizing.peak_memory_bytes if plan.measured else None
    if seen is None:
        return None
    need = max(seen * _MEMORY_HEADROOM, _RUNTIME_BYTES)
    if box_of(plan).devices:
        loading = _MEMORY_HEADROOM * (weight_bytes(plan) or 0) / hosts(plan.launch) + _RUNTIME_BYTES
        need = max(need, min(loading, _HOST_SHARE * plan.study.hardware.memory_bytes))
    return math.ceil((need + shm_bytes(plan)) / GIB) * GIB


def shm_bytes(plan: Plan) -> int:
    """Return the size of /dev/shm, 0 where the default of 64 MiB does."""
    box = box_of(plan)
    return max(2, box.devices) * _SHM_BYTES_PER_GPU if box.shared_memory else 0


def grace_s(plan: Plan) -> int:
    """Return the time from the request to stop until the pod is killed: drain, the server's own stop, and a margin."""
    return DRAIN_S + box_of(plan).stop_grace_s + 15


def cores(plan: Plan) -> int:
    """Return the CPUs to ask for: all that were measured on a CPU, two and one for each GPU otherwise."""
    devices = box_of(plan).devices
    return plan.study.hardware.cores if not devices else 2 + devices


def escape(text: str) -> str:
    """Keep Kubernetes from expanding `$(NAME)` in arguments."""
    return text.replace("$", "$$")


def arguments(plan: Plan, *, ranks: tuple[str, str, str] = ("", "", ""), follower: bool = False) -> list[str]:
    """Return the container's arguments; `ranks` are the `$(NAME)` of count, rank and leader of several hosts."""
    box = box_of(plan)
    words = [escape(word) for word in (*box.entrypoint[1:], *box.command)]
    nodes = plan.launch.nodes
    if nodes is not None:
        count, rank, leader = ranks
        words += [word.format(count=count, rank=rank, leader=leader) for word in nodes.arguments]
        words += [escape(word) for word in nodes.follower] if follower else []
    return words


def secret_env(plan: Plan) -> list[dict[str, Any]]:
    """Return the variables that come from the Secret."""
    box = box_of(plan)
    names = dict.fromkeys((HUB_TOKEN, *box.pass_env) if needs_hub_token(plan) else box.pass_env)
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {
            "name": SECRETS, "key": name, "optional": not (name == HUB_TOKEN and needs_hub_token(plan))}}}
        for name in names
    ]


def plain_env(plan: Plan) -> dict[str, str]:
    """Return the variables of the measured server, for a ConfigMap: nothing in them is expanded."""
    return box_of(plan).env


def resources(plan: Plan) -> dict[str, Any]:
    """Return requests and limits; GPUs are the same in both."""
    devices, memory = box_of(plan).devices, memory_bytes(plan)
    requests: dict[str, Any] = {"cpu": str(cores(plan))}
    limits: dict[str, Any] = {}
    if memory:
        requests["memory"] = limits["memory"] = quantity(memory)
    if devices:
        requests["nvidia.com/gpu"] = limits["nvidia.com/gpu"] = str(devices)
    return {"requests": requests, **({"limits": limits} if limits else {})}


def probes(plan: Plan) -> dict[str, Any]:
    """Return the three probes. Only the startup probe knows how long a start takes; none waits before it begins."""
    get = {"httpGet": {"path": plan.launch.health_path, "port": "http"}}
    return {
        "startupProbe": {**get, "periodSeconds": _PERIOD_S, "timeoutSeconds": 10,
                         "failureThreshold": math.ceil(startup_budget_s(plan) / _PERIOD_S)},
        "readinessProbe": {**get, "periodSeconds": 5, "timeoutSeconds": 10, "failureThreshold": 3},
        "livenessProbe": {**get, "periodSeconds": 10, "timeoutSeconds": 15, "failureThreshold": 10},
    }


def mounts(plan: Plan) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return volume mounts of the container and volumes of the pod."""
    box, name = box_of(plan), name_of(plan)
    mounted: list[dict[str, Any]] = []
    volumes: list[dict[str, Any]] = []
    if box.model_target:
        mounted.append({"name": "model", "mountPath": box.model_target, "readOnly": True})
        volumes.append({"name": "model", "persistentVolumeClaim": {"claimName": f"{name}-model", "readOnly": True}})
    if box.hub_cache:
        mounted.append({"name": "cache", "mountPath": box.hub_cache, "subPath": "huggingface"})
    mounted.append({"name": "cache", "mountPath": box.engine_cache[1], "subPath": "engine"})
    volumes.append({"name": "cache", "persistentVolumeClaim": {"claimName": f"{name}-cache"}})
    if box.files:
        mounted.append({"name": "files", "mountPath": FILES, "readOnly": True})
        items = [{"key": file, "path": file} for file, _ in box.files]
        volumes.append({"name": "files", "configMap": {"name": name, "items": items}})
    if box.shared_memory:
        mounted.append({"name": "shm", "mountPath": SHM})
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": quantity(shm_bytes(plan))}})
    return mounted, volumes


def quantity(size: int) -> str:
    """Return bytes as a Kubernetes quantity in whole GiB."""
    return f"{math.ceil(size / GIB)}Gi"


def gpu_label(plan: Plan) -> str | None:
    """Return the value of the node label `nvidia.com/gpu.product`: the driver's name with dashes."""
    gpus = plan.study.hardware.gpus
    return "-".join(gpus[0].name.split()) if gpus and plan.launch.devices else None


def container_spec(plan: Plan, *, args: list[str], answers: bool = True, name: str = "server") -> dict[str, Any]:
    """Return the container; one that does not answer (a follower of several hosts) has no port and no probe."""
    box = box_of(plan)
    spec: dict[str, Any] = {"name": name, "image": box.image}
    if box.entrypoint:
        spec["command"] = [escape(box.entrypoint[0])]
    spec["args"] = args
    if secrets := secret_env(plan):
        spec["env"] = secrets
    if box.env:
        spec["envFrom"] = [{"configMapRef": {"name": f"{name_of(plan)}-env"}}]
    if answers:
        spec["ports"] = [{"name": "http", "containerPort": box.port}]
        spec |= probes(plan)
        spec["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", str(DRAIN_S)]}}}
    spec["resources"] = resources(plan)
    spec["volumeMounts"] = mounts(plan)[0]
    spec["securityContext"] = {"allowPrivilegeEscalation": False, "seccompProfile": {"type": "RuntimeDefault"}}
    return spec


def pod_spec(plan: Plan, container: dict[str, Any]) -> dict[str, Any]:
    """Return the pod's spec around one container."""
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_s(plan),
    }
    label = gpu_label(plan)
    if label:
        wanted = [{"key": "nvidia.com/gpu.product", "operator": "In", "values": [label]}]
        spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchExpressions": wanted}}]}}
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    spec["containers"] = [container]
    spec["volumes"] = mounts(plan)[1]
    return spec


def hosts(launch: LaunchSpec) -> int:
    """Return how many hosts one server takes."""
    return launch.nodes.count if launch.nodes else 1
