"""dstack.yaml: a service of dstack, scaled by the requests/s that were measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.domain.plan import Plan
from tuner.output import cloud, pod
from tuner.output.autoscale import most_replicas, requests_per_s
from tuner.output.container import secret_names
from tuner.output.header import header_lines
from tuner.output.quoting import comment, dump_yaml

FILE = "service.dstack.yml"


class DstackEmitter:
    """dstack: `dstack apply`."""

    name = "dstack"
    summary = "dstack: dstack apply -f service.dstack.yml"

    def refusal(self, plan: Plan) -> str | None:
        """Say what dstack needs and the plan lacks."""
        if plan.launch.nodes:
            return f"its server takes {plan.launch.nodes.count} hosts, and a service of dstack has one"
        if plan.launch.model_is_local:
            return "its model is a local directory, which dstack does not bring along"
        return cloud.refusal(plan)

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return `service.dstack.yml`, or nothing."""
        if self.refusal(plan):
            return {}
        lines = ["", f"Start: dstack apply -f {FILE}"]
        if requests_per_s(plan) is not None:
            bound = f"The {most_replicas(plan)} replicas are not measured: set them to what you want to pay for."
            lines.append(f"scaling: 80 % of the requests/s that were measured within the SLO. {bound}")
        head = "\n".join(map(comment, (*header_lines(plan), *lines)))
        return {FILE: f"{head}\n{dump_yaml(_service(plan))}"}


def _service(plan: Plan) -> dict[str, Any]:
    launch, rate, least = plan.launch, requests_per_s(plan), plan.sizing.replicas
    resources: dict[str, Any] = {"cpu": f"{pod.cores(plan)}.."}
    if gpu := cloud.gpu_name(plan):
        resources["gpu"] = {"name": gpu.split("-")[0], "memory": f"{cloud.gpu_gb(plan)}GB", "count": launch.devices}
    if memory := pod.memory_bytes(plan):
        resources["memory"] = f"{memory // pod.GIB}GB.."
    if shm := pod.shm_bytes(plan):
        resources["shm_size"] = f"{shm // pod.GIB}GB"
    resources["disk"] = f"{cloud.disk_gb(plan)}GB.."
    service: dict[str, Any] = {"type": "service", "name": pod.name_of(plan), "image": launch.image}
    if secrets := secret_names(plan):
        service["env"] = list(secrets)
    service |= {
        "commands": [cloud.commands(plan)], "port": launch.port, "model": launch.served_name,
        "probes": [{"type": "http", "url": launch.health_path, "timeout": "15s"}],
        "replicas": f"{least}..{most_replicas(plan)}" if rate else least,
    }
    if rate:
        service["scaling"] = {"metric": "rps", "target": rate}
    service["volumes"] = [{"instance_path": "/root/.cache", "path": "/root/.cache", "optional": True}]
    service["resources"] = resources
    return service
