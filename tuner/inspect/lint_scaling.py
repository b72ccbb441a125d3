"""Rules about autoscaling of servers: KEDA, HPA, and the PromQL in them and in Prometheus rules.

Facts: kedacore/keda pkg/scalers/prometheus_scaler.go (a query must give one series; the threshold is a text; no
metricName any more), and the arithmetic of the HPA: AverageValue wants total / target replicas whatever there are now,
Value scales the present number.
"""

from __future__ import annotations

import re

from packaging.version import Version

from tuner.facts.flags import parse_version
from tuner.facts.read import data
from tuner.inspect.issue import Report
from tuner.inspect.read_kubernetes import objects
from tuner.inspect.tree import Tree
from tuner.inspect.view import facts

_METRIC = re.compile(r"\b(?:ray_)?vllm([:_])([a-z][a-z0-9_]*)")
_SUFFIX = re.compile(r"_(?:bucket|sum|count|total)$")
_AGGREGATES = re.compile(
    r"\b(?:sum|avg|max|min|count|quantile|histogram_quantile|scalar|topk|bottomk|group)\s*(?:by|without|\()"
)
_RATIO = re.compile(r"cache_usage_perc|saturation|_utili[sz]ation|usage_perc")


def lint_scaling(trees: list[Tree], version: str, report: Report) -> None:
    """Check scalers and every PromQL expression of a file."""
    everything = objects(trees)
    targets: dict[str, str] = {}
    for item in everything:
        kind = item.at("kind").text
        target = item.at("spec", "scaleTargetRef", "name").text
        if kind == "HorizontalPodAutoscaler":
            _hpa(item, report)
        elif kind == "ScaledObject":
            _keda(item, report)
        if kind in ("HorizontalPodAutoscaler", "ScaledObject") and target:
            if target in targets:
                report.error(
                    item.at("kind").line,
                    "scaler-twice",
                    f"{target} is scaled by a {targets[target]} already; two scalers work against one another",
                    "keep one",
                )
            targets[target] = kind
    for tree in trees:
        for key, node in tree.walk():
            if key in ("query", "expr", "seriesQuery", "metricsQuery") and node.text:
                _query(node, version, report)
            if key == "triggers" and node.is_map and tree.at("servingEngineSpec").exists:
                _trigger_map(node, report)


def _bounds(item: Tree, low: str, high: str, report: Report) -> None:
    least, most = item.at("spec", low), item.at("spec", high)
    if least.number() is not None and most.number() is not None and (least.number() or 0) > (most.number() or 0):
        report.error(
            least.line,
            "scaler-bounds",
            f"{low} {least.text} is above {high} {most.text}",
            "swap them, or raise the upper",
        )


def _hpa(item: Tree, report: Report) -> None:
    _bounds(item, "minReplicas", "maxReplicas", report)
    if item.at("spec", "targetCPUUtilizationPercentage").exists:
        _wrong("cpu", item.at("spec", "targetCPUUtilizationPercentage").line, report)
    for metric in item.at("spec", "metrics").each():
        for source in ("resource", "containerResource"):
            name = metric.at(source, "name")
            if name.text in facts()["wrong_scaling"]:
                _wrong(name.text, name.line, report)
        for source in ("pods", "external", "object"):
            name = metric.at(source, "metric", "name")
            if name.text in facts()["wrong_scaling"]:
                _wrong(name.text, name.line, report)
            elif name.text.startswith("vllm_"):
                report.warning(
                    name.line,
                    "metric-name",
                    f"{name.text} matches only if an adapter renames it: the engine's names have a colon "
                    f"({name.text.replace('vllm_', 'vllm:', 1)})",
                    "look the name up with kubectl get --raw /apis/external.metrics.k8s.io/v1beta1",
                )
            target = metric.at(source, "target")
            if _RATIO.search(name.text) and target.at("averageValue").exists and source == "external":
                _ratio(name.line, name.text, report)


def _wrong(name: str, line: int, report: Report) -> None:
    report.warning(
        line,
        "scaling-signal",
        f"scaling on {name}: {facts()['wrong_scaling'][name]}",
        "scale on requests in flight: sum(vllm:num_requests_running) + sum(vllm:num_requests_waiting), target: what "
        "one replica holds within the SLO",
    )


