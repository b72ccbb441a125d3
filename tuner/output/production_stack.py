"""production-stack/: values for the chart of vLLM's production stack, and the autoscaler beside it.

Source: helm/templates/deployment-vllm-multi.yaml and values.schema.json of chart 0.1.12. The ScaledObject is a file of
its own because the chart's schema wants its triggers as a mapping, which KEDA refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.domain.plan import Plan
from tuner.output import pod
from tuner.output.flags import take_apart
from tuner.output.header import header_lines, short_header
from tuner.output.quoting import comment, dump_yaml
from tuner.output.scalers import scaled_object

FOLDER = "production-stack"
_MEMORY = 16 * pod.GIB
_CHART = {"dtype": "dtype", "max-model-len": "maxModelLen", "max-num-seqs": "maxNumSeqs",
          "tensor-parallel-size": "tensorParallelSize", "gpu-memory-utilization": "gpuMemoryUtilization"}
"""Flags that the chart writes itself, and the key it takes them by."""
_SWITCHES = {"enable-prefix-caching": "enablePrefixCaching", "enable-chunked-prefill": "enableChunkedPrefill"}


class ProductionStackEmitter:
    """Helm values; the chart is not written."""

    name = "production-stack"
    summary = "values for the Helm chart of vLLM's production stack"

    def refusal(self, plan: Plan) -> str | None:
        """Say what the chart cannot serve."""
        if plan.config.engine != "vllm":
            return f"the chart serves vLLM, and its engine is {plan.config.engine}"
        if plan.launch.model_is_local:
            return "its model is a local directory, which the chart does not mount"
        if plan.launch.nodes:
            return "the chart spreads a server over hosts with Ray only"
        if plan.launch.program[1:] != ("serve",):
            return "the chart starts `vllm serve`, and the plan something else"
        return pod.refusal(plan)

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return `production-stack/values.yaml`, and `scaledobject.yaml` when there is a threshold; or nothing."""
        if self.refusal(plan):
            return {}
        name = pod.name_of(plan)
        head = "\n".join(map(comment, (*header_lines(plan), *_usage(plan, name))))
        files = {f"{FOLDER}/values.yaml": f"{head}\n{dump_yaml({'servingEngineSpec': _engine(plan)})}"}
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"{name}-{name}-deployment-vllm"}
        scaler = scaled_object(plan, target=target, namespace=name)
        if scaler is not None:
            notes, document = scaler
            lines = "\n".join(map(comment, (*short_header(plan, "values.yaml"), "", *notes)))
            files[f"{FOLDER}/scaledobject.yaml"] = f"{lines}\n{dump_yaml(document)}"
        return files


def _engine(plan: Plan) -> dict[str, Any]:
    probes = pod.probes(plan)
    for probe in probes.values():
        probe["httpGet"] = {**probe["httpGet"], "port": plan.launch.port}
    return {
        "enableEngine": True,
        "containerPort": plan.launch.port,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "startupProbe": probes["startupProbe"],
        "livenessProbe": probes["livenessProbe"],
        "modelSpec": [_model(plan)],
    }


def _model(plan: Plan) -> dict[str, Any]:
    launch = plan.launch
    repository, _, tag = str(launch.image).rpartition(":")
    memory = pod.memory_bytes(plan) or _MEMORY
    model: dict[str, Any] = {
        "name": pod.name_of(plan), "repository": repository, "tag": tag, "modelURL": launch.model,
        "replicaCount": plan.sizing.replicas,
        "requestCPU": pod.cores(plan), "requestMemory": pod.quantity(memory), "requestGPU": launch.devices,
    }
    if pod.memory_bytes(plan):
        model["limitMemory"] = pod.quantity(memory)
    model["pvcStorage"] = pod.quantity(2 * (pod.weight_bytes(plan) or 100 * pod.GIB))
    model["pvcAccessMode"] = ["ReadWriteMany"]
    tokens = [item for item in pod.secret_env(plan) if item["name"] == "HF_TOKEN"]
    if tokens and not tokens[0]["valueFrom"]["secretKeyRef"]["optional"]:
        model["hf_token"] = {"secretName": pod.SECRETS, "secretKey": "HF_TOKEN"}
        tokens = []
    others = [item for item in pod.secret_env(plan) if item["name"] != "HF_TOKEN"]
    model["env"] = [*({"name": name, "value": pod.escape(value)} for name, value in pod.plain_env(plan).items()),
                    *tokens, *others]
    model["vllmConfig"] = _config(plan)
    return model


def _config(plan: Plan) -> dict[str, Any]:
    """Return the chart's own keys where it has them. What it leaves out of prefix caching it would switch off."""
    split = take_apart(plan.launch.arguments)
    config: dict[str, Any] = {}
    rest: list[str] = [word for word in split.rest if word != plan.launch.model]
    for flag, words in split.named.items():
        positive = flag.removeprefix("no-")
        if flag in _CHART and len(words) == 1:
            config[_CHART[flag]] = int(words[0]) if words[0].isdigit() else words[0]
        elif positive in _SWITCHES and not words:
            config[_SWITCHES[positive]] = positive == flag
        elif len(words) == 1 and words[0].startswith("-"):
            rest.append(f"--{flag}={words[0]}")
        else:
            rest += [f"--{flag}", *words]
    resolved = plan.startup.resolved.get("enable_prefix_caching", "True")
    config.setdefault("enablePrefixCaching", resolved.lower() != "false")
    config["extraArgs"] = [pod.escape(word) for word in rest]
    return config


def _usage(plan: Plan, name: str) -> tuple[str, ...]:
    lines = [
        "", f"Start: helm install {name} vllm/vllm-stack --namespace {name} --create-namespace --values values.yaml",
        "enablePrefixCaching is always set: the chart switches it off where it is not.",
    ]
    required = [item["name"] for item in pod.secret_env(plan) if not item["valueFrom"]["secretKeyRef"]["optional"]]
    lines += [f'Secret: kubectl -n {name} create secret generic {pod.SECRETS} --from-literal={item}="${item}"'
              for item in required]
    if not pod.memory_bytes(plan):
        lines.append("requestMemory is not measured.")
    return tuple(lines)
