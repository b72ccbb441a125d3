#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan b0af5d42a773.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# plan       b0af5d42a773, study small-gpu, question e9b965ee1459
# model      Qwen/Qwen2.5-7B-Instruct-AWQ@b25037543e9394b818fdfca67ab2a00ecc7dd641
# engine     vllm 0.32.0, image vllm/vllm-openai:v0.32.0
# hardware   1 x NVIDIA L4, driver 570.86.15, 512 GiB host memory
# workload   rate: 512 input and 128 output tokens, 4 requests/s (Poisson), 640 requests a run after 4 for warm-up
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
# command    llmtune optimize --model Qwen/Qwen2.5-7B-Instruct-AWQ --workload chat
#
# Start:      ./docker-run.sh     Stop: docker stop qwen2-5-7b-instruct-awq
# Variables:  LLMTUNE_BIND (127.0.0.1), LLMTUNE_PORT (8000), DOCKER (docker), LLMTUNE_HF_CACHE (a volume or a directory)
# Secret:     HF_TOKEN is passed on from the environment by name; it is not written here.
# Arguments given to this script are passed on to the engine, after these.
set -euo pipefail

options=(
  --rm
  --name qwen2-5-7b-instruct-awq
  --stop-timeout 45
  --publish "${LLMTUNE_BIND:-127.0.0.1}:${LLMTUNE_PORT:-8000}:8000"
  --gpus 1
  --volume "${LLMTUNE_HF_CACHE:-llmtune-hf-cache}:/root/.cache/huggingface"
  --volume llmtune-vllm-cache:/root/.cache/vllm
  --env VLLM_USE_FLASHINFER_SAMPLER=0
  --env HF_TOKEN
  --health-cmd 'curl -f -sS http://localhost:8000/health'
  --health-interval 10s
  --health-timeout 10s
  --health-retries 6
  --health-start-period 240s
)
args=(
  Qwen/Qwen2.5-7B-Instruct-AWQ
  --served-model-name Qwen2.5-7B-Instruct-AWQ
  --revision b25037543e9394b818fdfca67ab2a00ecc7dd641
  --no-enable-chunked-prefill
  --no-enable-prefix-caching
  --gpu-memory-utilization 0.95
  --kv-cache-dtype fp8
  --max-model-len 8192
  --quantization awq_marlin
  --seed=-1
  --host 0.0.0.0
  --port 8000
)

exec "${DOCKER:-docker}" run "${options[@]}" vllm/vllm-openai:v0.32.0 "${args[@]}" "$@"
