#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan a43dea2f662c.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# plan       a43dea2f662c, study api-key, question 689cfd10239f
# model      mistralai/Mistral-Small-3.2-24B-Instruct-2506@95a6d26c4bfb886c58daf9d3f7332c857cb27b44
# engine     vllm 0.32.0, image registry.example.com/team/vllm-openai@sha256:a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2
# hardware   2 x NVIDIA A100-SXM4-80GB, driver 570.86.15, 512 GiB host memory
# workload   chat: 512 input and 128 output tokens, 32 at once (closed loop), 640 requests a run after 4 for warm-up
# SLO        p95 ttft<=250ms, mean e2e<=4000ms, p99 tpot<=60ms, error_rate<=0.1%
# objective  output throughput
# verdict    winner: 33% more output tokens/s than the default [29%, 37%]
# MEASURED   output throughput 1200 [1176, 1224] tokens/s, n=3, 3 rounds
# MEASURED   p95 TTFT 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   p95 ITL 32 [30.4, 33.6] ms, n=192, 3 rounds
# MEASURED   p95 TPOT 33.6 [31.92, 35.28] ms, n=192, 3 rounds
# MEASURED   ratio to default 1.33 [1.29, 1.37], 3 rounds
# MEASURED   start 95.0 s, the longest of 4
# command    llmtune optimize --model mistralai/Mistral-Small-3.2-24B-Instruct-2506 --workload chat
#
# Start:      ./docker-run.sh     Stop: docker stop mistral-small-3-2-24b-instruct-2506
# Variables:  LLMTUNE_BIND (127.0.0.1), LLMTUNE_PORT (8000), DOCKER (docker), LLMTUNE_HF_CACHE (a volume or a directory)
# Secret:     HF_TOKEN is passed on from the environment by name; it is not written here.
# Secret:     VLLM_API_KEY is passed on from the environment by name; it is not written here.
# Arguments given to this script are passed on to the engine, after these.
set -euo pipefail

options=(
  --rm
  --name mistral-small-3-2-24b-instruct-2506
  --stop-timeout 45
  --publish "${LLMTUNE_BIND:-127.0.0.1}:${LLMTUNE_PORT:-8000}:8000"
  --gpus 2
  --ipc host
  --volume "${LLMTUNE_HF_CACHE:-llmtune-hf-cache}:/root/.cache/huggingface"
  --volume llmtune-vllm-cache:/root/.cache/vllm
  --env HF_TOKEN
  --env VLLM_API_KEY
  --health-cmd 'curl -f -sS http://localhost:8000/health'
  --health-interval 10s
  --health-timeout 10s
  --health-retries 6
  --health-start-period 240s
)
args=(
  mistralai/Mistral-Small-3.2-24B-Instruct-2506
  --served-model-name Mistral-Small-3.2-24B-Instruct-2506
  --revision 95a6d26c4bfb886c58daf9d3f7332c857cb27b44
  --max-num-seqs 64
  --tensor-parallel-size 2
  --tokenizer-mode mistral
  --host 0.0.0.0
  --port 8000
)

exec "${DOCKER:-docker}" run "${options[@]}" registry.example.com/team/vllm-openai@sha256:a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2 "${args[@]}" "$@"
