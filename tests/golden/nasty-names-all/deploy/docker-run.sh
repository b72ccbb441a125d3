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
# Start:      MODEL_DIR=/path/to/the/model ./docker-run.sh     Stop: docker stop it-s-touch-pwned-x-home-on-yes-off
# Variables:  LLMTUNE_BIND (127.0.0.1), LLMTUNE_PORT (8000), DOCKER (docker), MODEL_DIR
# Secret:     MY_KEY is passed on from the environment by name; it is not written here.
# Arguments given to this script are passed on to the engine, after these.
set -euo pipefail

model=${MODEL_DIR:-}
if [[ ! -d "${model}" ]]; then
  printf 'error: MODEL_DIR="%s" is not a directory; set it to the directory of %s\n' "${model}" 'my model' >&2
  exit 2
fi
model=$(CDPATH='' cd -- "${model}" && pwd)

options=(
  --rm
  --name it-s-touch-pwned-x-home-on-yes-off
  --stop-timeout 45
  --publish "${LLMTUNE_BIND:-127.0.0.1}:${LLMTUNE_PORT:-8000}:8000"
  --mount "type=bind,\"source=${model//\"/\"\"}\",target=/models/my-model,readonly"
  --volume llmtune-vllm-cache:/root/.cache/vllm
  --env $'DOLLAR=$HOME ${X:-y} $$'
  --env EMPTY=
  --env LANGUAGE=y
  --env $'NO_ESCAPE=it\'s "$(touch pwned)" `x` \\ | ☃ ${HOME}\ton\n# yes: - off\xe2\x80\xae'
  --env ZERO=0
  --env MY_KEY
  --health-cmd 'curl -f -sS http://localhost:8000/health'
  --health-interval 10s
  --health-timeout 10s
  --health-retries 6
  --health-start-period 90s
  --entrypoint $'v llm$'
)
args=(
  serve
  /models/my-model
  --served-model-name $'it\'s "$(touch pwned)" `x` \\ | ☃ ${HOME}\ton\n# yes: - off\xe2\x80\xae'
  --a on
  --b 22:22
  --c 0123
  --d null
  --e '~'
  --f ''
  --g
  -1
  --h=1e3
  --i ' lead'
  --j $'$$'
  --k '#x'
  --l '{"a": "it'"'"'s"}'
  --m '{host}'
  -n $'a\r\nb'
  --o '[0]=x'
  --p '!!str y'
  --listen=0.0.0.0:8000
)

exec "${DOCKER:-docker}" run "${options[@]}" registry.local:5000/team/vllm:v0.32.0-r1 "${args[@]}" "$@"
