#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan 1220aefcf60a.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# PREDICTED: no server was started; these settings come from a model of the hardware.
# plan       1220aefcf60a, study plan-512x256-c512-2xh100, question ac1b68573da5
# model      meta-llama/Meta-Llama-3-70B-Instruct@(revision not pinned)
# engine     vllm 0.33.0, image vllm/vllm-openai:v0.33.0
# hardware   2 x H100 80GB HBM3
# workload   512x256@c512: 512 input and 256 output tokens, 512 at once (closed loop), 4096 requests a run after 64 for warm-up
# SLO        none
# objective  output throughput
# verdict    not_verified: PREDICTED, nothing was measured: 4 replicas of these files on 8 H100-SXM5-80GB serve 512 clients in a closed loop with 10663 output tokens/s, p95 TTFT 734 ms and p95 ITL 25.7 ms. TPOT of models left out of the fit, on H100-SXM5-80GB was off by 15.4 % in the mean.
# PREDICTED  start 295 s
# command    llmtune plan --model llama-3-70b --gpu h100 --gpus 8 --workload 512x256@c512
#
# Start:      ./docker-run.sh     Stop: docker stop llama-3-70b
# Variables:  LLMTUNE_BIND (127.0.0.1), LLMTUNE_PORT (8000), DOCKER (docker), LLMTUNE_HF_CACHE (a volume or a directory)
# Secret:     HF_TOKEN is passed on from the environment by name; it is not written here.
# Arguments given to this script are passed on to the engine, after these.
set -euo pipefail

options=(
  --rm
  --name llama-3-70b
  --stop-timeout 45
  --publish "${LLMTUNE_BIND:-127.0.0.1}:${LLMTUNE_PORT:-8000}:8000"
  --gpus 2
  --ipc host
  --volume "${LLMTUNE_HF_CACHE:-llmtune-hf-cache}:/root/.cache/huggingface"
  --volume llmtune-vllm-cache:/root/.cache/vllm
  --env HF_TOKEN
  --health-cmd 'curl -f -sS http://localhost:8000/health'
  --health-interval 10s
  --health-timeout 10s
  --health-retries 6
  --health-start-period 600s
)
args=(
  meta-llama/Meta-Llama-3-70B-Instruct
  --served-model-name llama-3-70b
  --max-num-batched-tokens 8192
  --max-num-seqs 512
  --quantization fp8
  --tensor-parallel-size 2
  --host 0.0.0.0
  --port 8000
)

exec "${DOCKER:-docker}" run "${options[@]}" vllm/vllm-openai:v0.33.0 "${args[@]}" "$@"
