"""k8s/: one server for `kubectl apply -k`, from the Deployment (or LeaderWorkerSet) to its autoscaler.

Objects are documents, dumped; nothing is pasted. What is yours belongs in an overlay that names this directory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tuner.domain.plan import Plan
from tuner.domain.record import content_hash
from tuner.output import pod
from tuner.output.autoscale import MAX_REPLICAS, SETTLE_S, in_flight_query, plan_signals, threshold
from tuner.output.header import header_lines, short_header
from tuner.output.launch_files import launch_files
from tuner.output.quoting import Block, comment, dump_yaml

FOLDER = "k8s"
PROMETHEUS = "http://prometheus-operated.monitoring.svc:9090"
Note = tuple[str, ...]
Entry = tuple[Note, dict[str, Any]]
"""An object, and what its file says of it."""
_RANKS = ("$(LWS_GROUP_SIZE)", "$(LWS_WORKER_INDEX)", "$(LWS_LEADER_ADDRESS)")


class KubernetesEmitter:
    """Plain manifests with a kustomization."""

    name = "k8s"
    summary = "Kubernetes: kubectl apply -k k8s"

    def refusal(self, plan: Plan) -> str | None:
        """Say what a pod needs and the plan lacks."""
        return pod.refusal(plan)

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return the kustomization and one file for each object, or nothing."""
        if self.refusal(plan):
            return {}
        objects = _objects(plan)
        names = [f"{name}.yaml" for name in objects]
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": pod.name_of(plan),
            "resources": names,
        }
        main = "leaderworkerset" if plan.launch.nodes else "deployment"
        files = {f"{FOLDER}/kustomization.yaml": _file(header_lines(plan), _usage(plan), kustomization)}
        for name, (notes, document) in objects.items():
            head = header_lines(plan) if name == main else short_header(plan, "kustomization.yaml")
            files[f"{FOLDER}/{name}.yaml"] = _file(head, notes, document)
        return files


def scaled_object(plan: Plan, *, target: Mapping[str, str], namespace: str) -> Entry | None:
    """Return notes and the KEDA ScaledObject that scales `target`; None when there is no measured threshold.

    Source of the fields: config/crd/bases/keda.sh_scaledobjects.yaml and pkg/scalers/prometheus_scaler.go of KEDA 2.
    """
    limit, found = threshold(plan), plan_signals(plan)
    if limit is None or found is None:
        return None
    settle = min(max(SETTLE_S, math.ceil(plan.sizing.start_s / 60) * 60), 1800)
    trigger = {
        "type": "prometheus",
        "name": "in-flight",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": PROMETHEUS,
            "query": in_flight_query(plan, found, f'namespace="{namespace}"'),
            "threshold": str(limit.in_flight),
            "ignoreNullValues": "false",
        },
    }
    notes = (
        f"threshold: {limit.why}.",
        "One query, one series, averaged over replicas once. A query that gives nothing is an error, not zero load.",
        f"serverAddress and maxReplicaCount ({MAX_REPLICAS}) are not measured: patch both in an overlay.",
        f"Scaling down waits {settle} s, longer than a start takes.",
    )
    return notes, {
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": pod.name_of(plan), "labels": labels(plan)},
        "spec": {
            "scaleTargetRef": dict(target),
            "minReplicaCount": 1,
            "maxReplicaCount": MAX_REPLICAS,
            "pollingInterval": 15,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {
                "scaleDown": {"stabilizationWindowSeconds": settle,
                              "policies": [{"type": "Pods", "value": 1, "periodSeconds": settle}]},
                "scaleUp": {"stabilizationWindowSeconds": 0,
                            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]},
            }}},
            "triggers": [trigger],
        },
    }


def labels(plan: Plan) -> dict[str, str]:
    """Return the labels of every object."""
    return {"app.kubernetes.io/name": pod.name_of(plan), "app.kubernetes.io/managed-by": "llmtune"}


def _objects(plan: Plan) -> dict[str, Entry]:
    """Return file name to notes and document, in the order in which they are applied."""
    name = pod.name_of(plan)
    found: dict[str, Entry] = {
        "namespace": ((), {"apiVersion": "v1", "kind": "Namespace", "metadata": _meta(plan)}),
    }
    if config := _config_maps(plan):
        found |= config
    found |= _claims(plan)
    if plan.launch.nodes:
        found["leaderworkerset"] = ((), _leader_worker_set(plan))
        target = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": name}
    else:
        found["deployment"] = ((), _deployment(plan))
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    found["service"] = ((), _service(plan))
    scaler = scaled_object(plan, target=target, namespace=name)
    if scaler is not None:
        found["poddisruptionbudget"] = ((), _budget(plan))
        found["scaledobject"] = scaler
    return found


def _meta(plan: Plan, suffix: str = "") -> dict[str, Any]:
    return {"name": pod.name_of(plan) + suffix, "labels": labels(plan)}


def _selector(plan: Plan) -> dict[str, str]:
    return {"app.kubernetes.io/name": pod.name_of(plan)}


def _config_maps(plan: Plan) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    if env := pod.plain_env(plan):
        found["configmap-env"] = ((), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta(plan, "-env"),
                                       "data": env})
    names = [name for name, _ in pod.box_of(plan).files]
    if names:
        texts = launch_files(plan)
        found["configmap"] = ((), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta(plan),
                                   "data": {name: Block(texts[name]) for name in names}})
    return found


