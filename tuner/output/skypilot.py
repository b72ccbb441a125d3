"""skypilot.yaml: a task that is also a service, scaled by the requests/s that were measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.domain.plan import Plan
from tuner.output import cloud, pod
from tuner.output.autoscale import most_replicas, requests_per_s
from tuner.output.container import pod_container, secret_names
from tuner.output.header import header_lines
from tuner.output.quoting import comment, dump_yaml

FILE = "skypilot.yaml"


class SkypilotEmitter:
    """SkyPilot: `sky launch`, or `sky serve up` for replicas."""

    name = "skypilot"
    summary = "SkyPilot: sky launch, or sky serve up for replicas"

    def refusal(self, plan: Plan) -> str | None:
        """Say what a cloud needs and the plan lacks."""
        return cloud.refusal(plan)

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return `skypilot.yaml`, or nothing."""
        if self.refusal(plan):
            return {}
        head = "\n".join(map(comment, (*header_lines(plan), *_usage(plan))))
        return {FILE: f"{head}\n{dump_yaml(_task(plan))}"}


def _task(plan: Plan) -> dict[str, Any]:
    launch, box = plan.launch, pod_container(plan)
    gpu = cloud.gpu_name(plan)
    count = launch.nodes.devices if launch.nodes else launch.devices
    resources: dict[str, Any] = {"accelerators": f"{gpu}:{count}"} if gpu else {"cpus": f"{pod.cores(plan)}+"}
    if (memory := pod.memory_bytes(plan)) and not gpu:
        resources["memory"] = f"{memory // pod.GIB}+"
    resources |= {"image_id": f"docker:{launch.image}", "ports": launch.port, "disk_size": cloud.disk_gb(plan)}
    task: dict[str, Any] = {"name": pod.name_of(plan), "resources": resources}
    if launch.nodes:
        task["num_nodes"] = launch.nodes.count
    if box is not None and box.model_target:
        task["envs"] = {"MODEL_DIR": None}
        task["file_mounts"] = {box.model_target: "${MODEL_DIR}"}
    if secrets := secret_names(plan):
        task["secrets"] = dict.fromkeys(secrets)
    ranks = ("${SKYPILOT_NODE_RANK}", "${SKYPILOT_NODE_IPS%%$'\\n'*}")
    task["run"] = cloud.commands(plan, ranks)
    if not launch.nodes:
        task["service"] = _service(plan)
    return task


def _service(plan: Plan) -> dict[str, Any]:
    rate = requests_per_s(plan)
    probe = {"path": plan.launch.health_path, "initial_delay_seconds": pod.startup_budget_s(plan),
             "timeout_seconds": 15}
    if rate is None:
        return {"readiness_probe": probe, "replicas": plan.sizing.replicas}
    least = plan.sizing.replicas
    policy = {"min_replicas": least, "max_replicas": most_replicas(plan), "target_qps_per_replica": rate}
    return {"readiness_probe": probe, "replica_policy": policy}


def _usage(plan: Plan) -> tuple[str, ...]:
    options = "".join(f" --secret {name}" for name in secret_names(plan))
    options += " --env MODEL_DIR=/path/to/the/model" if plan.launch.model_is_local else ""
    serve = "" if plan.launch.nodes else f"     With replicas: sky serve up {FILE}{options}"
    lines = ["", f"Start: sky launch {FILE}{options}{serve}"]
    if requests_per_s(plan) is not None and not plan.launch.nodes:
        lines.append("target_qps_per_replica: 80 % of the requests/s that were measured within the SLO. "
                     f"max_replicas ({most_replicas(plan)}) is not measured: set it to what you want to pay for.")
    lines.append("The server has no API key, and the port is open to whom the cloud lets in.")
    return tuple(lines)
