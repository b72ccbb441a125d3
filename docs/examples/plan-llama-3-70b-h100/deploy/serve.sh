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
  meta-llama/Meta-Llama-3-70B-Instruct
  --served-model-name llama-3-70b
  --max-num-batched-tokens 8192
  --max-num-seqs 512
  --quantization fp8
  --tensor-parallel-size 2
  --host "${host}"
  --port "${port}"
)

exec "${program}" serve "${args[@]}" "$@"
