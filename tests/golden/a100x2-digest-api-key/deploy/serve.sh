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
# Start:      ./serve.sh
# Variables:  VLLM (the program: vllm), HOST (127.0.0.1), PORT (8000)
# Secret:     HF_TOKEN is read from the environment by the engine; it is not written here.
# Secret:     VLLM_API_KEY is read from the environment by the engine; it is not written here.
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
  mistralai/Mistral-Small-3.2-24B-Instruct-2506
  --served-model-name Mistral-Small-3.2-24B-Instruct-2506
  --revision 95a6d26c4bfb886c58daf9d3f7332c857cb27b44
  --max-num-seqs 64
  --tensor-parallel-size 2
  --tokenizer-mode mistral
  --host "${host}"
  --port "${port}"
)

exec "${program}" serve "${args[@]}" "$@"
