#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan b1e57c7178bc.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# plan       b1e57c7178bc, study peak-hours-all, question d0ea137c75d6
# model      meta-llama/Meta-Llama-3-70B-Instruct@50fdd307a1da1afb4ab4d0e4d3a7c5b3e8d3c2a1
# engine     vllm 0.32.0, image vllm/vllm-openai:v0.32.0
# hardware   8 x NVIDIA H100 80GB HBM3, driver 570.86.15, 1024 GiB host memory
# workload   chat: about 512 (lognormal, sigma 0.8, 1 to 4096) input and about 256 (lognormal, sigma 0.6, 1 to 1024) output tokens, 20 requests/s (Poisson), 2000 requests a run after 4 for warm-up, 25% of each prompt is one of 4 texts
# SLO        p95 ttft<=500ms, p99 itl<=80ms
# objective  goodput within the SLO
# verdict    winner: 15% more goodput than the baseline [12%, 19%]
# MEASURED   goodput within the SLO 19.6 [19.21, 19.99] requests/s, n=3, 3 rounds
# MEASURED   output throughput 5100 [4797, 5409] tokens/s, n=33, 3 rounds
# MEASURED   limit p95 ttft<=500ms 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   limit p99 itl<=80ms 44 [41.8, 46.2] ms, n=192, 3 rounds
# MEASURED   p95 TTFT 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   p95 ITL 32 [30.4, 33.6] ms, n=192, 3 rounds
# MEASURED   p95 TPOT 33.6 [31.92, 35.28] ms, n=192, 3 rounds
# MEASURED   ratio to baseline 1.15 [1.12, 1.19], 3 rounds
# MEASURED   start 212.4 s, the longest of 6
# command    llmtune optimize --model llama-3-70b --workload chat --baseline serve.sh
#
# Read by start.sh; secrets are not in it.
set -euo pipefail
export VLLM_NO_USAGE_STATS=1
