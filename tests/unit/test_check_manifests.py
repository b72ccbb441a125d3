"""Mutations of good files that schema checkers let through, each found by one rule; and good files left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner.app.check import check_paths
from tuner.inspect.inspect_file import check_text
from tuner.inspect.issue import Issue
from tuner.inspect.view import Context

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parent.parent
BUNDLES = sorted(path.parent for path in ROOT.glob("golden/*/deploy"))

ABOUT_SETTINGS = {"backend-takes-keys", "memory-share", "fp8-kv-has-scales", "eager-mode", "dtype-float32", "trtllm-build"}
"""What is said of the settings themselves, which were measured, and of a build that is legacy."""

MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: chat-server
spec:
  replicas: 1
  strategy: {type: Recreate}
  selector:
    matchLabels: {app: chat}
  template:
    metadata:
      labels: {app: chat}
    spec:
      enableServiceLinks: false
      terminationGracePeriodSeconds: 75
      containers:
        - name: server
          image: vllm/vllm-openai:v0.32.0
          args:
            - Qwen/Qwen3-32B
            - --tensor-parallel-size
            - "2"
            - --shutdown-timeout
            - "45"
          env:
            - {name: VLLM_API_KEY, valueFrom: {secretKeyRef: {name: keys, key: api}}}
          ports:
            - {name: http, containerPort: 8000}
          resources:
            limits: {nvidia.com/gpu: 2, memory: 100Gi}
            requests: {nvidia.com/gpu: 2, cpu: "8"}
          startupProbe:
            httpGet: {path: /health, port: http}
            periodSeconds: 10
            failureThreshold: 120
          livenessProbe:
            httpGet: {path: /health, port: http}
            timeoutSeconds: 10
          readinessProbe:
            httpGet: {path: /health, port: http}
            timeoutSeconds: 10
          lifecycle: {preStop: {exec: {command: [sleep, "15"]}}}
          volumeMounts:
            - {name: shm, mountPath: /dev/shm}
            - {name: cache, mountPath: /root/.cache}
      volumes:
        - {name: shm, emptyDir: {medium: Memory, sizeLimit: 16Gi}}
        - {name: cache, persistentVolumeClaim: {claimName: hub}}
---
apiVersion: v1
kind: Service
metadata: {name: chat-server}
spec:
  selector: {app: chat}
  ports: [{port: 80, targetPort: 8000}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: hub}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 200Gi}}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: chat-server}
spec:
  scaleTargetRef: {name: chat-server}
  minReplicaCount: 1
  maxReplicaCount: 4
  triggers:
    - type: prometheus
      metricType: AverageValue
      metadata:
        serverAddress: http://prometheus:9090
        query: sum(vllm:num_requests_running{namespace="llm",model_name="qwen"}) + sum(vllm:num_requests_waiting{namespace="llm",model_name="qwen"})
        threshold: "48"
"""


def check(text: str, name: str = "k8s.yaml", version: str | None = None) -> tuple[Issue, ...]:
    return check_text(name, text, Context(version=version))


def test_a_good_manifest_is_left_alone() -> None:
    issues = [issue.text for issue in check(MANIFEST) if issue.severity != "note"]
    assert issues == []


