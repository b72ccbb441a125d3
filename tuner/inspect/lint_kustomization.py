"""Rules about the files that a kustomization brings together: references that lead nowhere once all of them are known.

Each file of such a folder is right by itself, and no schema sees that a claim, a scale target or a port has another
name in the file beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tuner.inspect.issue import Issue, Report, ordered
from tuner.inspect.read_kubernetes import objects, pod_specs
from tuner.inspect.tree import Tree, read_documents

NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_ADDS = ("bases", "components", "generators", "configMapGenerator", "helmCharts", "namePrefix", "nameSuffix", "patches")
_CLUSTER_WIDE = ("kube-root-ca.crt",)


class _Found(NamedTuple):
    """One object and the report of its file."""

    item: Tree
    report: Report

    @property
    def kind(self) -> str:
        return self.item.at("kind").text

    @property
    def name(self) -> str:
        return self.item.at("metadata", "name").text


def lint_kustomization(file: str, text: str, sibling: Callable[[str], str | None]) -> tuple[Issue, ...]:
    """Check the resources of a kustomization against one another; `sibling` gives the text of a file beside it.

    Where something else adds or renames objects (a base, a generator, a patch), only missing files are said.
    """
    own = Report(file)
    folder = file.rpartition("/")[0]
    found: list[_Found] = []
    reports = [own]
    is_whole = True
    for tree in read_documents(text).trees:
        is_whole = is_whole and not any(tree.at(key).exists for key in _ADDS)
        for entry in tree.at("resources").each():
            if "/" in entry.text or not entry.text.endswith((".yaml", ".yml", ".json")):
                is_whole = False
                continue
            content = sibling(entry.text)
            if content is None:
                own.error(entry.line, "resource-missing", f"{entry.text} is not beside this file",
                          "write the file, or take it out of resources")
                is_whole = False
                continue
            report = Report(f"{folder}/{entry.text}" if folder else entry.text)
            reports.append(report)
            found += [_Found(item, report) for item in objects(read_documents(content).trees)]
    if is_whole and found:
        _claims_and_maps(found)
        _scalers(found)
        _selectors(found)
    return ordered([issue for report in reports for issue in report.issues])


def _claims_and_maps(found: list[_Found]) -> None:
    names = {(one.kind, one.name) for one in found}
    for one in found:
        for spec in pod_specs(one.item):
            wanted = [("PersistentVolumeClaim", volume.at("persistentVolumeClaim", "claimName"))
                      for volume in spec.at("volumes").each()]
            wanted += [("ConfigMap", volume.at("configMap", "name")) for volume in spec.at("volumes").each()]
            for container in [*spec.at("containers").each(), *spec.at("initContainers").each()]:
                wanted += [("ConfigMap", source.at("configMapRef", "name"))
                           for source in container.at("envFrom").each()]
                wanted += [("ConfigMap", variable.at("valueFrom", "configMapKeyRef", "name"))
                           for variable in container.at("env").each()]
            for kind, node in wanted:
                if node.text and node.text not in _CLUSTER_WIDE and (kind, node.text) not in names:
                    one.report.warning(
                        node.line, "reference-missing", f"no {kind} {node.text!r} is among the resources",
                        f"use the name of one that is there, or make sure that the namespace has {node.text!r}")


def _scalers(found: list[_Found]) -> None:
    names = {(one.kind, one.name) for one in found}
    for one in found:
        target = one.item.at("spec", "scaleTargetRef")
        if one.kind in ("ScaledObject", "HorizontalPodAutoscaler") and target.exists:
            kind, name = target.at("kind").text or "Deployment", target.at("name")
            if (kind, name.text) not in names:
                one.report.error(name.line, "scaler-target", f"no {kind} {name.text!r} is among the resources",
                                 "name the object that starts the server")


def _selectors(found: list[_Found]) -> None:
    pods = [(labels, spec) for one in found for labels, spec in _templates(one.item)]
    if not pods:
        return
    for one in found:
        if one.kind not in ("Service", "PodDisruptionBudget"):
            continue
        where = one.item.at("spec", "selector")
        where = where if one.kind == "Service" else where.at("matchLabels")
        wanted = {key: value.text for key, value in where.items()}
        chosen = [spec for labels, spec in pods if wanted.items() <= labels.items()]
        if wanted and not chosen:
            one.report.error(where.line, "service-selector",
                             f"no pod among the resources carries {', '.join(f'{k}={v}' for k, v in wanted.items())}",
                             "use the labels of the pod template")
        if one.kind == "Service" and chosen:
            _ports(one, chosen)


def _ports(service: _Found, chosen: list[Tree]) -> None:
    names = {port.at("name").text for spec in chosen for container in spec.at("containers").each()
             for port in container.at("ports").each()}
    for port in service.item.at("spec", "ports").each():
        target = port.at("targetPort")
        if target.text and target.number() is None and target.text not in names:
            service.report.error(target.line, "service-port", f"no container has a port named {target.text!r}",
                                 f"use {' or '.join(sorted(names - {''})) or 'a number'}")


def _templates(item: Tree) -> list[tuple[dict[str, str], Tree]]:
    """Return labels and spec of every pod template of an object."""
    group = item.at("spec", "leaderWorkerTemplate")
    templates = [item.at("spec", "template"), group.at("leaderTemplate"), group.at("workerTemplate")]
    return [({key: value.text for key, value in template.at("metadata", "labels").items()}, template.at("spec"))
            for template in templates if template.at("spec").exists]
