"""Rules about Kubernetes objects: the mistakes that schema checkers let through."""

from __future__ import annotations

import re

from tuner.inspect.issue import Report
from tuner.inspect.lint_pod import lint_pod
from tuner.inspect.read_kubernetes import Pod, objects, pod_specs, quantity
from tuner.inspect.tree import Tree
from tuner.inspect.view import View

_DNS = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_OLD_API = {
    "autoscaling/v2beta1": "autoscaling/v2",
    "autoscaling/v2beta2": "autoscaling/v2",
    "extensions/v1beta1": "apps/v1 or networking.k8s.io/v1",
    "apps/v1beta1": "apps/v1",
    "apps/v1beta2": "apps/v1",
    "policy/v1beta1": "policy/v1",
}


def lint_kubernetes(trees: list[Tree], pods: list[tuple[Pod, View]], report: Report) -> None:
    """Check the objects of a file; `pods` are the containers that run an engine."""
    everything = objects(trees)
    for item in everything:
        _names(item, report)
        _references(item, report)
        _quantities(item, report)
        _secrets(item, report)
    for pod, view in pods:
        if not pod.is_patch:
            lint_pod(pod, view, everything, report)
    _services(everything, pods, report)


def _names(item: Tree, report: Report) -> None:
    name = item.at("metadata", "name")
    if name.text and "{{" not in name.text and "$" not in name.text and not _DNS.match(name.text):
        report.error(
            name.line,
            "name-invalid",
            f"{item.at('kind').text} {name.text!r}: names are lower-case letters, digits, '-' and '.'",
            re.sub(r"[^a-z0-9.-]+", "-", name.text.lower()).strip("-"),
        )
    old = _OLD_API.get(item.at("apiVersion").text)
    if old:
        report.error(
            item.at("apiVersion").line, "api-removed", f"{item.at('apiVersion').text} is no longer served", f"use {old}"
        )
    old_port = item.at("spec", "targetPortNumber")
    if item.at("kind").text == "InferencePool" and old_port.exists:
        report.error(
            old_port.key_line,
            "api-removed",
            "InferencePool v1 has no targetPortNumber",
            f"targetPorts: [{{number: {old_port.text}}}]",
        )
    restart = item.at("spec", "leaderWorkerTemplate", "restartPolicy")
    if item.at("kind").text == "LeaderWorkerSet" and restart.text != "RecreateGroupOnPodRestart":
        report.warning(
            restart.line,
            "restart-group",
            "when one pod of the group restarts, the others hang on a rank that is gone",
            "restartPolicy: RecreateGroupOnPodRestart",
        )
    for key, node in item.walk():
        if key == "ports":
            for port in node.each():
                text = port.at("name").text
                if len(text) > 15:
                    report.error(port.at("name").line, "port-name", f"port name {text!r} has more than 15 letters")
    selector, labels = item.at("spec", "selector", "matchLabels"), item.at("spec", "template", "metadata", "labels")
    have = {key: value.text for key, value in labels.items()}
    for key, value in selector.items():
        if item.at("spec", "template").exists and have.get(key) != value.text:
            report.error(
                value.key_line,
                "selector-mismatch",
                f"the selector wants {key}={value.text}, but the pods carry {key}={have.get(key)}",
                "use the same labels in spec.selector.matchLabels and spec.template.metadata.labels",
            )


def _references(item: Tree, report: Report) -> None:
    claims = {claim.at("metadata", "name").text for claim in item.at("spec", "volumeClaimTemplates").each()}
    for spec in pod_specs(item):
        known = {volume.at("name").text for volume in spec.at("volumes").each()} | claims
        for container in [*spec.at("containers").each(), *spec.at("initContainers").each()]:
            for mount in container.at("volumeMounts").each():
                name = mount.at("name")
                if name.text and name.text not in known:
                    report.error(
                        name.line, "volume-undeclared", f"the volume {name.text!r} is mounted but not declared"
                    )


def _quantities(item: Tree, report: Report) -> None:
    for key, node in item.walk():
        if key not in ("limits", "requests") or not node.is_map:
            continue
        for resource, amount in node.items():
            if amount.text and "{{" not in amount.text and "$" not in amount.text and quantity(amount.text) is None:
                report.error(
                    amount.line,
                    "quantity-invalid",
                    f"{resource}: {amount.text!r} is no quantity",
                    "write e.g. 16Gi (binary) or 16G (decimal)",
                )


def _secrets(item: Tree, report: Report) -> None:
    if item.at("kind").text != "Secret":
        return
    for where in ("stringData", "data"):
        for key, value in item.at(where).items():
            if value.text and not re.search(r"[<{$]|replace|your|changeme", value.text, re.IGNORECASE):
                report.warning(
                    value.line,
                    "secret-in-file",
                    f"the Secret's {key} stands in this file; base64 hides nothing",
                    "create it with kubectl create secret, or from an external secret store",
                )


def _services(everything: list[Tree], pods: list[tuple[Pod, View]], report: Report) -> None:
    labelled = [(pod.labels, view) for pod, view in pods]
    by_label: dict[tuple[str, str], list[int]] = {}
    for place, (labels, _) in enumerate(labelled):
        for label in labels.items():
            by_label.setdefault(label, []).append(place)
    complete = len(pods) == sum(bool(pod_specs(obj)) for obj in everything) and all(labels for labels, _ in labelled)
    for item in everything:
        if item.at("kind").text != "Service" or not pods:
            continue
        selector = {key: value.text for key, value in item.at("spec", "selector").items()}
        candidates = by_label.get(next(iter(selector.items()), ("", "")), [])
        chosen = [labelled[place][1] for place in candidates if selector.items() <= labelled[place][0].items()]
        if selector and not chosen and complete:
            report.error(
                item.at("spec", "selector").line,
                "service-selector",
                f"Service {item.at('metadata', 'name').text} selects {selector}, which no pod of this file carries",
                "use the labels of the pods",
            )
        for view in chosen:
            has_key = "api-key" in view.arguments.words or "VLLM_API_KEY" in {*view.server.env, *view.server.passed}
            if item.at("spec", "type").text == "LoadBalancer" and not has_key:
                report.warning(
                    item.at("spec", "type").line,
                    "open-without-key",
                    "the load balancer is public unless annotated otherwise, and the server asks for no API key",
                    "make it internal, or set VLLM_API_KEY from a Secret",
                )
    claimed = {item.at("metadata", "name").text: item for item in everything if _is_single_claim(item)}
    for pod, view in pods:
        claims = {v.at("persistentVolumeClaim", "claimName").text for v in pod.spec.at("volumes").each()}
        for item in (claimed[name] for name in sorted(claims & claimed.keys())):
            if pod.replicas > 1:
                report.warning(
                    item.at("spec", "accessModes").line,
                    "volume-once",
                    f"{view.server.name} has {pod.replicas:g} replicas, but the volume can be mounted on one node only",
                    "ReadWriteMany, or a StatefulSet with a claim for each pod",
                )


def _is_single_claim(item: Tree) -> bool:
    modes = [mode.text for mode in item.at("spec", "accessModes").each()]
    return item.at("kind").text == "PersistentVolumeClaim" and modes == ["ReadWriteOnce"]
