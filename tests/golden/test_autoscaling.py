"""Published autoscaling examples are wrong in ways that a test can prove; each test here is one that ours does not make.

Sources: production-stack tutorials/assets/keda-scaled-object.yaml and values.schema.json, llm-d keda-epp-saturation and
llm-d-autoscaling issue 1517, kthena issues 831 and 868, vLLM examples/deployment/chart-helm, docs/deployment/k8s.md.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.fakes.cases import EVERY_FORMAT, data_parallel, replicas, speculative, switched_off
from tests.fakes.plans import make_plan, predicted_plan
from tuner.facts.signals import signals
from tuner.output.autoscale import in_flight_query, plan_signals, requests_per_s, threshold
from tuner.output.rules import per_replica
from tuner.output.scalers import adapter_values

pytestmark = pytest.mark.golden

HERE = Path(__file__).parent
SCALED = sorted(path for path in HERE.glob("*/deploy/**/scaledobject.yaml"))
EVERYTHING = sorted(path for path in HERE.glob("*/deploy/**/*.y*ml"))


@pytest.fixture(params=SCALED, ids=lambda path: "-".join(path.relative_to(HERE).parts[::2]))
def scaled(request):
    return yaml.safe_load(request.param.read_text())


def test_there_are_scalers_to_look_at():
    assert len(SCALED) >= 8


def test_triggers_are_a_list_and_thresholds_are_strings(scaled):
    """production-stack's schema wants a mapping, which KEDA refuses; a number as threshold is refused too."""
    [trigger] = scaled["spec"]["triggers"]
    assert isinstance(trigger["metadata"]["threshold"], str)
    assert int(trigger["metadata"]["threshold"]) >= 1


def test_the_query_is_aggregated_and_pins_namespace_and_model(scaled):
    """An unaggregated query fails from the second replica on; without both labels it sums other tenants."""
    [trigger] = scaled["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    parts = re.findall(r"sum\([a-z_:]+\{.*?\}\)(?= \+ sum|$)", query)
    assert " + ".join(parts) == query
    assert all('namespace="' in part and 'model_name="' in part for part in parts)
    assert "metricName" not in trigger["metadata"]


def test_the_signal_is_load_in_flight_and_not_the_queue_alone(scaled):
    """A queue is empty until it is too late, so a scaler on the queue alone flaps to its minimum."""
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    assert "num_requests_running" in query
    assert "num_requests_waiting" in query


def test_a_total_is_averaged_over_replicas_once(scaled):
    """avg() with AverageValue divides twice (kthena issue 831); names have their colon (issue 868)."""
    [trigger] = scaled["spec"]["triggers"]
    assert trigger["metricType"] == "AverageValue"
    assert "avg(" not in trigger["metadata"]["query"]
    assert "vllm_" not in trigger["metadata"]["query"]


def test_no_ratio_is_averaged_over_replicas(scaled):
    """A ratio with AverageValue can never ask for more than ceil(1 / target) replicas."""
    for trigger in scaled["spec"]["triggers"]:
        assert not re.search(r"usage|utilization|saturation|perc", trigger["metadata"]["query"])


def test_nothing_scales_on_cpu_gpu_or_memory():
    """vLLM's example chart scales on CPU utilisation, which says nothing of a GPU server."""
    seen = 0
    for path in EVERYTHING:
        document = yaml.safe_load(path.read_text())
        if isinstance(document, dict) and document.get("kind") == "HorizontalPodAutoscaler":
            seen += 1
            assert [metric["type"] for metric in document["spec"]["metrics"]] == ["External"]
        assert "DCGM" not in path.read_text()
    assert seen >= 8


def test_the_pod_autoscaler_asks_the_same_question_as_keda():
    """One external metric, AverageValue, the same threshold and query; its name has no colon and is nobody else's."""
    names = []
    for path in sorted(HERE.glob("*/deploy/k8s-hpa/horizontalpodautoscaler.yaml")):
        spec = yaml.safe_load(path.read_text())["spec"]
        keda = yaml.safe_load((path.parents[1] / "k8s/scaledobject.yaml").read_text())["spec"]
        [rule] = yaml.safe_load((path.parent / "prometheus-adapter/values.yaml").read_text())["rules"]["external"]
        metric, trigger = spec["metrics"][0]["external"], keda["triggers"][0]
        assert metric["target"] == {"type": "AverageValue", "averageValue": trigger["metadata"]["threshold"]}
        assert metric["metric"]["name"] == rule["name"]["as"]
        assert re.fullmatch(r"llmtune_in_flight_[a-z0-9_]+", rule["name"]["as"])
        assert rule["metricsQuery"].count("<<") == rule["metricsQuery"].count("<<.LabelMatchers>>") == 2
        asked = re.sub(r'namespace="[^"]*"', "<<.LabelMatchers>>", trigger["metadata"]["query"])
        assert rule["metricsQuery"] == asked.replace("\\u003c", "\\x3c")
        assert spec["scaleTargetRef"] == keda["scaleTargetRef"]
        assert spec["behavior"] == keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        assert (spec["minReplicas"], spec["maxReplicas"]) == (keda["minReplicaCount"], keda["maxReplicaCount"])
        assert not (path.parent / "scaledobject.yaml").exists()
        names.append(rule["name"]["as"])
    assert len(names) >= 8


def test_a_name_cannot_begin_a_template_of_the_adapter():
    plan = speculative()
    nasty = plan.model_copy(update={"launch": plan.launch.model_copy(update={"served_name": 'a<<.X>>"b'})})
    _, values = adapter_values(nasty)
    [rule] = values["rules"]["external"]
    assert "<" not in rule["seriesQuery"]
    assert rule["metricsQuery"].replace("<<.LabelMatchers>>", "").count("<") == 0
    assert "a\\x3c\\x3c.X>>" in rule["metricsQuery"]


def test_the_threshold_of_several_replicas_is_that_of_one():
    many = replicas()
    without = many.model_copy(update={"sizing": many.sizing.model_copy(update={"knee_in_flight": None})})
    assert threshold(many).in_flight == 12
    assert threshold(without).in_flight == 12
    assert "64 clients over 4 replicas" in threshold(without).why


def test_scaling_down_waits_longer_than_a_start(scaled):
    behavior = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] >= 300
    assert scaled["spec"]["minReplicaCount"] >= 1


