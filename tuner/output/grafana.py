"""monitoring/dashboard.json: a Grafana dashboard of the engine's metrics with the SLO drawn in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.domain.plan import Plan
from tuner.facts.signals import Signals
from tuner.output import numbers
from tuner.output.autoscale import plan_signals, selector, signals_refusal, threshold
from tuner.output.header import header_lines
from tuner.output.quoting import dump_json, visible
from tuner.output.rules import FOLDER, WINDOW, per_replica, quantile_query
from tuner.output.words import doubts

_NAMES = {"ttft": "Time to first token", "itl": "Inter-token latency", "tpot": "Time per output token",
          "e2e": "End-to-end latency"}
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT = 12, 8
Target = tuple[str, str]


class GrafanaEmitter:
    """One dashboard; latencies show the limits of the SLO as lines."""

    name = "grafana"
    summary = "a Grafana dashboard with the SLO drawn in"

    def refusal(self, plan: Plan) -> str | None:
        """Say that the server's metrics are not known."""
        return signals_refusal(plan)

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return `monitoring/dashboard.json`, or nothing."""
        found = plan_signals(plan)
        if found is None:
            return {}
        return {f"{FOLDER}/dashboard.json": dump_json(_dashboard(plan, found))}


def _dashboard(plan: Plan, found: Signals) -> dict[str, Any]:
    panels = [_text(plan), *_latencies(plan, found), *_load(plan, found)]
    for number, panel in enumerate(panels):
        panel["id"] = number + 1
        if number:
            row, column = divmod(number - 1, 2)
            panel["gridPos"] = {"h": _HEIGHT, "w": _WIDTH, "x": column * _WIDTH, "y": 5 + row * _HEIGHT}
    return {
        "uid": f"llmtune-{plan.plan_id}",
        "title": f"{visible(plan.launch.served_name)} on {plan.config.engine}",
        "description": f"Written by llmtune {plan.tool_version} from plan {plan.plan_id}. Do not edit; save a copy.",
        "tags": ["llmtune"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]},
        "panels": panels,
    }


def _text(plan: Plan) -> dict[str, Any]:
    label = numbers.label(plan)
    shown = (label, "verdict", "SLO", "workload", "hardware")
    lines = [*doubts(plan), *(line for line in header_lines(plan)[2:] if line.startswith(shown))]
    content = "\n".join(f"    {visible(line)}" for line in lines)
    return {"type": "text", "title": f"What these settings were chosen for ({label})",
            "gridPos": {"h": 5, "w": 24, "x": 0, "y": 0}, "options": {"mode": "markdown", "content": content}}


def _latencies(plan: Plan, found: Signals) -> list[dict[str, Any]]:
    panels = []
    for metric, title in _NAMES.items():
        limits = [limit for limit in plan.study.slo.limits if limit.metric == metric]
        wanted = {50.0, 95.0, 99.0} | {limit.percentile for limit in limits if limit.percentile is not None}
        asked: list[float | None] = [*sorted(wanted), *([None] if any(x.percentile is None for x in limits) else [])]
        targets: list[Target] = []
        for percentile in asked:
            query = quantile_query(plan, found, metric, percentile)
            if query is not None:
                targets.append((query, "mean" if percentile is None else f"p{percentile:g}"))
        if targets:
            said = f" (SLO: {', '.join(limit.text for limit in limits)})" if limits else ""
            panels.append(_series(f"{title}{said}", targets, "s", [limit.maximum / 1000 for limit in limits]))
    return panels


def _load(plan: Plan, found: Signals) -> list[dict[str, Any]]:
    where = selector(plan, found)
    limit = threshold(plan)
    panels = [
        _series("Requests in flight, a replica", [(per_replica(plan, found), "running and waiting")], "short",
                [float(limit.in_flight)] if limit else []),
        _series("Requests that wait", [(f"sum({found.waiting}{{{where}}})", "all replicas")], "short", []),
        _series("Output tokens/s", [
            (f"sum(rate({found.output_tokens}{{{where}}}[{WINDOW}]))", "all replicas"),
        ], "short", []),
        _series("KV cache in use", [(f"max({found.kv_usage}{{{where}}})", "fullest replica")], "percentunit", [0.95]),
    ]
    if found.preemptions:
        rate = f"sum(rate({found.preemptions}{{{where}}}[{WINDOW}]))"
        panels.append(_series("Preemptions/s", [(rate, "all replicas")], "short", []))
    return panels


def _series(title: str, targets: Sequence[Target], unit: str, limits: Sequence[float]) -> dict[str, Any]:
    """Return a time series; limits are dashed lines."""
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    steps += [{"color": "red", "value": limit} for limit in sorted(set(limits))]
    custom = {"thresholdsStyle": {"mode": "dashed"}} if limits else {}
    return {
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": custom,
                                     "thresholds": {"mode": "absolute", "steps": steps}}, "overrides": []},
        "targets": [{"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend, "datasource": _SOURCE}
                    for index, (query, legend) in enumerate(targets)],
    }
