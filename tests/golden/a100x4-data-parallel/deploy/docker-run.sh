#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan 6990677924be.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# MISSES THE SLO: nothing that was tried keeps p95 ttft<=500ms, p99 itl<=80ms.
# plan       6990677924be, study data-parallel, question 3f6c8b65553b
# model      Qwen/Qwen3-30B-A3B@ad44e777bcd18fa416d9da3bd8f70d33ebb85d39
# engine     vllm 0.32.0, image vllm/vllm-openai:v0.32.0
# hardware   4 x NVIDIA A100-SXM4-80GB, driver 570.86.15, 512 GiB host memory
# workload   chat: 512 input and 128 output tokens, 32 at once (closed loop), 640 requests a run after 4 for warm-up
# SLO        p95 ttft<=500ms, p99 itl<=80ms
# objective  output throughput
# verdict    nothing_meets_slo: nothing that was tried keeps p95 ttft<=500ms
# MEASURED   output throughput 1200 [1176, 1224] tokens/s, n=3, 3 rounds
# MEASURED   limit p95 ttft<=500ms 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   limit p99 itl<=80ms 44 [41.8, 46.2] ms, n=192, 3 rounds
# MEASURED   p95 TTFT 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   p95 ITL 32 [30.4, 33.6] ms, n=192, 3 rounds
# MEASURED   p95 TPOT 33.6 [31.92, 35.28] ms, n=192, 3 rounds
# MEASURED   ratio to default 1.33 [1.29, 1.37], 3 rounds
# MEASURED   start 95.0 s, the longest of 4
# command    llmtune optimize --model Qwen/Qwen3-30B-A3B --workload chat
#
# Start:      ./docker-run.sh     Stop: docker stop qwen3-30b-a3b
# Variables:  LLMTUNE_BIND (127.0.0.1), LLMTUNE_PORT (8000), DOCKER (docker), LLMTUNE_HF_CACHE (a volume or a directory)
# Secret:     HF_TOKEN is passed on from the environment by name; it is not written here.
# Arguments given to this script are passed on to the engine, after these.
set -euo pipefail

options=(
  --rm
  --name qwen3-30b-a3b
  --stop-timeout 45
  --publish "${LLMTUNE_BIND:-127.0.0.1}:${LLMTUNE_PORT:-8000}:8000"
  --gpus 4
  --ipc host
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
  Qwen/Qwen3-30B-A3B
  --served-model-name Qwen3-30B-A3B
  --revision ad44e777bcd18fa416d9da3bd8f70d33ebb85d39
  --data-parallel-size 4
  --enable-expert-parallel
  --host 0.0.0.0
  --port 8000
)

exec "${DOCKER:-docker}" run "${options[@]}" vllm/vllm-openai:v0.32.0 "${args[@]}" "$@"
