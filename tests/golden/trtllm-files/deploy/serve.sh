#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan d291778a8a37.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# NOT VERIFIED: the best of a search, measured once. No comparison on fresh servers confirmed it.
# plan       d291778a8a37, study peak-hours, question a30c153d6b87
# model      meta-llama/Meta-Llama-3-70B-Instruct@50fdd307a1da1afb4ab4d0e4d3a7c5b3e8d3c2a1
# engine     trtllm 1.2.1, image nvcr.io/nvidia/tensorrt-llm/release:1.2.1
# hardware   8 x NVIDIA H100 80GB HBM3, driver 570.86.15, 1024 GiB host memory
# workload   short: 64 input and 32 output tokens, 16 at once (closed loop), 64 requests a run after 4 for warm-up
# SLO        p95 ttft<=500ms, p99 itl<=80ms
# objective  output throughput
# verdict    not_verified: stopped before verification
# MEASURED   start 212.4 s, the longest of 6
# command    llmtune optimize --model llama-3-70b --workload chat --baseline serve.sh
#
# Start:      ./serve.sh
# Variables:  TRTLLM_SERVE (the program: trtllm-serve), HOST (127.0.0.1), PORT (8000)
# Secret:     HF_TOKEN is read from the environment by the engine; it is not written here.
# Arguments given to this script are passed on, after these.
set -euo pipefail

program=${TRTLLM_SERVE:-trtllm-serve}
host=${HOST:-127.0.0.1}
port=${PORT:-8000}
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

if ! command -v -- "${program}" >/dev/null; then
  printf 'error: %s not found; activate its environment or set TRTLLM_SERVE to its path\n' "${program}" >&2
  exit 127
fi
# The engine's helpers lie beside its program, also where its environment is not activated.
program=$(command -v -- "${program}")
PATH="$(dirname -- "${program}"):${PATH}"
export PATH

args=(
  meta-llama/Meta-Llama-3-70B-Instruct
  --config "${here}"/trtllm-config.yaml
  --backend tensorrt
  --host "${host}"
  --port "${port}"
)

export TRTLLM_NO_USAGE_STATS=1

exec "${program}" "${args[@]}" "$@"
