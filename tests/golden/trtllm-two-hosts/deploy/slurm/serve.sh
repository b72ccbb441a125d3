#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan 98b8954cd575.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# plan       98b8954cd575, study two-hosts, question 861a8923f6cd
# model      deepseek-ai/DeepSeek-R1@56d4cbbb4d29f4355bab4b9a39ccb717a14ad5ad
# engine     trtllm 1.2.1, image nvcr.io/nvidia/tensorrt-llm/release:1.2.1
# hardware   8 x NVIDIA H200, driver 570.86.15, 512 GiB host memory
# workload   short: 64 input and 32 output tokens, 16 at once (closed loop), 64 requests a run after 4 for warm-up
# SLO        p95 ttft<=500ms, p99 itl<=80ms
# objective  output throughput
# verdict    winner: 20% more output tokens/s than the default [18%, 22%]
# MEASURED   output throughput 3600 [3528, 3672] tokens/s, n=3, 3 rounds
# MEASURED   limit p95 ttft<=500ms 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   limit p99 itl<=80ms 44 [41.8, 46.2] ms, n=192, 3 rounds
# MEASURED   p95 TTFT 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   p95 ITL 32 [30.4, 33.6] ms, n=192, 3 rounds
# MEASURED   p95 TPOT 33.6 [31.92, 35.28] ms, n=192, 3 rounds
# MEASURED   ratio to default 1.2 [1.176, 1.224], 3 rounds
# MEASURED   start 900.0 s, the longest of 3
# command    llmtune optimize --model llama-3-70b --workload chat --baseline serve.sh
#
# Start:      mpirun -np 16 --hostfile HOSTS ./serve.sh
# Variables:  TRTLLM_SERVE (the program: trtllm-serve), HOST (127.0.0.1), PORT (8000)
# Hosts:      2, started by MPI (mpirun, or srun --mpi=pmix): the script runs once for each of 16 GPUs, and rank 0 answers
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
  deepseek-ai/DeepSeek-R1
  --config "${here}"/trtllm-config.yaml
  --host "${host}"
  --port "${port}"
)

export TRTLLM_NO_USAGE_STATS=1

exec trtllm-llmapi-launch "${program}" "${args[@]}" "$@"
