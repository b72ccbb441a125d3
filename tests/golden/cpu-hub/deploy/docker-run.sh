#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan fa399c7e2c67.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# plan       fa399c7e2c67, study cpu, question fe3c206300e0
# model      HuggingFaceTB/SmolLM2-360M-Instruct@a10cc1512eabd3dde888204e902eca88bddb4951
# engine     vllm 0.32.0, image vllm/vllm-openai-cpu:v0.32.0
# hardware   CPU, 16 cores (Intel Xeon Platinum 8480+), 64 GiB host memory
# workload   chat: 512 input and 128 output tokens, 32 at once (closed loop), 640 requests a run after 4 for warm-up
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
# MEASURED   start 38.0 s, the longest of 4
# command    llmtune optimize --model HuggingFaceTB/SmolLM2-360M-Instruct --workload chat
#
# Start:      ./docker-run.sh     Stop: docker stop smollm2-360m-instruct
# Variables:  LLMTUNE_BIND (127.0.0.1), LLMTUNE_PORT (8000), DOCKER (docker), LLMTUNE_HF_CACHE (a volume or a directory)
# Secret:     HF_TOKEN is passed on from the environment by name; it is not written here.
# Arguments given to this script are passed on to the engine, after these.
set -euo pipefail

options=(
  --rm
  --name smollm2-360m-instruct
  --stop-timeout 45
  --publish "${LLMTUNE_BIND:-127.0.0.1}:${LLMTUNE_PORT:-8000}:8000"
  --volume "${LLMTUNE_HF_CACHE:-llmtune-hf-cache}:/root/.cache/huggingface"
  --volume llmtune-vllm-cache:/root/.cache/vllm
  --env VLLM_CPU_KVCACHE_SPACE=8
  --env HF_TOKEN
  --health-cmd 'curl -f -sS http://localhost:8000/health'
  --health-interval 10s
  --health-timeout 10s
  --health-retries 6
  --health-start-period 90s
)
args=(
  HuggingFaceTB/SmolLM2-360M-Instruct
  --served-model-name SmolLM2-360M-Instruct
  --revision a10cc1512eabd3dde888204e902eca88bddb4951
  --dtype bfloat16
  --enforce-eager
  --host 0.0.0.0
  --port 8000
)

exec "${DOCKER:-docker}" run "${options[@]}" vllm/vllm-openai-cpu:v0.32.0 "${args[@]}" "$@"
