"""The objects that add and take away replicas: KEDA's ScaledObject, or Kubernetes' HorizontalPodAutoscaler.

Both ask one query for the requests in flight over all replicas, and divide its one series by the measured threshold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from tuner.domain.plan import Plan
from tuner.output import pod
from tuner.output.autoscale import (
    SETTLE_S,
    in_flight_query,
    most_replicas,
    plan_signals,
    selector,
    threshold,
)

PROMETHEUS = "http://prometheus-operated.monitoring.svc:9090"
_MATCHERS = "\0matchers\0"
Entry = tuple[tuple[str, ...], dict[str, Any]]
"""An object, and what its file says of it."""


class Scaler(Protocol):
    """Makes the object that scales a target; None when there is no measured threshold."""

    def __call__(self, plan: Plan, *, target: Mapping[str, str], namespace: str) -> Entry | None:
        """Return notes and the object."""
        ...


def scaled_object(plan: Plan, *, target: Mapping[str, str], namespace: str) -> Entry | None:
    """Return notes and the KEDA ScaledObject that scales `target`; None when there is no measured threshold.

    Source of the fields: config/crd/bases/keda.sh_scaledobjects.yaml and pkg/scalers/prometheus_scaler.go of KEDA 2.
    """
    limit, found = threshold(plan), plan_signals(plan)
    if limit is None or found is None:
        return None
    settle = _settle_s(plan)
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
    most = most_replicas(plan)
    notes = (
        f"threshold: {limit.why}.",
        "One query, one series, averaged over replicas once. A query that gives nothing is an error, not zero load.",
        *_least(plan, "minReplicaCount"),
        f"serverAddress and maxReplicaCount ({most}) are not measured: patch both in an overlay.",
        f"Scaling down waits {settle} s, longer than a start takes.",
    )
    return notes, {
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": pod.name_of(plan), "labels": pod.labels(plan)},
        "spec": {
            "scaleTargetRef": dict(target),
            "minReplicaCount": plan.sizing.replicas,
            "maxReplicaCount": most,
            "pollingInterval": 15,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(settle)}},
            "triggers": [trigger],
        },
    }


def pod_autoscaler(plan: Plan, *, target: Mapping[str, str], namespace: str) -> Entry | None:  # noqa: ARG001
    """Return notes and the autoscaling/v2 object; the namespace of its metric is its own.

    An external metric with AverageValue asks for ceil(total / target) replicas, whatever there are now.
    """
    limit = threshold(plan)
    if limit is None:
        return None
    settle = _settle_s(plan)
    most = most_replicas(plan)
    notes = (
        f"averageValue: {limit.why}.",
        "The metric is made by prometheus-adapter. Look for it: kubectl get --raw " + _path(plan),
        "Where it is missing the number of replicas stays as it is.",
        *_least(plan, "minReplicas"),
        f"maxReplicas ({most}) is not measured: patch it in an overlay.",
        f"Scaling down waits {settle} s, longer than a start takes.",
    )
    return notes, {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": pod.name_of(plan), "labels": pod.labels(plan)},
        "spec": {
            "scaleTargetRef": dict(target),
            "minReplicas": plan.sizing.replicas,
            "maxReplicas": most,
            "metrics": [{"type": "External", "external": {
                "metric": {"name": metric_name(plan)},
                "target": {"type": "AverageValue", "averageValue": str(limit.in_flight)},
            }}],
            "behavior": _behavior(settle),
        },
    }


def adapter_values(plan: Plan) -> Entry:
    """Return notes and values for the chart of prometheus-adapter: one external metric of one series.

    Source: docs/externalmetrics.md of kubernetes-sigs/prometheus-adapter; `<<.LabelMatchers>>` holds the namespace.
    """
    limit, found = threshold(plan), plan_signals(plan)
    if limit is None or found is None:
        raise TypeError("a plan without a threshold or metrics has no autoscaler")
    # the queries are Go templates, in which << begins an action
    series = f'{found.running}{{namespace!="", {selector(plan, found)}}}'.replace("<", r"\x3c")
    query = in_flight_query(plan, found, _MATCHERS).replace("<", r"\x3c").replace(_MATCHERS, "<<.LabelMatchers>>")
    rule = {
        "seriesQuery": series,
        "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
        "name": {"as": metric_name(plan)},
        "metricsQuery": query,
    }
    notes = (
        "Values for the Helm chart prometheus-community/prometheus-adapter.",
        "rules.external is a list: it takes the place of that of another values file.",
        "prometheus.url and prometheus.port are yours to set.",
    )
    return notes, {"rules": {"external": [rule]}}


def metric_name(plan: Plan) -> str:
    """Return the name of the external metric, one for each model. The engine's own names have a colon."""
    return f"llmtune_in_flight_{pod.name_of(plan).replace('-', '_')}"


def _path(plan: Plan) -> str:
    return f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{pod.name_of(plan)}/{metric_name(plan)}"


def _least(plan: Plan, field: str) -> tuple[str, ...]:
    replicas = plan.sizing.replicas
    return (f"{field}: the {replicas} replicas that fill the measured machine.",) if replicas > 1 else ()


def _settle_s(plan: Plan) -> int:
    return min(max(SETTLE_S, math.ceil(plan.sizing.start_s / 60) * 60), 1800)


def _behavior(settle_s: int) -> dict[str, Any]:
    return {
        "scaleDown": {"stabilizationWindowSeconds": settle_s,
                      "policies": [{"type": "Pods", "value": 1, "periodSeconds": settle_s}]},
        "scaleUp": {"stabilizationWindowSeconds": 0,
                    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]},
    }
