"""Deployment files that people really had, in synthetic form: each fault is found, named and given its fix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner.app.check import context_of
from tuner.errors import ModelError
from tuner.inspect.inspect_file import check_text
from tuner.inspect.issue import Issue

pytestmark = pytest.mark.unit

DATA = Path(__file__).parent.parent / "data" / "check"


def check(
    name: str,
    text: str,
    *,
    version: str | None = None,
    gpu: str | None = None,
    model: str | None = None,
    beside: dict[str, str] | None = None,
) -> tuple[Issue, ...]:
    files = beside or {}
    return check_text(name, text, context_of(version, gpu, model), lambda other: files.get(other.rsplit("/", 1)[-1]))


def compose(command: str = '["Qwen/Qwen3-8B"]', **service: str) -> str:
    lines = [
        "services:",
        "  llm:",
        f"    image: {service.pop('image', 'vllm/vllm-openai:v0.32.0')}",
        f"    command: {command}",
    ]
    return "\n".join([*lines, *(f"    {key}: {value}" for key, value in service.items())]) + "\n"


def pod(
    args: str = '["Qwen/Qwen3-8B"]',
    *,
    spec: str = "",
    container: str = "",
    service: str = "chat",
    image: str = "vllm/vllm-openai:v0.32.0",
) -> str:
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: chat}}
spec:
  selector: {{matchLabels: {{app: chat}}}}
  template:
    metadata: {{labels: {{app: chat}}}}
    spec:
      {spec or "restartPolicy: Always"}
      containers:
        - name: server
          image: {image}
          args: {args}
          {container or "resources: {limits: {nvidia.com/gpu: 1}}"}
---
apiVersion: v1
kind: Service
metadata: {{name: {service}}}
spec:
  selector: {{app: chat}}
  ports: [{{port: 8000}}]
"""


