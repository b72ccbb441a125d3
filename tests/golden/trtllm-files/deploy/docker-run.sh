#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan d291778a8a37.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# NOT VERIFIED: the best of a search, measured once. No comparison on fresh servers confirmed it.
# plan       d291778a8a37, study peak-hours, question a30c153d6b87
# model      meta-llama/Meta-Llama-3-70B-Instruct@50fdd307a1da1afb4ab4d0e4d3a7c5b3e8d3c2a1
# engine     trtllm 1.2.1, image nvcr.io/nvidia/tensorrt-llm/release:1.2.1
# hardware   8 x NVIDIA H100 80GB HBM3, driver 570.86.15, 1024 GiB host memory
# workload   short: 64 input and 32 output tokens, 16 at once (closed loop), 64 requests a run after 4 for warm-up
# SLO        p95 ttft<=500ms, p99 itl<=80ms
# objective  output throughput
# verdict    not_verified: stopped before verification
# MEASURED   start 212.4 s, the longest of 6
# command    llmtune optimize --model llama-3-70b --workload chat --baseline serve.sh
#
# Start:      ./docker-run.sh     Stop: docker stop meta-llama-3-70b-instruct
# Variables:  LLMTUNE_BIND (127.0.0.1), LLMTUNE_PORT (8000), DOCKER (docker), LLMTUNE_HF_CACHE (a volume or a directory)
# Secret:     HF_TOKEN is passed on from the environment by name; it is not written here.
# Arguments given to this script are passed on to the engine, after these.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

options=(
  --rm
  --name meta-llama-3-70b-instruct
  --stop-timeout 45
  --publish "${LLMTUNE_BIND:-127.0.0.1}:${LLMTUNE_PORT:-8000}:8000"
  --gpus 8
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
  --health-start-period 600s
)
args=(
  trtllm-serve
  meta-llama/Meta-Llama-3-70B-Instruct
  --config /etc/llmtune/trtllm-config.yaml
  --backend tensorrt
  --host 0.0.0.0
  --port 8000
)

exec "${DOCKER:-docker}" run "${options[@]}" nvcr.io/nvidia/tensorrt-llm/release:1.2.1 "${args[@]}" "$@"