# rule, severity, what is written, what it becomes
MUTATIONS: list[Any] = [
    ("selector-mismatch", "error", "labels: {app: chat}", "labels: {app: chats}"),
    ("volume-undeclared", "error", "{name: shm, mountPath", "{name: sharedmem, mountPath"),
    ("name-invalid", "error", "metadata:\n  name: chat-server", "metadata:\n  name: Qwen3_32B"),
    ("port-name", "error", "{name: http, containerPort: 8000}", "{name: openai-compatible-http, containerPort: 8000}"),
    ("quantity-invalid", "error", "memory: 100Gi", "memory: 16gb"),
    ("gpu-limit", "error", "requests: {nvidia.com/gpu: 2", "requests: {nvidia.com/gpu: 1"),
    ("gpu-count", "error", '--tensor-parallel-size\n            - "2"', '--tensor-parallel-size\n            - "4"'),
    ("gpu-count", "warning", "nvidia.com/gpu: 2", "nvidia.com/gpu: 4"),
    ("service-name-vllm", "error", "      enableServiceLinks: false\n", "", ),
    ("startup-budget", "warning", "failureThreshold: 120", "failureThreshold: 6"),
    ("grace-short", "warning", "terminationGracePeriodSeconds: 75", "terminationGracePeriodSeconds: 50"),
    ("scaler-bounds", "error", "minReplicaCount: 1", "minReplicaCount: 9"),
    ("rollout-surge", "note", "  strategy: {type: Recreate}\n", ""),
    ("probe-timeout", "warning", "readinessProbe:\n            httpGet: {path: /health, port: http}\n            timeoutSeconds: 10", "readinessProbe:\n            httpGet: {path: /health, port: http}"),
    ("image-floating", "warning", "vllm-openai:v0.32.0", "vllm-openai"),
    ("image-floating", "warning", "vllm-openai:v0.32.0", "vllm-openai:latest"),
    ("flag-removed", "error", "--shutdown-timeout", "--swap-space"),
    ("secret-in-clear", "error", "valueFrom: {secretKeyRef: {name: keys, key: api}}", "value: hf_abcdefghijklmnopqrstuvwx"),
    ("query-many-series", "error", 'sum(vllm:num_requests_running{namespace="llm",model_name="qwen"}) + sum(vllm:num_requests_waiting{namespace="llm",model_name="qwen"})', "vllm:num_requests_waiting"),
    ("query-label", "error", "model_name=", "model="),
    ("metric-type", "error", 'sum(vllm:num_requests_running{namespace="llm",model_name="qwen"}) + sum(vllm:num_requests_waiting{namespace="llm",model_name="qwen"})', "max(llm_d_epp_flow_control_pool_saturation)"),
    ("metric-type", "error", 'sum(vllm:num_requests_running{namespace="llm",model_name="qwen"}) + sum(vllm:num_requests_waiting{namespace="llm",model_name="qwen"})', "avg(vllm:num_requests_waiting)"),
    ("metric-name", "error", "vllm:num_requests_running{", "vllm:gpu_cache_usage_factor{"),
    ("metric-name", "error", "vllm:num_requests_running{", "vllm:avg_generation_throughput_toks_per_s{"),
    ("keda-threshold", "error", 'threshold: "48"', "threshold: 48"),
    ("keda-metric-name", "warning", 'threshold: "48"', 'threshold: "48"\n        metricName: waiting'),
    ("keda-triggers", "error", "triggers:\n    - type: prometheus", "triggers:\n      type: prometheus"),
    ("volume-once", "warning", "replicas: 1\n", "replicas: 2\n"),
    ("service-selector", "error", "kind: Service\nmetadata: {name: chat-server}\nspec:\n  selector: {app: chat}", "kind: Service\nmetadata: {name: chat-server}\nspec:\n  selector: {app: other}"),
    ("probe-port", "error", "{name: http, containerPort: 8000}", "{name: http, containerPort: 8080}"),
    ("startup-probe", "error", "startupProbe:", "unusedProbe:"),
    ("shm-missing", "error", "            - {name: shm, mountPath: /dev/shm}\n", ""),
    ("shm-unmounted", "error", "            - {name: shm, mountPath: /dev/shm}\n", ""),
    ("cache-volume", "warning", "            - {name: cache, mountPath: /root/.cache}\n", ""),
    ("memory-limit", "warning", "memory: 100Gi", "memory: 6Gi"),
    ("memory-limit", "note", "memory: 100Gi", "memory: 20Gi"),
    ("flag-list-item", "error", '- --tensor-parallel-size\n            - "2"', "- --tensor-parallel-size 2"),
    ("entrypoint-repeated", "error", "- Qwen/Qwen3-32B", "- vllm\n            - serve\n            - Qwen/Qwen3-32B"),
    ("env-removed", "error", "{name: VLLM_API_KEY, valueFrom: {secretKeyRef: {name: keys, key: api}}}", "{name: VLLM_USE_V1, value: '1'}"),
    ("open-without-key", "warning", "spec:\n  selector: {app: chat}", "spec:\n  type: LoadBalancer\n  selector: {app: chat}"),
    ("host-loopback", "error", '            - --shutdown-timeout\n            - "45"\n', "            - --host\n            - 127.0.0.1\n"),
    ("api-removed", "error", "apiVersion: apps/v1", "apiVersion: extensions/v1beta1"),
    ("key-twice", "warning", "      enableServiceLinks: false\n", "      enableServiceLinks: false\n      enableServiceLinks: false\n"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "severity", "old", "new"), MUTATIONS, ids=[f"{m[0]}-{n}" for n, m in enumerate(MUTATIONS)]
)
def test_mutation(rule: str, severity: str, old: str, new: str) -> None:
    assert old in MANIFEST
    text = MANIFEST.replace(old, new)
    if rule == "service-name-vllm":
        text = text.replace("kind: Service\nmetadata: {name: chat-server}", "kind: Service\nmetadata: {name: vllm}")
    if rule == "open-without-key":
        text = text.replace(
            "            - {name: VLLM_API_KEY, valueFrom: {secretKeyRef: {name: keys, key: api}}}\n",
            "            - {name: A, value: b}\n",
        )
    hits = [issue for issue in check(text) if issue.rule == rule and issue.severity == severity]
    assert hits, [issue.text for issue in check(text)]
    assert all(1 <= issue.line <= text.count("\n") + 1 for issue in hits)


