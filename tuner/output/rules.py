"""monitoring/rules.yaml: Prometheus rules that watch the SLO which the settings were chosen for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.domain.plan import Plan
from tuner.domain.slo import Limit
from tuner.facts.signals import Signals
from tuner.output.autoscale import in_flight_query, plan_signals, selector, signals_refusal, threshold
from tuner.output.header import header_lines
from tuner.output.pod import name_of
from tuner.output.quoting import comment, dump_yaml

FOLDER = "monitoring"
WINDOW = "5m"
_KV_FULL = 0.95


class PrometheusEmitter:
    """Recording and alerting rules."""

    name = "prometheus"
    summary = "Prometheus rules with the SLO as alerts"

    def refusal(self, plan: Plan) -> str | None:
        """Say that the server's metrics are not known."""
        return signals_refusal(plan)

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return `monitoring/rules.yaml`, or nothing."""
        found = plan_signals(plan)
        if found is None:
            return {}
        groups = [{"name": f"{name_of(plan)}.llmtune", "rules": [*_records(plan, found), *_alerts(plan, found)]}]
        head = "\n".join(map(comment, (*header_lines(plan), *_notes(plan))))
        return {f"{FOLDER}/rules.yaml": f"{head}\n{dump_yaml({'groups': groups})}"}


def quantile_query(plan: Plan, found: Signals, metric: str, percentile: float | None) -> str | None:
    """Return the PromQL of a latency in seconds over all replicas; None when the engine has no such histogram.

    `percentile` None is the mean. A quantile of a histogram is interpolated inside a bucket.
    """
    name = found.latency(metric)
    if name is None:
        return None
    where = selector(plan, found)
    if percentile is None:
        return f"sum(rate({name}_sum{{{where}}}[{WINDOW}])) / sum(rate({name}_count{{{where}}}[{WINDOW}]))"
    return f"histogram_quantile({percentile / 100:g}, sum by (le) (rate({name}_bucket{{{where}}}[{WINDOW}])))"


def per_replica(plan: Plan, found: Signals) -> str:
    """Return the PromQL of requests in flight a replica, also where one shows a series for each of its engines."""
    return f"({in_flight_query(plan, found)}) / count(count by (instance) ({found.running}{{{selector(plan, found)}}}))"


def watched(plan: Plan, found: Signals) -> list[tuple[Limit, str]]:
    """Return the limits of the SLO that the engine's histograms can show, each with its query."""
    pairs = [(limit, quantile_query(plan, found, limit.metric, limit.percentile)) for limit in plan.study.slo.limits]
    return [(limit, query) for limit, query in pairs if query is not None]


def unwatched(plan: Plan, found: Signals) -> list[Limit]:
    """Return the limits that only a client can see."""
    seen = [limit for limit, _ in watched(plan, found)]
    return [limit for limit in plan.study.slo.limits if limit not in seen]


def _records(plan: Plan, found: Signals) -> list[dict[str, Any]]:
    labels = {found.model_label: plan.launch.served_name}
    return [
        {"record": "llmtune:in_flight", "expr": in_flight_query(plan, found), "labels": labels},
        {"record": "llmtune:output_tokens_per_s", "labels": labels,
         "expr": f"sum(rate({found.output_tokens}{{{selector(plan, found)}}}[{WINDOW}]))"},
    ]


def _alerts(plan: Plan, found: Signals) -> list[dict[str, Any]]:
    where = selector(plan, found)
    alerts = [
        {**_alert("SloMissed", f"{query} > {limit.maximum / 1000:g}", "10m", "warning", f"{limit.text} is missed"),
         "labels": {"severity": "warning", "limit": limit.text}}
        for limit, query in watched(plan, found)
    ]
    limit = threshold(plan)
    if limit is not None:
        alerts.append(_alert(
            "MoreLoadThanMeasured", f"{per_replica(plan, found)} > {limit.in_flight}", "10m", "info",
            f"over {limit.in_flight} requests in flight a replica: {limit.why}"))
    alerts += [
        _alert("RequestsWait", f"min_over_time(sum({found.waiting}{{{where}}})[10m:1m]) > 0", "5m", "warning",
               "requests have waited for ten minutes: add a replica"),
        _alert("KvCacheFull", f"max({found.kv_usage}{{{where}}}) > {_KV_FULL}", "10m", "warning",
               "the KV cache is full: requests wait or are preempted"),
        _alert("NoServer", f"absent({found.running}{{{where}}})", "5m", "critical", "no server of this model is seen"),
    ]
    if found.preemptions:
        alerts.append(_alert("Preemptions", f"sum(rate({found.preemptions}{{{where}}}[{WINDOW}])) > 0.1", "10m", "info",
                             "requests are preempted and computed again"))
    return alerts


def _alert(name: str, expr: str, lasting: str, severity: str, summary: str) -> dict[str, Any]:
    return {"alert": f"Llm{name}", "expr": expr, "for": lasting, "labels": {"severity": severity},
            "annotations": {"summary": summary.replace("{{", "{ {")}}


def _notes(plan: Plan) -> tuple[str, ...]:
    found = plan_signals(plan)
    lines = ["", "Load with rule_files in prometheus.yml, or as the spec of a PrometheusRule.",
             "Quantiles are interpolated between the edges of the engine's buckets."]
    only_clients = [limit.text for limit in unwatched(plan, found)] if found else []
    if only_clients:
        lines.append(f"Not watched, because the server does not see it: {', '.join(only_clients)}.")
    return tuple(lines)
