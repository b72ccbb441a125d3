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
# Start:      ./serve.sh
# Variables:  VLLM (the program: vllm), HOST (127.0.0.1), PORT (8000)
# Secret:     HF_TOKEN is read from the environment by the engine; it is not written here.
# Arguments given to this script are passed on, after these.
set -euo pipefail

program=${VLLM:-vllm}
host=${HOST:-127.0.0.1}
port=${PORT:-8000}

if ! command -v -- "${program}" >/dev/null; then
  printf 'error: %s not found; activate its environment or set VLLM to its path\n' "${program}" >&2
  exit 127
fi
# The engine's helpers lie beside its program, also where its environment is not activated.
program=$(command -v -- "${program}")
PATH="$(dirname -- "${program}"):${PATH}"
export PATH

args=(
  Qwen/Qwen3-32B
  --served-model-name Qwen3-32B
  --revision 9216db5781bf21249d130ec9da846c4624c16137
  --max-num-seqs 128
  --speculative-config '{"method": "eagle3", "model": "RedHatAI/Qwen3-32B-speculator.eagle3", "num_speculative_tokens": 3}'
  --tensor-parallel-size 2
  --host "${host}"
  --port "${port}"
)

exec "${program}" serve "${args[@]}" "$@"