# id, file name, text, options, rule, severity, part of the message or of the fix
CASES: list[Any] = [
    ("UP-B04", "serve.sh", "VLLM_ATTENTION_BACKEND=TRITON_ATTN vllm serve a/b\n", {"version": "0.26.0"}, "env-removed", "error", "use --attention-backend"),
    ("UP-B05", "serve.sh", "export VLLM_ATTENTION_BACKEND=FLASHINFER\nvllm serve a/b\n", {"version": "0.14.1"}, "env-deprecated", "warning", "use --attention-backend"),
    ("UP-B06", "compose.yaml", compose(environment="{VLLM_USE_V1: '0'}", image="vllm/vllm-openai:v0.20.0"), {}, "env-removed", "error", "V1 is the only engine"),
    ("UP-B07-backend", ".env", "VLLM_ATTENTION_BACKEND=FLASHINFER\nUSE_V2_BLOCK_MANAGER=true\nDISABLE_LOG_REQUESTS=true\n", {"version": "0.15.0"}, "env-removed", "error", "VLLM_ATTENTION_BACKEND"),
    ("UP-B07-manager", ".env", "USE_V2_BLOCK_MANAGER=true\nMAX_MODEL_LEN=8192\n", {"version": "0.15.0"}, "env-removed", "error", "--use-v2-block-manager"),
    ("UP-B07-logs", ".env", "DISABLE_LOG_REQUESTS=true\nHF_HOME=/hub\n", {"version": "0.17.0"}, "env-removed", "error", "--disable-log-requests"),
    ("UP-B09", "serve.sh", "vllm serve a/b --guided-decoding-backend xgrammar\n", {"version": "0.23.0"}, "flag-removed", "error", "--structured-outputs-config.backend"),
    ("UP-B10-old", "compose.yaml", compose('["vllm", "serve", "Qwen/Qwen3-8B", "--dtype auto"]', image="vllm/vllm-openai:v0.10.0"), {}, "entrypoint-repeated", "error", "begin the command with the model"),
    ("UP-B10-new", "compose.yaml", compose('["serve", "Qwen/Qwen3-8B", "--dtype auto"]', image="vllm/vllm-openai:v0.26.0"), {}, "entrypoint-repeated", "error", "begin the command with the model"),
    ("UP-B10-item", "compose.yaml", compose('["Qwen/Qwen3-8B", "--dtype auto"]'), {}, "flag-list-item", "error", "two elements: --dtype and auto"),
    ("UP-B11", "run.sh", "docker run --gpus 1 vllm/vllm-openai:v0.13.0 Qwen/Qwen2.5-1.5B-Instruct\n", {}, "model-positional", "error", "--model Qwen/Qwen2.5-1.5B-Instruct; check /v1/models"),
    ("UP-B13", "serve.sh", """vllm serve a/b --speculative-config '{"method":"ngram","num_speculative_tokens":10}'\n""", {"version": "0.10.2"}, "broken-release", "warning", "the setting is right"),
    ("UP-B14", "serve.sh", "vllm serve a/b --speculative-model c/d --num-speculative-tokens 5\n", {"version": "0.15.0"}, "flag-removed", "error", "--speculative-config"),
    ("UP-B16-T4", "serve.sh", "vllm serve Qwen/Qwen2.5-7B-Instruct --dtype bfloat16\n", {"gpu": "t4"}, None, "error", "bfloat16"),
    ("UP-B16-V100", "serve.sh", "vllm serve Qwen/Qwen2.5-7B-Instruct --dtype bfloat16\n", {"gpu": "v100"}, None, "error", "bfloat16"),
    ("UP-B17", "serve.sh", "vllm serve Qwen/Qwen2.5-0.5B-Instruct\n", {"gpu": "p100"}, None, "error", "llama.cpp"),
    ("UP-B19", "serve.sh", "vllm serve Qwen/Qwen3-8B --kv-cache-dtype fp8\n", {"gpu": "rtx3090"}, "e4m3-kernels-exist", "warning", "fp8_e5m2"),
    ("UP-B20", "serve.sh", "VLLM_ATTENTION_BACKEND=FLASH_ATTN VLLM_FLASH_ATTN_VERSION=3 vllm serve meta-llama/Llama-3.3-70B-Instruct --kv-cache-dtype fp8 --tensor-parallel-size 8\n", {"gpu": "h200x8", "version": "0.7.0"}, None, "error", "FLASH_ATTN"),
    ("UP-B22", "serve.sh", "vllm serve Qwen/Qwen3-32B-FP8 --kv-cache-dtype fp8_e5m2\n", {"gpu": "h100"}, "e5m2-needs-plain-checkpoint", "error", "int8_per_token_head"),
    ("UP-B23", "serve.sh", "vllm serve a/b-AWQ --dtype bfloat16 --quantization awq\n", {"gpu": "a100", "version": "0.6.0"}, "awq-needs-half", "error", "--dtype half"),
    ("UP-B27", "run.sh", "vllm serve openai/gpt-oss-120b --tensor-parallel-size 4\n", {"gpu": "rtx4090x4", "version": "0.10.1"}, "sinks-need-kernels", "error", "0.11.0"),
    ("UP-B24", "serve.sh", "vllm serve meta-llama/Llama-3.1-8B-Instruct --no-enable-chunked-prefill --max-num-batched-tokens 8192\n", {"version": "0.24.0"}, "whole-prefill-fits", "error", "131072"),
    ("UP-B26", "compose.yaml", compose(environment="{CUDA_VISIBLE_DEVICES: MIG-377e0049-554c-540b-93c6-d0976f8426cb}", image="vllm/vllm-openai:v0.20.1"), {}, "env-mig", "error", "as device 0"),
    ("unwatched", "serve.sh", "nohup vllm serve Qwen/Qwen3-8B --host 127.0.0.1 > /tmp/log 2>&1 &\npython bench.py\n", {}, "start-unwatched", "note", "ask /health"),
    ("UP-D01", "k8s.yaml", pod(container="livenessProbe: {httpGet: {path: /health, port: 8000}, initialDelaySeconds: 300}"), {}, "startup-probe", "warning", "add startupProbe"),
    ("UP-D01-large", "k8s.yaml", pod('["meta-llama/Llama-3.1-70B-Instruct"]', container="livenessProbe: {httpGet: {path: /health, port: 8000}, initialDelaySeconds: 120}"), {}, "startup-probe", "error", "kills the server 150 s after its start"),
    ("UP-D02", "k8s.yaml", pod(container="livenessProbe: {httpGet: {path: /health, port: 8000}, initialDelaySeconds: 90}"), {}, "startup-probe", "error", "kills the server"),
    ("UP-D06", "k8s.yaml", pod(service="vllm"), {}, "service-name-vllm", "error", "enableServiceLinks: false"),
    ("UP-D08", "k8s.yaml", pod('["a/b", "--tensor-parallel-size", "2"]', spec="volumes: [{name: dshm, emptyDir: {medium: Memory, sizeLimit: 8Gi}}]", container="resources: {limits: {nvidia.com/gpu: 2}}"), {}, "shm-unmounted", "error", "mount it"),
    ("UP-D08-none", "k8s.yaml", pod('["a/b", "--tensor-parallel-size", "2"]', container="resources: {limits: {nvidia.com/gpu: 2}}"), {}, "shm-missing", "error", "medium: Memory"),
    ("UP-D09", "run.sh", "docker run --gpus all vllm/vllm-openai:v0.32.0 a/b --tensor-parallel-size 4\n", {}, "shm-missing", "error", "--ipc=host"),
    ("UP-D09-compose", "compose.yaml", compose('["a/b", "--tensor-parallel-size", "4"]', gpus="all"), {}, "shm-missing", "error", "podman-compose ignores ipc"),
    ("UP-D11-count", "compose.yaml", compose(deploy="{resources: {reservations: {devices: [{driver: nvidia, capabilities: [gpu]}]}}}"), {}, "gpu-count-missing", "warning", "add count"),
    ("UP-D11-key", "compose.yaml", compose(environment="{VLLM_API_KEY: 9f8a7b6c5d}"), {}, "secret-in-clear", "error", "VLLM_API_KEY"),
    ("UP-D14", "compose.yaml", compose('["meta-llama/Llama-3.1-8B-Instruct"]'), {}, "token-missing", "warning", "pass HF_TOKEN"),
    ("UP-D14-name", "compose.yaml", compose(environment="['HUGGING_FACE_HUB_TOKEN=${TOKEN}']"), {}, "env-unread", "warning", "use HF_TOKEN"),
    ("UP-D15", "hpa.yaml", "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: vllm}\nspec: {maxReplicas: 4, metrics: [{type: Pods, pods: {metric: {name: DCGM_FI_DEV_GPU_UTIL}, target: {type: AverageValue, averageValue: 80}}}]}\n", {}, "scaling-signal", "warning", "vllm:num_requests_waiting"),
    ("UP-D16", "hpa.yaml", "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: vllm}\nspec: {maxReplicas: 4, metrics: [{type: External, external: {metric: {name: vllm_num_requests_waiting}, target: {type: AverageValue, averageValue: 5}}}]}\n", {}, "metric-name", "warning", "vllm:num_requests_waiting"),
    ("UP-D16-query", "keda.yaml", "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: s}\nspec: {triggers: [{type: prometheus, metadata: {threshold: '5', query: sum(vllm_num_requests_waiting)}}]}\n", {}, "metric-name", "error", "write vllm:num_requests_waiting"),
    ("UP-D16-renamed", "keda.yaml", "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: s}\nspec: {triggers: [{type: prometheus, metricType: Value, metadata: {threshold: '0.8', query: 'avg(vllm:gpu_cache_usage_perc)'}}]}\n", {}, "metric-name", "error", "vllm:kv_cache_usage_perc"),
    ("UP-D17", "compose.yaml", compose(), {}, "cache-volume", "warning", "/root/.cache/vllm for compiled code"),
    ("UP-D17-compiled", "compose.yaml", compose(volumes="['hub:/root/.cache/huggingface']"), {}, "compile-cache", "note", "/root/.cache/vllm"),
    ("UP-D19", "compose.yaml", compose('["meta-llama/Llama-3.1-405B-Instruct"]', healthcheck="{test: [CMD, curl, -f, 'http://localhost:8000/health'], start_period: 300s}"), {}, "startup-budget", "warning", "twice a measured start"),
    ("UP-D23", "compose.yaml", compose(restart="always"), {}, "restart-loop", "warning", "on-failure:3"),
    ("UP-D23-ready", "k8s.yaml", pod(), {}, "readiness-missing", "warning", "httpGet /health"),
    ("UP-E02", "serve.sh", "trtllm-serve /models/llama-engine --host 0.0.0.0\n", {"version": "1.0.0"}, "trtllm-engine", "error", "--backend tensorrt"),
    ("UP-E02-env", "serve.sh", "export TLLM_USE_TRT_ENGINE=1\ntrtllm-serve /models/llama-engine\n", {}, "env-unread", "error", "no effect since TensorRT-LLM 1.0"),
    ("UP-E04", "run.sh", "python3 convert_checkpoint.py --model_dir m --output_dir c --tp_size 2\ntrtllm-build --checkpoint_dir c --output_dir engine --max_batch_size 8 --max_seq_len 4096 --max_num_tokens 4096\npython3 run.py --engine_dir engine\n", {"version": "0.12.0"}, "trtllm-ranks", "error", "mpirun -n 2"),
    ("UP-E07", "build.sh", "trtllm-build --checkpoint_dir x --output_dir y\n", {"version": "0.9.0"}, "trtllm-build-limits", "warning", "--max_batch_size, --max_seq_len, --max_num_tokens"),
    ("UP-E10", "extra_llm_api_options.yaml", "max_num_tokens: 8192\nmax_seq_len: 16384\nenable_chunked_prefill: false\nkv_cache_config: {free_gpu_memory_fraction: 0.8}\n", {}, "trtllm-prompt-room", "warning", "enable_chunked_prefill: true"),
    ("UP-E11", "serve.sh", "trtllm-serve Qwen/Qwen3-8B --host 0.0.0.0\n", {"version": "1.0.0"}, "trtllm-chunked-prefill", "note", "enable_chunked_prefill: true"),
    ("UP-E13", "serve.sh", "trtllm-serve Qwen/Qwen3-8B --max_batch_size 8 --extra_llm_api_options extra.yaml\n", {"beside": {"extra.yaml": "max_batch_size: 2048\nenable_chunked_prefill: true\n"}}, "set-twice", "error", "the YAML, which wins silently"),
    ("UP-E13-list", "extra_llm_api.yaml", "- max_batch_size: 2048\n", {}, "trtllm-yaml", "error", "mapping"),
    ("UP-E14", "trtllm.yaml", "free_gpu_memory_fraction: 0.8\nmax_batch_size: 64\n", {}, "trtllm-key", "error", "kv_cache_config.free_gpu_memory_fraction"),
    ("rules-heads", "serve.sh", "trtllm-serve Qwen/Qwen2.5-7B-Instruct --tp_size 8 --host 0.0.0.0\n", {"version": "1.2.1", "model": "qwen2.5-7b"}, "heads-divide", "error", "cannot be split over tensor_parallel_size 8"),
    ("rules-block", "serve.sh", "trtllm-serve Qwen/Qwen3-8B --config extra.yaml\n", {"version": "1.2.1", "beside": {"extra.yaml": "kv_cache_config:\n  tokens_per_block: 48\n"}}, "block-is-power-of-two", "error", "must be a power of two"),
    ("rules-fp4", "serve.sh", "trtllm-serve Qwen/Qwen3-8B --config extra.yaml\n", {"version": "1.2.1", "gpu": "h100", "beside": {"extra.yaml": "kv_cache_config:\n  dtype: nvfp4\n"}}, "formats-fit-gpu", "error", "needs compute capability 10"),
    ("UP-E16", "serve.sh", "trtllm-serve nvidia/Llama-3.3-70B-Instruct-NVFP4\n", {"gpu": "h100"}, "format-fp4", "error", "Blackwell"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "options", "rule", "severity", "part"), [pytest.param(*case[1:], id=case[0]) for case in CASES]
)
def test_case(name: str, text: str, options: dict[str, Any], rule: str | None, severity: str, part: str) -> None:
    issues = check(name, text, **options)
    hits = [
        issue
        for issue in issues
        if rule in (None, issue.rule) and issue.severity == severity and part in f"{issue.message} {issue.fix}"
    ]
    assert hits, [issue.text for issue in issues]


