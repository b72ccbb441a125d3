#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan ee58cdc63693.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# plan       ee58cdc63693, study speculative, question b4fe08d674b0
# model      Qwen/Qwen3-32B@9216db5781bf21249d130ec9da846c4624c16137
# engine     vllm 0.32.0, image vllm/vllm-openai:v0.32.0
# hardware   2 x NVIDIA H100 80GB HBM3, driver 570.86.15, 512 GiB host memory
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
# MEASURED   start 130.5 s, the longest of 5
# command    llmtune optimize --model Qwen/Qwen3-32B --workload chat
#
# Start:      ./docker-run.sh     Stop: docker stop qwen3-32b
# Variables:  LLMTUNE_BIND (127.0.0.1), LLMTUNE_PORT (8000), DOCKER (docker), LLMTUNE_HF_CACHE (a volume or a directory)
# Secret:     HF_TOKEN is passed on from the environment by name; it is not written here.
# Arguments given to this script are passed on to the engine, after these.
set -euo pipefail

options=(
  --rm
  --name qwen3-32b
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
  --health-start-period 300s
)
args=(
  Qwen/Qwen3-32B
  --served-model-name Qwen3-32B
  --revision 9216db5781bf21249d130ec9da846c4624c16137
  --max-num-seqs 128
  --speculative-config '{"method": "eagle3", "model": "RedHatAI/Qwen3-32B-speculator.eagle3", "num_speculative_tokens": 3}'
  --tensor-parallel-size 2
  --host 0.0.0.0
  --port 8000
)

exec "${DOCKER:-docker}" run "${options[@]}" vllm/vllm-openai:v0.32.0 "${args[@]}" "$@"
