#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan 0c7cbd6c63f2.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# NOT VERIFIED: the best of a search, measured once. No comparison on fresh servers confirmed it.
# plan       0c7cbd6c63f2, study chat-all, question debf46d17aa0
# model      tiny-15m (local directory, fingerprint 9f2c51d0a7be)
# engine     vllm 0.32.0, no image
# hardware   CPU, 2 cores (AMD EPYC 7B13), 24 GiB host memory
# workload   short: 64 input and 32 output tokens, 16 at once (closed loop), 64 requests a run after 4 for warm-up
# SLO        p95 ttft<=500ms, p99 itl<=80ms
# objective  output throughput
# verdict    not_verified (study not complete): stopped before verification
# MEASURED   output throughput 450 [427.5, 472.5] tokens/s, n=3, 1 trial, not verified
# MEASURED   start 41.2 s, the longest of 6
# command    llmtune optimize --model models/tiny-15m --workload 64x32@c16 --slo 'p95 ttft<=500ms, p99 itl<=80ms' --trials 6
#
# Start:      MODEL_DIR=/path/to/the/model ./serve.sh
# Variables:  VLLM (the program: vllm), HOST (127.0.0.1), PORT (8000), MODEL_DIR
# Arguments given to this script are passed on, after these.
set -euo pipefail

program=${VLLM:-vllm}
host=${HOST:-127.0.0.1}
port=${PORT:-8000}
model=${MODEL_DIR:-}

if [[ ! -d "${model}" ]]; then
  printf 'error: MODEL_DIR="%s" is not a directory; set it to the directory of %s\n' "${model}" tiny-15m >&2
  exit 2
fi

if ! command -v -- "${program}" >/dev/null; then
  printf 'error: %s not found; activate its environment or set VLLM to its path\n' "${program}" >&2
  exit 127
fi
# The engine's helpers lie beside its program, also where its environment is not activated.
program=$(command -v -- "${program}")
PATH="$(dirname -- "${program}"):${PATH}"
export PATH

args=(
  "${model}"
  --served-model-name tiny-15m
  --dtype float32
  --enforce-eager
  --max-num-seqs 64
  --no-enable-prefix-caching
  --host "${host}"
  --port "${port}"
)

export VLLM_CPU_KVCACHE_SPACE=1
export VLLM_NO_USAGE_STATS=1

exec "${program}" serve "${args[@]}" "$@"