# what old guides say: file name, text, rule, part of what is said
OLD_ADVICE: list[Any] = [
    ("x.sh", "vllm serve a/b --speculative-model X --num-speculative-tokens 5\n", "flag-removed", "--speculative-config JSON key model (0.8.2+), or --spec-model"),
    ("x.sh", "vllm serve a/b --speculative-model X --num-speculative-tokens 5\n", "flag-removed", "--speculative-config key num_speculative_tokens, or --spec-tokens"),
    ("x.sh", "vllm serve a/b --kv-cache-dtype fp8 --quantization fp8 --enforce-eager\n", "eager-mode", "keep it for debugging"),
    ("x.sh", "vllm serve a/b --kv-cache-dtype fp8 --quantization fp8 --enforce-eager\n", "fp8-kv-has-scales", "1.0 is used"),
    ("rules.yaml", "groups: [{rules: [{expr: 'vllm:gpu_cache_usage_factor > 1'}]}]\n", "metric-name", "vllm:kv_cache_usage_perc"),
    ("rules.yaml", "groups: [{rules: [{expr: 'vllm:avg_generation_throughput_tok_s'}]}]\n", "metric-name", "rate(vllm:generation_tokens_total"),
    ("compose.yaml", "version: '3.8'\n" + compose(), "compose-version", "take it out"),
    ("compose.yaml", compose(runtime="nvidia"), "gpu-runtime", "deploy.resources"),
    ("compose.yaml", compose(environment="{HUGGING_FACE_HUB_TOKEN: '${T}'}"), "env-unread", "use HF_TOKEN"),
    ("x.py", "from vllm import LLM\nllm = LLM('a/b', block_size=16,\n  swap_space=4, num_scheduler_steps=8)\n", "flag-removed", "--kv-offloading-size"),
    ("x.sh", "vllm serve a/b --enable-chunked-prefill False\n", "flag-negation", "--no-enable-chunked-prefill"),
    ("x.sh", "vllm serve a/b --device cuda\n", "flag-removed", "0.9.2 was the last release"),
    ("x.sh", "vllm serve a/b --task generate\n", "flag-removed", "--runner"),
    ("x.sh", "vllm serve a/b --max-seq-len-to-capture 8192\n", "flag-removed", "--max-cudagraph-capture-size"),
    ("x.sh", "vllm serve a/b --cuda-graph-sizes 8\n", "flag-removed", "--cudagraph-capture-sizes"),
    ("x.sh", "vllm serve a/b --rope-scaling '{}'\n", "flag-removed", "--hf-overrides"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "rule", "part"), OLD_ADVICE)