def test_a_missing_metric_is_an_error_and_not_no_load(scaled):
    assert scaled["spec"]["triggers"][0]["metadata"]["ignoreNullValues"] == "false"
    assert "fallback" not in scaled["spec"]


def test_probes_know_the_start_and_do_not_wait_blindly():
    """vLLM's page has initialDelaySeconds only, and pods are killed while they load."""
    seen = 0
    for path in EVERYTHING:
        text = path.read_text()
        assert "initialDelaySeconds" not in text
        for budget, period in re.findall(r"periodSeconds: (\d+)\n\s+timeoutSeconds: \d+\n\s+failureThreshold: (\d+)", text):
            seen += int(budget) * int(period) > 0
        assert not re.search(r"Probe:\n(?:(?!Probe).)*timeoutSeconds: [1-4]\n", text, re.DOTALL)
    assert seen > 20


def test_no_service_is_named_vllm_and_no_links_are_injected():
    """Kubernetes would set VLLM_PORT to tcp://..., which vLLM reads."""
    for path in EVERYTHING:
        document = yaml.safe_load(path.read_text())
        if isinstance(document, dict) and document.get("kind") == "Service":
            assert document["metadata"]["name"] != "vllm"
        if isinstance(document, dict) and document.get("kind") == "Deployment" and path.parent.name == "k8s":
            assert document["spec"]["template"]["spec"]["enableServiceLinks"] is False
            assert document["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 0


def test_no_token_stands_in_a_file_and_no_image_floats():
    for path in HERE.glob("*/deploy/**/*"):
        if path.is_file():
            text = path.read_text()
            assert not re.search(r"hf_[A-Za-z0-9]{8,}|<your-hf-token>", text)
            assert ":latest" not in text
            assert not re.search(r"^version:", text, re.MULTILINE)


def test_the_threshold_is_80_percent_of_the_knee_or_of_what_was_measured():
    assert threshold(speculative()).in_flight == 46
    assert "MEASURED" in threshold(speculative()).why
    assert threshold(make_plan()).in_flight == 12
    assert "16 clients" in threshold(make_plan()).why
    assert threshold(switched_off()).in_flight == 2
    assert "Little" in threshold(switched_off()).why


def test_without_a_measurement_that_keeps_the_slo_there_is_no_scaler():
    for plan in (predicted_plan(), data_parallel()):
        assert threshold(plan) is None
        assert requests_per_s(plan) is None
    assert not list(HERE.glob("predicted-all/deploy/**/scaledobject.yaml"))
    assert not list(HERE.glob("a100x4-data-parallel/deploy/**/scaledobject.yaml"))


def test_metrics_of_old_versions_and_other_pages_are_not_guessed():
    assert signals("vllm", "0.10.1", "/metrics") is None
    assert signals("trtllm", "1.2.1", "/metrics") is None
    assert signals("other", "1.0", "/metrics") is None


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here")
def test_queries_give_one_series_with_the_right_sum(tmp_path):
    """Two replicas, one of them with two engines, and another tenant's server in the same Prometheus."""
    plan = speculative()
    found = plan_signals(plan)
    model = plan.launch.served_name
    series = []
    for labels, running, waiting in (
        (f'namespace="a", model_name="{model}", instance="1", engine="0"', 10, 1),
        (f'namespace="a", model_name="{model}", instance="1", engine="1"', 20, 2),
        (f'namespace="a", model_name="{model}", instance="2", engine="0"', 30, 3),
        (f'namespace="b", model_name="{model}", instance="3", engine="0"', 500, 0),
        ('namespace="a", model_name="another", instance="4", engine="0"', 700, 0),
    ):
        series += [{"series": f"{found.running}{{{labels}}}", "values": f"{running}x40"},
                   {"series": f"{found.waiting}{{{labels}}}", "values": f"{waiting}x40"}]
    ours = in_flight_query(plan, found, 'namespace="a"')
    [rule] = adapter_values(plan)[1]["rules"]["external"]
    through_the_adapter = rule["metricsQuery"].replace("<<.LabelMatchers>>", 'namespace="a"')
    expectations = [
        {"expr": ours, "eval_time": "5m", "exp_samples": [{"labels": "{}", "value": 66}]},
        {"expr": through_the_adapter, "eval_time": "5m", "exp_samples": [{"labels": "{}", "value": 66}]},
        {"expr": per_replica(plan, found), "eval_time": "5m", "exp_samples": [{"labels": "{}", "value": (566) / 3}]},
    ]
    rules = HERE / "h100x2-speculative/deploy/monitoring/rules.yaml"
    test = tmp_path / "test.yaml"
    test.write_text(yaml.safe_dump({
        "rule_files": [str(rules)], "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": expectations, "alert_rule_test": [
            {"eval_time": "30m", "alertname": "LlmNoServer", "exp_alerts": []}]}]}))
    done = subprocess.run(["promtool", "test", "rules", str(test)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here")
def test_a_missed_slo_raises_the_alert_and_a_kept_one_does_not(tmp_path):
    plan = speculative()
    rules = HERE / "h100x2-speculative/deploy/monitoring/rules.yaml"
    name = "vllm:time_to_first_token_seconds_bucket"
    for slow, alerts in ((True, 1), (False, 0)):
        counts = {"0.25": 0 if slow else 10, "0.5": 0 if slow else 10, "1.0": 10, "+Inf": 10}
        series = [{"series": f'{name}{{model_name="{plan.launch.served_name}", instance="1", le="{edge}"}}',
                   "values": f"0+{count}x60"} for edge, count in counts.items()]
        summary = "p95 ttft<=500ms is missed"
        expected = [{"exp_labels": {"severity": "warning", "limit": "p95 ttft<=500ms"}, "exp_annotations": {"summary": summary}}]
        test = tmp_path / f"{slow}.yaml"
        test.write_text(yaml.safe_dump({
            "rule_files": [str(rules)], "evaluation_interval": "1m",
            "tests": [{"interval": "1m", "input_series": series, "alert_rule_test": [
                {"eval_time": "40m", "alertname": "LlmSloMissed", "exp_alerts": expected[:alerts]}]}]}))
        done = subprocess.run(["promtool", "test", "rules", str(test)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_wrong_example_is_about_files_that_exist():
    assert set(EVERY_FORMAT) <= {path.name for path in HERE.iterdir()}
