"""k8s/: one server for `kubectl apply -k`, from the Deployment (or LeaderWorkerSet) to its autoscaler.

Objects are documents, dumped; nothing is pasted. What is yours belongs in an overlay that names this directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.domain.plan import Plan
from tuner.domain.record import content_hash
from tuner.output import pod
from tuner.output.autoscale import plan_signals, signals_refusal, threshold
from tuner.output.header import header_lines, short_header
from tuner.output.launch_files import launch_files
from tuner.output.pod import labels
from tuner.output.quoting import Block, comment, dump_yaml
from tuner.output.scalers import Entry, Scaler, adapter_values, pod_autoscaler, scaled_object

FOLDER = "k8s"
HPA_FOLDER = "k8s-hpa"
ADAPTER = "prometheus-adapter/values.yaml"
_RANKS = ("$(LWS_GROUP_SIZE)", "$(LWS_WORKER_INDEX)", "$(LWS_LEADER_ADDRESS)")


class KubernetesEmitter:
    """Plain manifests with a kustomization, scaled by KEDA."""

    name = "k8s"
    summary = "Kubernetes: kubectl apply -k k8s"

    def refusal(self, plan: Plan) -> str | None:
        """Say what a pod needs and the plan lacks."""
        return pod.refusal(plan)

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return the kustomization and one file for each object, or nothing."""
        return {} if self.refusal(plan) else _files(plan, FOLDER, ("scaledobject", scaled_object))


class HpaEmitter:
    """The same manifests, scaled by Kubernetes' own autoscaler through prometheus-adapter."""

    name = "k8s-hpa"
    summary = "the same with a HorizontalPodAutoscaler and prometheus-adapter in KEDA's place"

    def refusal(self, plan: Plan) -> str | None:
        """Say what a pod or its autoscaler needs and the plan lacks."""
        if reason := pod.refusal(plan) or signals_refusal(plan):
            return reason
        return None if threshold(plan) else "nothing was measured that keeps the SLO, so there is nothing to scale by"

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return the same files with the autoscaler, and the values of the adapter's chart; or nothing."""
        if self.refusal(plan):
            return {}
        files = _files(plan, HPA_FOLDER, ("horizontalpodautoscaler", pod_autoscaler))
        notes, values = adapter_values(plan)
        files[f"{HPA_FOLDER}/{ADAPTER}"] = _file(short_header(plan, "../kustomization.yaml"), notes, values)
        return files


def _files(plan: Plan, folder: str, scaler: tuple[str, Scaler]) -> dict[str, str]:
    objects = _objects(plan, scaler)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": pod.name_of(plan),
        "resources": [f"{name}.yaml" for name in objects],
    }
    main = "leaderworkerset" if plan.launch.nodes else "deployment"
    files = {f"{folder}/kustomization.yaml": _file(header_lines(plan), _usage(plan, folder), kustomization)}
    for name, (notes, document) in objects.items():
        head = header_lines(plan) if name == main else short_header(plan, "kustomization.yaml")
        files[f"{folder}/{name}.yaml"] = _file(head, notes, document)
    return files


def _objects(plan: Plan, scaler: tuple[str, Scaler]) -> dict[str, Entry]:
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
    kind, build = scaler
    scaled = build(plan, target=target, namespace=name)
    if scaled is not None:
        found["poddisruptionbudget"] = ((), _budget(plan))
        found[kind] = scaled
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
    shared = plan.launch.nodes is not None or threshold(plan) is not None or plan.sizing.replicas > 1
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
    spec: dict[str, Any] = {} if threshold(plan) and plan_signals(plan) else {"replicas": plan.sizing.replicas}
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
    spec: dict[str, Any] = {} if threshold(plan) and plan_signals(plan) else {"replicas": plan.sizing.replicas}
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


def _usage(plan: Plan, folder: str) -> tuple[str, ...]:
    name = pod.name_of(plan)
    look = f"kubectl -n {name} get pods" if plan.launch.nodes else f"kubectl -n {name} rollout status deployment/{name}"
    download = "." if plan.launch.model_is_local else ", and the download of the weights on the first."
    lines = [
        f"Start: kubectl apply -k {folder}     Look: {look}     Stop: kubectl delete -k {folder}",
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
        keda = "KEDA and a Prometheus that scrapes the pods; without them take scaledobject.yaml out"
        needs = (keda if folder == FOLDER
                 else f"a Prometheus that scrapes the pods and prometheus-adapter with the rule in {ADAPTER}")
        lines.append(f"Needs {needs}.")
    lines.append("The server has no API key and is reachable inside the cluster only. Changes belong in an overlay.")
    return tuple(lines)
