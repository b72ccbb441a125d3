#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan 854bb2aa92f4.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# plan       854bb2aa92f4, study replicas, question 3d94fdb2036d
# model      Qwen/Qwen2.5-32B-Instruct@5ede1c97bbab6ce5cda5812749b4c0bdf79b18dd
# engine     vllm 0.32.0, image vllm/vllm-openai:v0.32.0
# hardware   8 x NVIDIA A100-SXM4-80GB, driver 570.86.15, 512 GiB host memory
# workload   chat: 512 input and 128 output tokens, 64 at once (closed loop), 1280 requests a run after 4 for warm-up
# SLO        p95 ttft<=500ms, p99 itl<=80ms
# objective  output throughput
# replicas   4 servers fill the hardware, each with 2 GPUs. The objective is of all of them together; one was measured under its share of the load, and other metrics are of one.
# verdict    winner: 52% more output tokens/s than the default [47%, 57%]
# MEASURED   output throughput 3210 [3146, 3274] tokens/s, n=3, 3 rounds
# MEASURED   limit p95 ttft<=500ms 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   limit p99 itl<=80ms 44 [41.8, 46.2] ms, n=192, 3 rounds
# MEASURED   p95 TTFT 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   p95 ITL 32 [30.4, 33.6] ms, n=192, 3 rounds
# MEASURED   p95 TPOT 33.6 [31.92, 35.28] ms, n=192, 3 rounds
# MEASURED   ratio to default 1.52 [1.474, 1.566], 3 rounds
# MEASURED   start 97.0 s, the longest of 9
# command    llmtune optimize --model Qwen/Qwen2.5-32B-Instruct --workload chat
#
# Start:      ./start.sh
# Variables:  VLLM (the program: vllm), HOST (127.0.0.1), PORT (8000)
# Replicas:   the plan is for 4 servers on this machine: run it 4 times, with REPLICA from 0 to 3
# Secret:     HF_TOKEN is read from the environment by the engine; it is not written here.
# Arguments given to this script are passed on, after these.
set -euo pipefail

program=${VLLM:-vllm}
host=${HOST:-127.0.0.1}
port=${PORT:-8000}
if [[ -n "${REPLICA:-}" ]]; then
  # One of 4 servers: its own 2 GPUs, and the port after the one before.
  CUDA_VISIBLE_DEVICES=$(seq -s, $((REPLICA * 2)) $((REPLICA * 2 + 1)))
  export CUDA_VISIBLE_DEVICES
  port=$((port + REPLICA))
fi
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

if ! command -v -- "${program}" >/dev/null; then
  printf 'error: %s not found; activate its environment or set VLLM to its path\n' "${program}" >&2
  exit 127
fi
# The engine's helpers lie beside its program, also where its environment is not activated.
program=$(command -v -- "${program}")
PATH="$(dirname -- "${program}"):${PATH}"
export PATH

args=(
  --config "${here}"/config.yaml
  --host "${host}"
  --port "${port}"
)

# shellcheck source=/dev/null
. "${here}/env.sh"

exec "${program}" serve "${args[@]}" "$@"
