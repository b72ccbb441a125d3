"""kserve.yaml: the server as an LLMInferenceService of KServe.

Source: config/llmisvcconfig/config-llm-template.yaml and the CRD (v1alpha2) of KServe. Its own start script runs
`eval "vllm serve /mnt/models --served-model-name ... ${VLLM_ADDITIONAL_ARGS}"`, so flags are shell words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.domain.plan import Plan
from tuner.output import pod
from tuner.output.flags import take_apart
from tuner.output.header import header_lines
from tuner.output.quoting import comment, dump_yaml, shell

FILE = "kserve.yaml"
ARGUMENTS = "VLLM_ADDITIONAL_ARGS"
_CARRIED = ("served-model-name", "revision")


class KserveEmitter:
    """One LLMInferenceService."""

    name = "kserve"
    summary = "KServe: an LLMInferenceService"

    def refusal(self, plan: Plan) -> str | None:
        """Say what the service cannot hold."""
        if plan.config.engine != "vllm":
            return f"the service serves vLLM, and its engine is {plan.config.engine}"
        if plan.launch.nodes:
            return f"its server takes {plan.launch.nodes.count} hosts; use k8s"
        return pod.refusal(plan)

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return `kserve.yaml`, or nothing."""
        if self.refusal(plan):
            return {}
        head = "\n".join(map(comment, (*header_lines(plan), *_usage(plan))))
        return {FILE: f"{head}\n{dump_yaml(_service(plan))}"}


def _service(plan: Plan) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": plan.launch.image}
    plain = [{"name": name, "value": pod.escape(value)} for name, value in pod.plain_env(plan).items()]
    words = " ".join(map(shell, _arguments(plan)))
    container["env"] = [{"name": ARGUMENTS, "value": pod.escape(words)}, *plain, *pod.secret_env(plan)]
    container["resources"] = pod.resources(plan)
    probes = pod.probes(plan)
    # the scheme is the preset's own: KServe puts TLS between gateway and server
    for probe in probes.values():
        del probe["httpGet"]
    container |= probes
    # the preset refuses root, and vLLM's images know this user (docs/deployment/docker.md)
    container["securityContext"] = {"runAsUser": 2000, "runAsGroup": 0}
    spec = {"terminationGracePeriodSeconds": pod.grace_s(plan), "containers": [container]}
    if shm := pod.shm_bytes(plan):
        spec["volumes"] = [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": pod.quantity(shm)}}]
    return {
        "apiVersion": "serving.kserve.io/v1alpha2", "kind": "LLMInferenceService",
        "metadata": {"name": pod.name_of(plan), "annotations": {"llmtune.dev/plan": plan.plan_id}},
        "spec": {
            "model": {"uri": _uri(plan), "name": plan.launch.served_name},
            "replicas": plan.sizing.replicas,
            "router": {"route": {}, "gateway": {}, "scheduler": {}},
            "template": spec,
        },
    }


def _arguments(plan: Plan) -> list[str]:
    """Return the arguments that the service does not carry by itself."""
    split = take_apart(plan.launch.arguments)
    words = [word for word in split.rest if word != plan.launch.model]
    for flag, values in split.named.items():
        if flag in _CARRIED:
            continue
        words += [f"--{flag}={values[0]}"] if values and values[0].startswith("-") else [f"--{flag}", *values]
    return words


def _uri(plan: Plan) -> str:
    launch = plan.launch
    if launch.model_is_local:
        return f"pvc://{pod.name_of(plan)}-model"
    revision = take_apart(launch.arguments).named.get("revision")
    return f"hf://{launch.model}:{revision[0]}" if revision else f"hf://{launch.model}"


def _usage(plan: Plan) -> tuple[str, ...]:
    lines = ["", f"Start: kubectl apply -f {FILE}, in a namespace of a cluster with KServe's LLM controller."]
    if plan.launch.model_is_local:
        lines.append(f"Needs a PersistentVolumeClaim {pod.name_of(plan)}-model that holds the directory of the model.")
    required = [item["name"] for item in pod.secret_env(plan) if not item["valueFrom"]["secretKeyRef"]["optional"]]
    create = f"Secret: kubectl create secret generic {pod.SECRETS}"
    lines += [f'{create} --from-literal={name}="${name}"' for name in required]
    return tuple(lines)