def test_old_advice_gets_its_replacement(name: str, text: str, rule: str, part: str) -> None:
    issues = check(name, text, version="0.33.0")
    assert any(issue.rule == rule and part in f"{issue.message} {issue.fix}" for issue in issues), [
        i.text for i in issues
    ]


@pytest.mark.parametrize("end", ["| tee log", ">/dev/null 2>&1 &\nuntil curl -sf localhost:8000/health; do sleep 1; done", "&& echo done", "2> errors"])
def test_a_server_that_is_seen_and_watched_is_left_alone(end: str) -> None:
    issues = check("serve.sh", f"vllm serve Qwen/Qwen3-8B --host 127.0.0.1 {end}\n")
    assert [issue.text for issue in issues if issue.rule in ("log-file", "start-unwatched")] == []


def test_python_that_is_right_is_left_alone() -> None:
    text = "llm = LLM('a/b', block_size=16, enforce_eager=False, enable_prefix_caching=True, kv_cache_dtype='fp8')\n# vllm\n"
    assert check("x.py", text, version="0.33.0") == ()
    assert [issue.rule for issue in check("x.py", "vllm = (", version="0.33.0")] == ["unreadable"]


FILES: dict[str, tuple[str, ...]] = {
    "G01.compose.yaml": ("image-floating 3", "memory-share 13", "remote-code 14", "health-missing 2", "env-unread 16", "gpu-ids-joined 27"),
    "G03.manifest.yaml": ("service-name-vllm 3", "startup-probe 19", "memory-share 15", "grace-short 11"),
    "G04.manifest.yaml": ("cache-volume 12", "memory-limit 12", "rollout-surge 5"),
    "G05.manifest.yaml": ("gpu-missing 10", "image-floating 11", "eager-mode 13", "memory-limit 16", "cache-volume 10"),
    "G06.script.sh": ("install-unpinned 3", "libraries-borrowed 4", "open-without-key 7", "remote-code 8", "entrypoint-module 5"),
    "G08.manifest.yaml": ("gpu-missing 11", "memory-limit 17", "startup-probe 19", "image-floating 12", "cache-volume 11", "open-without-key 27"),
    "G11.compose.yaml": ("env-unread 7", "env-unread 8", "env-unread 9", "model-name 5", "startup-budget 15", "compose-version 1"),
    "G13.compose.yaml": ("env-unread 16", "flag-removed 11", "secret-in-clear 14", "secret-in-clear 24", "secret-default 23", "image-floating 3", "memory-share 10", "remote-code 12", "shm-missing 2", "gpu-count 19", "download-dir 8"),
    "G14.compose.yaml": ("env-removed 9", "image-floating 3", "gpu-shared 33", "token-unneeded 10"),
    "G15.manifest.yaml": ("image-old 11", "key-twice 19", "service-name-vllm 23", "eager-mode 12", "cache-volume 10"),
    "G17.script.sh": ("env-port 2", "path-home 4", "entrypoint-module 3", "remote-code 5"),
    "G18.script.sh": ("unified-memory 3", "open-without-key 4", "fp8-kv-has-scales 3", "log-file 5"),
    "G19.script.sh": ("eager-mode 3", "quantization-slow 2", "memory-part 3"),
    "G20.script.sh": ("model-name 2", "open-without-key 2"),
    "G23.compose.yaml": ("image-floating 3", "gpu-count 9", "depends-on 12", "secret-default 6", "shm-missing 2"),
    "G26.compose.yaml": ("host-loopback 2", "port-mismatch 9", "env-unread 7"),
    "G27.compose.yaml": ("format-fp4 5", "image-prerelease 4", "install-at-start 5"),
    "G29.script.sh": ("trtllm-build 6", "trtllm-build-limits 6"),
    "G30.script.sh": ("variable-unset 4", "dtype-float32 4", "memory-share 4", "eager-mode 4", "image-floating 3"),
    "G31.script.sh": ("variable-unset 3", "shell-syntax 4", "flag-removed 3", "image-floating 3"),
    "G32.compose.yaml": ("open-without-key 16",),
}  # fmt: skip
FEW_OR_NO_ERRORS = {"G04.manifest.yaml": 0, "G14.compose.yaml": 1, "G32.compose.yaml": 0}


