"""What schema checkers let through, done to files that llmtune wrote: `check` finds each.

The list is that of mutations which kubernetes-validate --strict and Docker Compose accepted: references between objects,
names, quantities, counts of GPUs, probes, grace, bounds, scaling signals, images, secrets.
"""

import shutil
from pathlib import Path

import pytest

from tuner.app.check import check_paths, context_of

pytestmark = pytest.mark.golden

BUNDLE = Path(__file__).parent / "h100x2-speculative/deploy"
KINDS = (".yaml", ".yml", ".sh", ".service", ".sbatch")
ALTERED = [
    ("k8s/deployment.yaml", "claimName: qwen3-32b-cache", "claimName: qwen3-32b-caches", "reference-missing"),
    ("k8s/deployment.yaml", "matchLabels:\n      app.kubernetes.io/name: qwen3-32b", "matchLabels:\n      app.kubernetes.io/name: qwen", "selector-mismatch"),
    ("k8s/deployment.yaml", "- name: cache\n              mountPath", "- name: caches\n              mountPath", "volume-undeclared"),
    ("k8s/deployment.yaml", "name: qwen3-32b\n  labels", "name: Qwen3_32B\n  labels", "name-invalid"),
    ("k8s/deployment.yaml", "- name: http\n", "- name: openai-compatible-http\n", "port-name"),
    ("k8s/deployment.yaml", 'limits:\n              memory: "89Gi"', 'limits:\n              memory: "16gb"', "quantity-invalid"),
    ("k8s/deployment.yaml", 'limits:\n              memory: "89Gi"\n              nvidia.com/gpu: "2"', 'limits:\n              memory: "89Gi"\n              nvidia.com/gpu: "4"', "gpu-limit"),
    ("k8s/deployment.yaml", 'nvidia.com/gpu: "2"', 'nvidia.com/gpu: "1"', "gpu-count"),
    ("k8s/deployment.yaml", "timeoutSeconds: 10", "timeoutSeconds: 1", "probe-timeout"),
    ("k8s/deployment.yaml", "terminationGracePeriodSeconds: 75", "terminationGracePeriodSeconds: 5", "grace-short"),
    ("k8s/deployment.yaml", "vllm-openai:v0.32.0", "vllm-openai", "image-floating"),
    ("k8s/deployment.yaml", "- --max-num-seqs", "- --swap-space", "flag-removed"),
    ("k8s/service.yaml", "targetPort: http", "targetPort: htp", "service-port"),
    ("k8s/service.yaml", "app.kubernetes.io/name: qwen3-32b\n  ports", "app.kubernetes.io/name: qwen3\n  ports", "service-selector"),
    ("k8s/poddisruptionbudget.yaml", "matchLabels:\n      app.kubernetes.io/name: qwen3-32b", "matchLabels:\n      app.kubernetes.io/name: qwen", "service-selector"),
    ("k8s/kustomization.yaml", "service.yaml", "services.yaml", "resource-missing"),
    ("k8s/scaledobject.yaml", "kind: Deployment\n    name: qwen3-32b", "kind: Deployment\n    name: qwen3", "scaler-target"),
    ("k8s/scaledobject.yaml", "minReplicaCount: 1", "minReplicaCount: 9", "scaler-bounds"),
    ("k8s/scaledobject.yaml", "model_name=", "model=", "query-label"),
    ("k8s/scaledobject.yaml", 'threshold: "46"', "threshold: 46", "keda-threshold"),
    ("k8s-hpa/horizontalpodautoscaler.yaml", "kind: Deployment\n    name: qwen3-32b", "kind: Deployment\n    name: qwen3", "scaler-target"),
    ("k8s-hpa/horizontalpodautoscaler.yaml", "minReplicas: 1", "minReplicas: 9", "scaler-bounds"),
    ("k8s-hpa/horizontalpodautoscaler.yaml", "name: llmtune_in_flight_qwen3_32b", "name: vllm_kv_cache_usage_perc", "metric-type"),
    ("k8s-hpa/prometheus-adapter/values.yaml", "vllm:num_requests_running", "vllm_num_requests_running", "metric-name"),
    ("compose.yaml", "name: qwen3-32b\n", "name: Qwen3-32B\n", "name-invalid"),
    ("compose.yaml", "count: 2", "count: 4", "gpu-count"),
    ("compose.yaml", "vllm-openai:v0.32.0", "vllm-openai", "image-floating"),
    ("compose.yaml", '"on-failure:3"', "onfailure", "restart-unknown"),
    ("compose.yaml", "services:\n", "version: '3'\nservices:\n", "compose-version"),
    ("compose.yaml", "HF_TOKEN: null", "HF_TOKEN: hf_abcdefghijklmnopqrst", "secret-in-clear"),
    ("compose.yaml", 'stop_grace_period: "45s"', 'stop_grace_period: "45"', "duration-unit"),
    ("production-stack/values.yaml", "        enablePrefixCaching: true\n", "", "helm-prefix-caching"),
]


def rules(folder):
    files = [path for path in sorted(folder.iterdir()) if path.suffix in KINDS]
    return {issue.rule for one in check_paths(files, context_of("0.32.0", None, None)) for issue in one.issues
            if issue.severity in ("error", "warning")}


@pytest.mark.parametrize(("name", "old", "new", "rule"), ALTERED, ids=[f"{Path(a[0]).stem}-{a[3]}-{n}" for n, a in enumerate(ALTERED)])
def test_an_altered_file_is_found(name, old, new, rule, tmp_path):
    folder = tmp_path / "deploy"
    shutil.copytree(BUNDLE, folder)
    file = folder / name
    text = file.read_text()
    assert old in text
    before = rules(file.parent)
    assert rule not in before
    file.write_text(text.replace(old, new))
    assert rule in rules(file.parent)


@pytest.mark.parametrize("change", ["resources:\n", "namePrefix: a-\nresources:\n", "patches: [{path: x.yaml}]\nresources:\n"])
def test_an_overlay_that_names_what_it_does_not_hold_is_left_alone(change, tmp_path):
    """What a base adds or a patch renames cannot be known from the files beside it."""
    folder = tmp_path / "k8s"
    shutil.copytree(BUNDLE / "k8s", folder)
    (folder / "scaledobject.yaml").write_text((folder / "scaledobject.yaml").read_text().replace("name: qwen3-32b", "name: other"))
    file = folder / "kustomization.yaml"
    extra = "resources:\n  - ../base\n" if change == "resources:\n" else change
    file.write_text(file.read_text().replace("resources:\n", extra))
    assert "scaler-target" not in rules(folder)
