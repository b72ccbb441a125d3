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
# Read by start.sh; secrets are not in it.
set -euo pipefail
export DOLLAR=$'$HOME ${X:-y} $$'
export EMPTY=''
export LANGUAGE=y
export NO_ESCAPE=$'it\'s "$(touch pwned)" `x` \\ | ☃ ${HOME}\ton\n# yes: - off\xe2\x80\xae'
export ZERO=0