@pytest.mark.parametrize("name", FILES, ids=[f"UP-{name.split('.', maxsplit=1)[0]}" for name in FILES])
def test_file(name: str) -> None:
    issues = check(name, (DATA / name).read_text())
    found = {f"{issue.rule} {issue.line}" for issue in issues}
    assert set(FILES[name]) <= found, [issue.text for issue in issues]
    if name in FEW_OR_NO_ERRORS:
        assert sum(issue.severity == "error" for issue in issues) == FEW_OR_NO_ERRORS[name]


def test_every_file_has_expectations() -> None:
    assert {path.name for path in DATA.iterdir()} == set(FILES)


def test_memory_of_one_file_on_two_small_cards_up_g01() -> None:
    text = (
        (DATA / "G01.compose.yaml")
        .read_text()
        .replace("Qwen/Qwen2.5-14B-Instruct", "meta-llama/Llama-3.1-70B-Instruct")
    )
    errors = [issue for issue in check("compose.yaml", text, gpu="l40sx2") if issue.rule == "memory"]
    assert len(errors) == 1
    assert "does not fit 2 x" in errors[0].message
    assert "PREDICTED" in errors[0].message


def test_weights_that_are_pointers_up_e17(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 4976698672\n"
    (tmp_path / "model-00001-of-00004.safetensors").write_text(pointer)
    with pytest.raises(ModelError, match="Git LFS pointer"):
        context_of(None, None, str(tmp_path))
