#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan dba37c21f1d3.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# plan       dba37c21f1d3, study it's "$(touch pwned)" `x` \ | ☃ ${HOME}\ton
#            | # yes: - off\u202e-all, question 16db9b03fab3
# model      my model (local directory, fingerprint y)
# engine     vllm 0.32.0, image registry.local:5000/team/vllm:v0.32.0-r1
# hardware   CPU, 2 cores (AMD EPYC 7B13), 24 GiB host memory
# workload   it's "$(touch pwned)" `x` \ | ☃ ${HOME}\ton
#            | # yes: - off\u202e: 64 input and 32 output tokens, 16 at once (closed loop), 64 requests a run after 4 for warm-up
# SLO        p95 ttft<=500ms, p99 itl<=80ms
# objective  output throughput
# verdict    no_clear_winner: it's "$(touch pwned)" `x` \ | ☃ ${HOME}\ton
#            | # yes: - off\u202e
# MEASURED   output throughput 385 [377.3, 392.7] tokens/s, n=3, 3 rounds
# MEASURED   limit p95 ttft<=500ms 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   limit p99 itl<=80ms 44 [41.8, 46.2] ms, n=192, 3 rounds
# MEASURED   p95 TTFT 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   p95 ITL 32 [30.4, 33.6] ms, n=192, 3 rounds
# MEASURED   p95 TPOT 33.6 [31.92, 35.28] ms, n=192, 3 rounds
# MEASURED   start 41.2 s, the longest of 6
# command    llmtune optimize --model my model --engine-command 'v llm$'
#
# Start:      MODEL_DIR=/path/to/the/model ./start.sh
# Variables:  V_LLM (the program: v llm$), HOST (127.0.0.1), PORT (8000), MODEL_DIR
# Secret:     MY_KEY is read from the environment by the engine; it is not written here.
# Arguments given to this script are passed on, after these.
set -euo pipefail

program=${V_LLM:-$'v llm$'}
host=${HOST:-127.0.0.1}
port=${PORT:-8000}
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
model=${MODEL_DIR:-}

if [[ ! -d "${model}" ]]; then
  printf 'error: MODEL_DIR="%s" is not a directory; set it to the directory of %s\n' "${model}" 'my model' >&2
  exit 2
fi

if ! command -v -- "${program}" >/dev/null; then
  printf 'error: %s not found; activate its environment or set V_LLM to its path\n' "${program}" >&2
  exit 127
fi
# The engine's helpers lie beside its program, also where its environment is not activated.
program=$(command -v -- "${program}")
PATH="$(dirname -- "${program}"):${PATH}"
export PATH

args=(
  "${model}"
  -n $'a\r\nb'
  --config "${here}"/config.yaml
  --listen="${host}":"${port}"
)

# shellcheck source=/dev/null
. "${here}/env.sh"

exec "${program}" serve "${args[@]}" "$@"
