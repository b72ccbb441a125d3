"""llm-d/: a kustomize patch of llm-d's model server, with all arguments, so that nothing of the base is left.

Source: guides/optimized-baseline/modelserver/gpu/vllm/base/patch-vllm.yaml of llm-d: Deployment `decode`, container
`modelserver`; lists of arguments are replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.domain.plan import Plan
from tuner.output import pod
from tuner.output.header import header_lines, short_header
from tuner.output.quoting import comment, dump_yaml

FOLDER = "llm-d"
BASE = "../llm-d/guides/recipes/modelserver/base/single-host/default"


class LlmdEmitter:
    """A kustomization over llm-d's recipe, and the patch."""

    name = "llm-d"
    summary = "llm-d: a kustomize patch of its model server"

    def refusal(self, plan: Plan) -> str | None:
        """Say what the patch cannot serve."""
        if plan.config.engine != "vllm":
            return f"the patch is for vLLM, and its engine is {plan.config.engine}"
        if plan.launch.model_is_local:
            return "its model is a local directory, which llm-d's recipe does not mount"
        if plan.launch.nodes:
            return f"its server takes {plan.launch.nodes.count} hosts; use k8s"
        return pod.refusal(plan)

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return the kustomization, the patch and the claim of the cache, or nothing."""
        if self.refusal(plan):
            return {}
        name = pod.name_of(plan)
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
            "namePrefix": f"{name}-",
            "resources": [BASE, "persistentvolumeclaim.yaml"],
            "labels": [{"pairs": {"llm-d.ai/model": name}, "includeSelectors": True, "includeTemplates": True}],
            "patches": [{"path": "patch-vllm.yaml"}],
        }
        usage = ("", f"Start: kubectl apply -k {FOLDER}, with a checkout of llm-d where `resources` looks for it.",
                 "The router is llm-d's own; its Helm values are not written here.")
        head = "\n".join(map(comment, (*header_lines(plan), *usage)))
        short = "\n".join(map(comment, short_header(plan, "kustomization.yaml")))
        return {
            f"{FOLDER}/kustomization.yaml": f"{head}\n{dump_yaml(kustomization)}",
            f"{FOLDER}/patch-vllm.yaml": f"{short}\n{dump_yaml(_patch(plan))}",
            f"{FOLDER}/persistentvolumeclaim.yaml": f"{short}\n{dump_yaml(_claim(plan))}",
        }


def _patch(plan: Plan) -> dict[str, Any]:
    box = pod.box_of(plan)
    entry = box.entrypoint or plan.launch.image_program or box.command[:1]
    words = box.command if box.entrypoint or plan.launch.image_program else box.command[1:]
    probes = pod.probes(plan)
    for probe in probes.values():
        probe["httpGet"] = {**probe["httpGet"], "port": box.port}
    plain = [{"name": name, "value": pod.escape(value)} for name, value in pod.plain_env(plan).items()]
    container: dict[str, Any] = {
        "name": "modelserver", "image": box.image, "command": [pod.escape(word) for word in entry],
        "args": [pod.escape(word) for word in words],
        "env": [*plain, *pod.secret_env(plan)],
        "resources": pod.resources(plan),
        **probes,
    }
    container["volumeMounts"], volumes = pod.mounts(plan)
    spec = {"terminationGracePeriodSeconds": pod.grace_s(plan), "containers": [container], "volumes": volumes}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "decode"},
            "spec": {"replicas": plan.sizing.replicas, "strategy": strategy, "template": {"spec": spec}}}


def _claim(plan: Plan) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": f"{pod.name_of(plan)}-cache"},
            "spec": {"accessModes": ["ReadWriteMany"],
                     "resources": {"requests": {"storage": pod.quantity(pod.cache_bytes(plan))}}}}
