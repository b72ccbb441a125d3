#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan 854bb2aa92f4.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# plan       854bb2aa92f4, study replicas, question 3d94fdb2036d
# model      Qwen/Qwen2.5-32B-Instruct@5ede1c97bbab6ce5cda5812749b4c0bdf79b18dd
# engine     vllm 0.32.0, image vllm/vllm-openai:v0.32.0
# hardware   8 x NVIDIA A100-SXM4-80GB, driver 570.86.15, 512 GiB host memory
# workload   chat: 512 input and 128 output tokens, 64 at once (closed loop), 1280 requests a run after 4 for warm-up
# SLO        p95 ttft<=500ms, p99 itl<=80ms
# objective  output throughput
# replicas   4 servers fill the hardware, each with 2 GPUs. The objective is of all of them together; one was measured under its share of the load, and other metrics are of one.
# verdict    winner: 52% more output tokens/s than the default [47%, 57%]
# MEASURED   output throughput 3210 [3146, 3274] tokens/s, n=3, 3 rounds
# MEASURED   limit p95 ttft<=500ms 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   limit p99 itl<=80ms 44 [41.8, 46.2] ms, n=192, 3 rounds
# MEASURED   p95 TTFT 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   p95 ITL 32 [30.4, 33.6] ms, n=192, 3 rounds
# MEASURED   p95 TPOT 33.6 [31.92, 35.28] ms, n=192, 3 rounds
# MEASURED   ratio to default 1.52 [1.474, 1.566], 3 rounds
# MEASURED   start 97.0 s, the longest of 9
# command    llmtune optimize --model Qwen/Qwen2.5-32B-Instruct --workload chat
#
# Start:      ./docker-run.sh     Stop: docker stop qwen2-5-32b-instruct-REPLICA
# Variables:  LLMTUNE_BIND (127.0.0.1), LLMTUNE_PORT (8000), DOCKER (docker), LLMTUNE_HF_CACHE (a volume or a directory)
# Replicas:   the plan is for 4 servers on this machine: run it with REPLICA (0) from 0 to 3
# Secret:     HF_TOKEN is passed on from the environment by name; it is not written here.
# Arguments given to this script are passed on to the engine, after these.
set -euo pipefail

# Each server has GPUs of its own, and the port after the one before.
replica=${REPLICA:-0}
devices=$(seq -s, $((replica * 2)) $((replica * 2 + 1)))
port=$((${LLMTUNE_PORT:-8000} + replica))

options=(
  --rm
  --name "qwen2-5-32b-instruct-${replica}"
  --stop-timeout 45
  --publish "${LLMTUNE_BIND:-127.0.0.1}:${port}:8000"
  --gpus "\"device=${devices}\""
  --ipc host
  --volume "${LLMTUNE_HF_CACHE:-llmtune-hf-cache}:/root/.cache/huggingface"
  --volume "llmtune-vllm-cache-${replica}:/root/.cache/vllm"
  --env HF_TOKEN
  --health-cmd 'curl -f -sS http://localhost:8000/health'
  --health-interval 10s
  --health-timeout 10s
  --health-retries 6
  --health-start-period 240s
)
args=(
  Qwen/Qwen2.5-32B-Instruct
  --served-model-name Qwen2.5-32B-Instruct
  --revision 5ede1c97bbab6ce5cda5812749b4c0bdf79b18dd
  --max-num-batched-tokens 8192
  --max-num-seqs 128
  --tensor-parallel-size 2
  --host 0.0.0.0
  --port 8000
)

exec "${DOCKER:-docker}" run "${options[@]}" vllm/vllm-openai:v0.32.0 "${args[@]}" "$@"
