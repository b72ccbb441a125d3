#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan 6990677924be.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# MISSES THE SLO: nothing that was tried keeps p95 ttft<=500ms, p99 itl<=80ms.
# plan       6990677924be, study data-parallel, question 3f6c8b65553b
# model      Qwen/Qwen3-30B-A3B@ad44e777bcd18fa416d9da3bd8f70d33ebb85d39
# engine     vllm 0.32.0, image vllm/vllm-openai:v0.32.0
# hardware   4 x NVIDIA A100-SXM4-80GB, driver 570.86.15, 512 GiB host memory
# workload   chat: 512 input and 128 output tokens, 32 at once (closed loop), 640 requests a run after 4 for warm-up
# SLO        p95 ttft<=500ms, p99 itl<=80ms
# objective  output throughput
# verdict    nothing_meets_slo: nothing that was tried keeps p95 ttft<=500ms
# MEASURED   output throughput 1200 [1176, 1224] tokens/s, n=3, 3 rounds
# MEASURED   limit p95 ttft<=500ms 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   limit p99 itl<=80ms 44 [41.8, 46.2] ms, n=192, 3 rounds
# MEASURED   p95 TTFT 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   p95 ITL 32 [30.4, 33.6] ms, n=192, 3 rounds
# MEASURED   p95 TPOT 33.6 [31.92, 35.28] ms, n=192, 3 rounds
# MEASURED   ratio to default 1.33 [1.29, 1.37], 3 rounds
# MEASURED   start 95.0 s, the longest of 4
# command    llmtune optimize --model Qwen/Qwen3-30B-A3B --workload chat
#
# Start:      ./start.sh
# Variables:  VLLM (the program: vllm), HOST (127.0.0.1), PORT (8000)
# Secret:     HF_TOKEN is read from the environment by the engine; it is not written here.
# Arguments given to this script are passed on, after these.
set -euo pipefail

program=${VLLM:-vllm}
host=${HOST:-127.0.0.1}
port=${PORT:-8000}
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
