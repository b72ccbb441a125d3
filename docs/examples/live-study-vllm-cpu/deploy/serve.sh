#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan 4cab4368a23e.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# plan       4cab4368a23e, study live, question e1ec1ff6b757
# model      tiny-llama (local directory, fingerprint 7613c2739958)
# engine     vllm 0.32.0, image vllm/vllm-openai-cpu:v0.32.0
# hardware   CPU, 1 cores (AMD EPYC), 24 GiB host memory
# workload   shared-prefix: 128 to 384 input and 12 to 36 output tokens, 8 at once (closed loop), 56 requests a run after 8 for warm-up, 60% of each prompt is one of 2 texts
# SLO        p95 ttft<=1500ms, p95 itl<=250ms, error_rate<=1%
# objective  most clients within the SLO
# verdict    winner: trial 8 beats the engine's defaults: max_concurrency 10.49x [9.32, 11.81], 3 rounds each, MEASURED; 832..1081 % better
# MEASURED   most clients within the SLO 21 [18.52, 23.48] clients, n=3, 3 rounds
# MEASURED   output throughput 173.9 [145.6, 208.1] tokens/s, n=120, 3 rounds
# MEASURED   limit p95 ttft<=1500ms 1173 [983.2, 1349] ms, n=441, 3 rounds
# MEASURED   limit p95 itl<=250ms 227.7 [186.3, 343.1] ms, n=441, 3 rounds
# MEASURED   limit error_rate<=1% 0 [0, 2.671] %, n=441, 3 rounds
# MEASURED   p95 TTFT 1173 [983.2, 1349] ms, n=441, 3 rounds
# MEASURED   p95 ITL 227.7 [186.3, 343.1] ms, n=441, 3 rounds
# MEASURED   p95 TPOT 108.5 [96.72, 130.4] ms, n=441, 3 rounds
# MEASURED   ratio to default 10.49 [9.321, 11.81], 3 rounds
# MEASURED   start 38.8 s, the longest of 4
# command    llmtune optimize --model docs/examples/live-study-vllm-cpu/../../../.cache/demo-model/tiny-llama --space docs/examples/live-study-vllm-cpu/space.yaml --set enforce-eager=true --set max-model-len=2048 --set env:VLLM_CPU_KVCACHE_SPACE=1 --set env:VLLM_CPU_OMP_THREADS_BIND=1 --workload docs/examples/live-study-vllm-cpu/workload.yaml --slo 'p95 ttft<=1500ms, p95 itl<=250ms, error_rate<=1%' --objective max_concurrency,output_tokens_per_s --trials 13 --finalists 1 --verify-rounds 3 --soak 1m --study live --seed 2
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
  printf 'error: MODEL_DIR="%s" is not a directory; set it to the directory of %s\n' "${model}" tiny-llama >&2
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
  --served-model-name tiny-llama
  --dtype float32
  --enforce-eager
  --max-model-len 2048
  --max-num-seqs 16
  --host "${host}"
  --port "${port}"
)

export VLLM_CPU_KVCACHE_SPACE=1
export VLLM_CPU_OMP_THREADS_BIND=1

exec "${program}" serve "${args[@]}" "$@"