def _claims(plan: Plan) -> dict[str, Entry]:
    shared = plan.launch.nodes is not None or threshold(plan) is not None
    mode = "ReadWriteMany" if shared else "ReadWriteOnce"
    why = "replicas run on several nodes and share it; the storage class must be able to." if shared else "one replica."
    notes = (f"{mode}: {why}",)
    found: dict[str, Entry] = {"persistentvolumeclaim-cache": (
        (*notes, "Holds downloaded weights and compiled kernels, so that only the first start is slow."),
        _claim(plan, "-cache", mode, pod.cache_bytes(plan)))}
    if plan.launch.model_is_local:
        model_size = (pod.weight_bytes(plan) or 100 * pod.GIB) + pod.GIB
        found["persistentvolumeclaim-model"] = (
            ("Fill it with the directory of the model (kubectl cp, or a Job) before the first start.",),
            _claim(plan, "-model", mode, model_size))
    return found


def _claim(plan: Plan, suffix: str, mode: str, size: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": _meta(plan, suffix),
        "spec": {"accessModes": [mode], "resources": {"requests": {"storage": pod.quantity(size)}}},
    }


def _template(plan: Plan, container: dict[str, Any], **more: str) -> dict[str, Any]:
    """Return the pod template; a change of what is mounted changes its checksum, which rolls the pods."""
    read = [pod.plain_env(plan), [file.text for file in plan.launch.files]]
    annotations = {"llmtune.dev/config-checksum": content_hash(read),
                   "llmtune.dev/plan": plan.plan_id}
    if plan_signals(plan) is not None:
        annotations |= {"prometheus.io/scrape": "true", "prometheus.io/port": str(plan.launch.port),
                        "prometheus.io/path": plan.launch.metrics_path}
    return {"metadata": {"labels": {**labels(plan), **more}, "annotations": annotations},
            "spec": pod.pod_spec(plan, container)}


def _deployment(plan: Plan) -> dict[str, Any]:
    spec: dict[str, Any] = {} if threshold(plan) and plan_signals(plan) else {"replicas": 1}
    spec |= {
        "selector": {"matchLabels": _selector(plan)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "progressDeadlineSeconds": pod.startup_budget_s(plan) + 600,
        "template": _template(plan, pod.container_spec(plan, args=pod.arguments(plan))),
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _meta(plan), "spec": spec}


def _leader_worker_set(plan: Plan) -> dict[str, Any]:
    """Source: docs/deployment/frameworks/lws.md of vLLM, without Ray, and the CRD of LeaderWorkerSet v1."""
    leader = pod.container_spec(plan, args=pod.arguments(plan, ranks=_RANKS))
    worker = pod.container_spec(plan, args=pod.arguments(plan, ranks=_RANKS, follower=True), answers=False)
    spec: dict[str, Any] = {} if threshold(plan) and plan_signals(plan) else {"replicas": 1}
    spec["leaderWorkerTemplate"] = {
        "size": pod.hosts(plan.launch),
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": _template(plan, leader, role="leader"),
        "workerTemplate": _template(plan, worker, role="worker"),
    }
    return {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": _meta(plan),
            "spec": spec}


def _service(plan: Plan) -> dict[str, Any]:
    chosen = {**_selector(plan), **({"role": "leader"} if plan.launch.nodes else {})}
    port = {"name": "http", "port": plan.launch.port, "targetPort": "http"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _meta(plan),
            "spec": {"type": "ClusterIP", "selector": chosen, "ports": [port]}}


def _budget(plan: Plan) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": _meta(plan),
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": _selector(plan)}}}


def _file(header: tuple[str, ...], notes: tuple[str, ...], document: object) -> str:
    lines = (*header, *(("", *notes) if notes else ()))
    return "\n".join(map(comment, lines)) + f"\n{dump_yaml(document)}"


def _usage(plan: Plan) -> tuple[str, ...]:
    name = pod.name_of(plan)
    look = f"kubectl -n {name} get pods" if plan.launch.nodes else f"kubectl -n {name} rollout status deployment/{name}"
    download = "." if plan.launch.model_is_local else ", and the download of the weights on the first."
    lines = [
        f"Start: kubectl apply -k {FOLDER}     Look: {look}     Stop: kubectl delete -k {FOLDER}",
        f"A start may take {pod.startup_budget_s(plan)} s (startupProbe): twice the one in the header{download}",
    ]
    required = [item["name"] for item in pod.secret_env(plan)]
    if required:
        lines.append(f"Secret: kubectl -n {name} create secret generic {pod.SECRETS} "
                     + " ".join(f'--from-literal={item}="${item}"' for item in required)
                     + ("" if any(not item["valueFrom"]["secretKeyRef"]["optional"] for item in pod.secret_env(plan))
                        else " (only if you have them)"))
    if plan.launch.nodes:
        lines.append("Needs the LeaderWorkerSet controller.")
    if threshold(plan) and plan_signals(plan):
        lines.append("Needs KEDA and a Prometheus that scrapes the pods; without them take scaledobject.yaml out.")
    lines.append("The server has no API key and is reachable inside the cluster only. Changes belong in an overlay.")
    return tuple(lines)
