#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan e064f2ccfc25.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# plan       e064f2ccfc25, study two-hosts, question 51ca05f5f303
# model      deepseek-ai/DeepSeek-V3@e9b33add76883f293d6bf61f6bd89b497e80e335
# engine     vllm 0.32.0, image vllm/vllm-openai:v0.32.0
# hardware   8 x NVIDIA H200, driver 570.86.15, 512 GiB host memory
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
# MEASURED   start 640.0 s, the longest of 3
# command    llmtune optimize --model deepseek-ai/DeepSeek-V3 --workload chat
#
# Start:      NODE_RANK=0 LEADER=ADDRESS ./serve.sh
# Variables:  VLLM (the program: vllm), HOST (127.0.0.1), PORT (8000)
# Hosts:      run it on each of 2, NODE_RANK from 0 to 1, LEADER the address of the host of rank 0, which answers
# Secret:     HF_TOKEN is read from the environment by the engine; it is not written here.
# Arguments given to this script are passed on, after these.
set -euo pipefail

program=${VLLM:-vllm}
host=${HOST:-127.0.0.1}
port=${PORT:-8000}
rank=${NODE_RANK:?set NODE_RANK: 0 to 1, another on each host}
leader=${LEADER:?set LEADER to the address of the host of rank 0}

if ! command -v -- "${program}" >/dev/null; then
  printf 'error: %s not found; activate its environment or set VLLM to its path\n' "${program}" >&2
  exit 127
fi
# The engine's helpers lie beside its program, also where its environment is not activated.
program=$(command -v -- "${program}")
PATH="$(dirname -- "${program}"):${PATH}"
export PATH

args=(
  deepseek-ai/DeepSeek-V3
  --served-model-name DeepSeek-V3
  --revision e9b33add76883f293d6bf61f6bd89b497e80e335
  --enable-expert-parallel
  --gpu-memory-utilization 0.92
  --max-num-seqs 256
  --pipeline-parallel-size 2
  --tensor-parallel-size 8
  --host "${host}"
  --port "${port}"
  --nnodes 2
  --node-rank "${rank}"
  --master-addr "${leader}"
)
if [[ "${rank}" != 0 ]]; then
  args+=(--headless)
fi

exec "${program}" serve "${args[@]}" "$@"
