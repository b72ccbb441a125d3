#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan 6b81dbd04fb5.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# plan       6b81dbd04fb5, study peak-hours, question e3a236f80326
# model      Qwen/Qwen3-32B@9216db5781bf21249d130ec9da846c4624c16137
# engine     trtllm 1.2.1, image nvcr.io/nvidia/tensorrt-llm/release:1.2.1
# hardware   4 x NVIDIA H100 80GB HBM3, driver 570.86.15, 512 GiB host memory
# workload   short: 64 input and 32 output tokens, 16 at once (closed loop), 64 requests a run after 4 for warm-up
# SLO        p95 ttft<=500ms, p99 itl<=80ms
# objective  output throughput
# verdict    winner: 20% more output tokens/s than the default [18%, 22%]
# MEASURED   output throughput 3600 [3528, 3672] tokens/s, n=3, 3 rounds
# MEASURED   limit p95 ttft<=500ms 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   limit p99 itl<=80ms 44 [41.8, 46.2] ms, n=192, 3 rounds
# MEASURED   p95 TTFT 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   p95 ITL 32 [30.4, 33.6] ms, n=192, 3 rounds
# MEASURED   p95 TPOT 33.6 [31.92, 35.28] ms, n=192, 3 rounds
# MEASURED   ratio to default 1.2 [1.176, 1.224], 3 rounds
# MEASURED   start 160.0 s, the longest of 4
# command    llmtune optimize --model llama-3-70b --workload chat --baseline serve.sh
#
# Start:      ./docker-run.sh     Stop: docker stop qwen3-32b
# Variables:  LLMTUNE_BIND (127.0.0.1), LLMTUNE_PORT (8000), DOCKER (docker), LLMTUNE_HF_CACHE (a volume or a directory)
# Secret:     HF_TOKEN is passed on from the environment by name; it is not written here.
# Arguments given to this script are passed on to the engine, after these.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

options=(
  --rm
  --name qwen3-32b
  --stop-timeout 45
  --publish "${LLMTUNE_BIND:-127.0.0.1}:${LLMTUNE_PORT:-8000}:8000"
  --gpus 4
  --ipc host
  --ulimit memlock=-1
  --ulimit stack=67108864
  --mount "type=bind,\"source=${here//\"/\"\"}/trtllm-config.yaml\",target=/etc/llmtune/trtllm-config.yaml,readonly"
  --volume "${LLMTUNE_HF_CACHE:-llmtune-hf-cache}:/root/.cache/huggingface"
  --volume llmtune-trtllm-cache:/root/.cache/trtllm
  --env TRTLLM_NO_USAGE_STATS=1
  --env HF_TOKEN
  --health-cmd 'curl -f -sS http://localhost:8000/health'
  --health-interval 10s
  --health-timeout 10s
  --health-retries 6
  --health-start-period 420s
)
args=(
  trtllm-serve
  Qwen/Qwen3-32B
  --config /etc/llmtune/trtllm-config.yaml
  --host 0.0.0.0
  --port 8000
)

exec "${DOCKER:-docker}" run "${options[@]}" nvcr.io/nvidia/tensorrt-llm/release:1.2.1 "${args[@]}" "$@"
