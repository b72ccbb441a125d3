#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan b1e57c7178bc.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# PREDICTED: no server was started; these settings come from a model of the hardware.
# plan       b1e57c7178bc, study peak-hours-all, question d0ea137c75d6
# model      meta-llama/Meta-Llama-3-70B-Instruct@50fdd307a1da1afb4ab4d0e4d3a7c5b3e8d3c2a1
# engine     vllm 0.32.0, image vllm/vllm-openai:v0.32.0
# hardware   8 x NVIDIA H100 80GB HBM3, driver 570.86.15, 1024 GiB host memory
# workload   chat: about 512 (lognormal, sigma 0.8, 1 to 4096) input and about 256 (lognormal, sigma 0.6, 1 to 1024) output tokens, 20 requests/s (Poisson), 2000 requests a run after 4 for warm-up, 25% of each prompt is one of 4 texts
# SLO        p95 ttft<=500ms, p99 itl<=80ms
# objective  goodput within the SLO
# verdict    not_verified (study not complete): predicted to fit; nothing was measured
# PREDICTED  start 180 s
# command    llmtune plan --model llama-3-70b --gpu h100
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
  --revision 50fdd307a1da1afb4ab4d0e4d3a7c5b3e8d3c2a1
  --served-model-name llama-3-70b
  --tensor-parallel-size 8
  --max-num-batched-tokens 16384
  --compilation-config '{"cudagraph_capture_sizes": [1, 2, 4], "mode": 3}'
  --host "${host}"
  --port "${port}"
)

export VLLM_NO_USAGE_STATS=1

exec "${program}" serve "${args[@]}" "$@"
