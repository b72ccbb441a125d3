#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan 8fb25a9554f6.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# plan       8fb25a9554f6, study chat-all, question debf46d17aa0
# model      tiny-15m (local directory, fingerprint 9f2c51d0a7be)
# engine     vllm 0.32.0, image vllm/vllm-openai-cpu:v0.32.0
# hardware   CPU, 2 cores (AMD EPYC 7B13), 24 GiB host memory
# workload   short: 64 input and 32 output tokens, 16 at once (closed loop), 64 requests a run after 4 for warm-up
# SLO        p95 ttft<=500ms, p99 itl<=80ms
# objective  output throughput
# verdict    winner: 17.8% more output tokens/s than the default [15.1%, 20.4%] over 3 rounds
# MEASURED   output throughput 450 [441, 459] tokens/s, n=3, 3 rounds
# MEASURED   limit p95 ttft<=500ms 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   limit p99 itl<=80ms 44 [41.8, 46.2] ms, n=192, 3 rounds
# MEASURED   p95 TTFT 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   p95 ITL 32 [30.4, 33.6] ms, n=192, 3 rounds
# MEASURED   p95 TPOT 33.6 [31.92, 35.28] ms, n=192, 3 rounds
# MEASURED   ratio to default 1.178 [1.151, 1.204], 3 rounds
# MEASURED   start 41.2 s, the longest of 6
# command    llmtune optimize --model models/tiny-15m --workload 64x32@c16 --slo 'p95 ttft<=500ms, p99 itl<=80ms' --trials 6
#
# Start:      MODEL_DIR=/path/to/the/model ./docker-run.sh     Stop: docker stop tiny-15m
# Variables:  LLMTUNE_BIND (127.0.0.1), LLMTUNE_PORT (8000), DOCKER (docker), MODEL_DIR
# Arguments given to this script are passed on to the engine, after these.
set -euo pipefail

model=${MODEL_DIR:-}
if [[ ! -d "${model}" ]]; then
  printf 'error: MODEL_DIR="%s" is not a directory; set it to the directory of %s\n' "${model}" tiny-15m >&2
  exit 2
fi
model=$(CDPATH='' cd -- "${model}" && pwd)

options=(
  --rm
  --name tiny-15m
  --stop-timeout 45
  --publish "${LLMTUNE_BIND:-127.0.0.1}:${LLMTUNE_PORT:-8000}:8000"
  --mount "type=bind,\"source=${model//\"/\"\"}\",target=/models/tiny-15m,readonly"
  --volume llmtune-vllm-cache:/root/.cache/vllm
  --env VLLM_CPU_KVCACHE_SPACE=1
  --env VLLM_NO_USAGE_STATS=1
  --health-cmd 'curl -f -sS http://localhost:8000/health'
  --health-interval 10s
  --health-timeout 10s
  --health-retries 6
  --health-start-period 90s
)
args=(
  /models/tiny-15m
  --served-model-name tiny-15m
  --dtype float32
  --enforce-eager
  --max-num-seqs 64
  --no-enable-prefix-caching
  --host 0.0.0.0
  --port 8000
)

exec "${DOCKER:-docker}" run "${options[@]}" vllm/vllm-openai-cpu:v0.32.0 "${args[@]}" "$@"