def _keda(item: Tree, report: Report) -> None:
    _bounds(item, "minReplicaCount", "maxReplicaCount", report)
    triggers = item.at("spec", "triggers")
    if triggers.is_map:
        _trigger_map(triggers, report)
    for trigger in triggers.each():
        kind, metadata = trigger.at("type").text, trigger.at("metadata")
        if kind in ("cpu", "memory"):
            _wrong(kind, trigger.at("type").line, report)
        if kind == "prometheus":
            _prometheus_trigger(trigger, metadata, report)


def _trigger_map(node: Tree, report: Report) -> None:
    report.error(
        node.line, "keda-triggers", "triggers is a list; as a mapping KEDA refuses the object", "write `- type: ...`"
    )


def _prometheus_trigger(trigger: Tree, metadata: Tree, report: Report) -> None:
    threshold, query = metadata.at("threshold"), metadata.at("query")
    if not threshold.exists:
        report.error(metadata.line, "keda-threshold", "a prometheus trigger needs a threshold", 'threshold: "16"')
    elif not isinstance(threshold.value, str):
        report.error(
            threshold.line, "keda-threshold", "KEDA wants the threshold as a text", f'write "{threshold.text}"'
        )
    if metadata.at("metricName").exists:
        report.warning(
            metadata.at("metricName").key_line,
            "keda-metric-name",
            "KEDA no longer reads metricName",
            "take it out",
        )
    if query.text and not _AGGREGATES.search(query.text):
        report.error(
            query.line,
            "query-many-series",
            'the query gives one series for each replica, and KEDA stops with "returned multiple elements"',
            f"sum({query.text.strip()})",
        )
    how = trigger.at("metricType").text or "AverageValue"
    ratio = _RATIO.search(query.text) is not None and "sum(" not in query.text.replace(" ", "")
    average = re.match(r"\s*avg\b", query.text) is not None or "histogram_quantile" in query.text
    if how == "AverageValue" and (ratio or average):
        _ratio(query.line, query.text.strip(), report)


def _ratio(line: int, what: str, report: Report) -> None:
    report.error(
        line,
        "metric-type",
        f"{what[:60]} is a ratio or an average: as AverageValue it is divided by the number of replicas once more, so "
        "that it never asks for more than one or two",
        "metricType: Value",
    )


def _query(node: Tree, version: str, report: Report) -> None:
    if re.search(r"""[{,]\s*model\s*=""", node.text) and "vllm" in node.text:
        report.error(
            node.line, "query-label", "vLLM's label is model_name; {model=...} matches nothing", "write model_name="
        )
    for colon, name in dict.fromkeys(_METRIC.findall(node.text)):
        metric_name(colon, name, node.line, version, report)


def metric_name(colon: str, name: str, line: int, version: str, report: Report) -> None:
    """Say whether this version has the metric `vllm<colon><name>`."""
    table = data("vllm/metrics.yaml")
    full = f"vllm:{name}"
    base = full if full in table["metrics"] else _SUFFIX.sub("", full)
    entry = table["metrics"].get(base) or table["metrics"].get(_SUFFIX.sub("", base))
    if colon == "_":
        if entry is not None or full in table["replaced"]:
            report.error(line, "metric-name", f"vllm_{name} is no metric: the names have a colon", f"write {full}")
        return
    replaced = table["replaced"].get(base) or table["replaced"].get(full)
    if entry is None:
        if replaced:
            report.error(line, "metric-name", f"no release of vLLM has {full}", f"use {replaced}")
        return
    until = entry.get("until")
    successor = table["metrics"].get(base.removesuffix("_total"))
    if until is not None and parse_version(version) > Version(until) and (successor is None or "until" in successor):
        report.error(
            line,
            "metric-name",
            f"vllm {version} no longer exports {base}; {until} was the last release with it",
            f"use {replaced}" if replaced else "",
        )
    elif parse_version(version) < Version(entry["since"]) and not name.endswith("_total"):
        report.error(line, "metric-name", f"vllm {version} does not export {base} yet; it came with {entry['since']}")


def lint_values(tree: Tree, report: Report) -> None:
    """Check the values of vLLM's production stack for what its chart makes of them."""
    for model in tree.at("servingEngineSpec", "modelSpec").each():
        config = model.at("vllmConfig")
        if config.is_map and not config.at("enablePrefixCaching").exists:
            report.warning(
                config.key_line,
                "helm-prefix-caching",
                "without enablePrefixCaching the chart writes --no-enable-prefix-caching",
                "say enablePrefixCaching: true, or false on purpose",
            )