def test_scaling_on_cpu_up_g21() -> None:
    text = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: vllm}\nspec: {maxReplicas: 3, metrics: [{type: Resource, resource: {name: cpu, target: {averageUtilization: 80}}}]}\n"
    assert [(issue.rule, issue.line) for issue in check(text)] == [("scaling-signal", 4)]


def test_hpa_and_keda_on_one_target() -> None:
    text = (
        MANIFEST
        + "---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: x}\nspec: {scaleTargetRef: {name: chat-server}, maxReplicas: 4}\n"
    )
    assert "scaler-twice" in {issue.rule for issue in check(text)}


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("pool.yaml", "apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {name: p}\nspec: {targetPortNumber: 8000}\n", "api-removed"),
        ("lws.yaml", "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: p}\nspec: {leaderWorkerTemplate: {size: 2}}\n", "restart-group"),
        ("values.yaml", "servingEngineSpec: {modelSpec: [{name: m, modelURL: a/b, vllmConfig: {tensorParallelSize: 1}}]}\n", "helm-prefix-caching"),
        ("values.yaml", "servingEngineSpec: {keda: {triggers: {a: {type: prometheus}}}, modelSpec: [{vllmConfig: {}}]}\n", "keda-triggers"),
        ("compose.yaml", "services: {a: {image: 'vllm/vllm-openai:v0.32.0', command: [a/b], deploy: {restart_policy: {condition: allways}}}}\n", "restart-unknown"),
        ("compose.yaml", "services: {a: {image: 'vllm/vllm-openai:v0.32.0', command: [a/b], restart: on-fail}}\n", "restart-unknown"),
        ("compose.yaml", "services: {a: {image: 'vllm/vllm-openai:v0.32.0', command: [a/b], healthcheck: {interval: 30}}}\n", "duration-unit"),
        ("compose.yaml", "services: {a: {image: 'vllm/vllm-openai:v0.32.0', command: [a/b], deploy: {resources: {reservations: {devices: [{count: 1, device_ids: ['0'], capabilities: [gpu]}]}}}}}\n", "gpu-count-twice"),
        ("compose.yaml", "services: {a: {image: 'vllm/vllm-openai:v0.32.0', command: [a/b], deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 1}]}}}}}\n", "gpu-capabilities"),
        ("compose.yaml", "services: {a: {image: 'vllm/vllm-openai:v0.32.0', command: [a/b], deploy: {resources: {reservations: {devices: [{driver: nvidia, device_ids: [0], capabilities: [gpu]}]}}}}}\n", "gpu-ids-number"),
    ],
)  # fmt: skip
def test_other_objects(name: str, text: str, rule: str) -> None:
    assert rule in {issue.rule for issue in check(text, name)}, [issue.text for issue in check(text, name)]


def test_rules_of_prometheus_are_read_too() -> None:
    text = "groups:\n- name: llm\n  rules:\n  - alert: Full\n    expr: avg(vllm:gpu_cache_usage_perc) > 0.9\n"
    assert ("metric-name", 5) in {(issue.rule, issue.line) for issue in check(text, "rules.yaml")}
    assert "metric-name" not in {issue.rule for issue in check(text, "rules.yaml", version="0.9.0")}


def test_leader_worker_set_counts_all_its_pods() -> None:
    text = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: big}
spec:
  leaderWorkerTemplate:
    size: 2
    restartPolicy: RecreateGroupOnPodRestart
    workerTemplate:
      spec:
        containers:
          - name: server
            image: vllm/vllm-openai:v0.32.0
            command: [sh, -c]
            args: ["exec vllm serve meta-llama/Llama-3.1-405B-Instruct-FP8 --tensor-parallel-size 8 --pipeline-parallel-size 2 --nnodes $(LWS_GROUP_SIZE)"]
            resources: {limits: {nvidia.com/gpu: 8}}
"""
    assert "gpu-count" not in {issue.rule for issue in check(text)}
    assert "gpu-count" in {issue.rule for issue in check(text.replace("size: 2", "size: 1"))}


@pytest.mark.parametrize("bundle", BUNDLES, ids=[bundle.name for bundle in BUNDLES])
def test_files_that_llmtune_writes_have_no_error(bundle: Path) -> None:
    files = sorted(path for path in (bundle / "deploy").rglob("*") if path.is_file() and path.suffix != ".md")
    issues = [issue for item in check_paths(files, Context()) for issue in item.issues]
    if bundle.name.startswith("nasty-names"):  # its flags are invented
        issues = [issue for issue in issues if issue.rule not in ("flag-unknown", "flag-value")]
    assert [issue.text for issue in issues if issue.severity == "error"] == []
    said = [issue.text for issue in issues if issue.severity == "warning" and issue.rule not in ABOUT_SETTINGS]
    assert said == []
