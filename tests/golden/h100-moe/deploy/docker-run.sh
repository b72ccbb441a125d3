#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan 0b2929c2e06a.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# plan       0b2929c2e06a, study moe, question 834b2b0971c0
# model      openai/gpt-oss-120b@b5c939de8f754692c1647ca79fbf85e8c1e70f8a
# engine     vllm 0.32.0, image vllm/vllm-openai:v0.32.0
# hardware   1 x NVIDIA H100 80GB HBM3, driver 570.86.15, 512 GiB host memory
# workload   assistants: 800 input and 200 output tokens, 40 users in conversations of 4 turns, 5 s between them, 400 requests a run after 4 for warm-up
# SLO        p95 ttft<=500ms, p99 itl<=80ms
# objective  output throughput
# verdict    winner: 33% more output tokens/s than the default [29%, 37%]
# MEASURED   output throughput 1200 [1176, 1224] tokens/s, n=3, 3 rounds
# MEASURED   limit p95 ttft<=500ms 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   limit p99 itl<=80ms 44 [41.8, 46.2] ms, n=192, 3 rounds
# MEASURED   p95 TTFT 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   p95 ITL 32 [30.4, 33.6] ms, n=192, 3 rounds
# MEASURED   p95 TPOT 33.6 [31.92, 35.28] ms, n=192, 3 rounds
# MEASURED   ratio to default 1.33 [1.29, 1.37], 3 rounds
# MEASURED   start 95.0 s, the longest of 4
# command    llmtune optimize --model openai/gpt-oss-120b --workload chat
#
# Start:      ./docker-run.sh     Stop: docker stop gpt-oss-120b
# Variables:  LLMTUNE_BIND (127.0.0.1), LLMTUNE_PORT (8000), DOCKER (docker), LLMTUNE_HF_CACHE (a volume or a directory)
# Secret:     HF_TOKEN is passed on from the environment by name; it is not written here.
# Arguments given to this script are passed on to the engine, after these.
set -euo pipefail

options=(
  --rm
  --name gpt-oss-120b
  --stop-timeout 45
  --publish "${LLMTUNE_BIND:-127.0.0.1}:${LLMTUNE_PORT:-8000}:8000"
  --gpus 1
  --volume "${LLMTUNE_HF_CACHE:-llmtune-hf-cache}:/root/.cache/huggingface"
  --volume llmtune-vllm-cache:/root/.cache/vllm
  --env HF_TOKEN
  --health-cmd 'curl -f -sS http://localhost:8000/health'
  --health-interval 10s
  --health-timeout 10s
  --health-retries 6
  --health-start-period 240s
)
args=(
  openai/gpt-oss-120b
  --served-model-name gpt-oss-120b
  --revision b5c939de8f754692c1647ca79fbf85e8c1e70f8a
  --async-scheduling
  --max-model-len 32768
  --max-num-batched-tokens 8192
  --host 0.0.0.0
  --port 8000
)

exec "${DOCKER:-docker}" run "${options[@]}" vllm/vllm-openai:v0.32.0 "${args[@]}" "$@"
