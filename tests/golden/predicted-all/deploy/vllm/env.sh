#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan b1e57c7178bc.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# PREDICTED: no server was started; these settings come from a model of the hardware.
# plan       b1e57c7178bc, study peak-hours-all, question d0ea137c75d6
# model      meta-llama/Meta-Llama-3-70B-Instruct@50fdd307a1da1afb4ab4d0e4d3a7c5b3e8d3c2a1
# engine     vllm 0.32.0, image vllm/vllm-openai:v0.32.0
# hardware   8 x NVIDIA H100 80GB HBM3, driver 570.86.15, 1024 GiB host memory
# workload   chat: about 512 (lognormal, sigma 0.8, 1 to 4096) input and about 256 (lognormal, sigma 0.6, 1 to 1024) output tokens, 20 requests/s (Poisson), 2000 requests a run after 4 for warm-up, 25% of each prompt is one of 4 texts
# SLO        p95 ttft<=500ms, p99 itl<=80ms
# objective  goodput within the SLO
# verdict    not_verified (study not complete): predicted to fit; nothing was measured
# PREDICTED  start 180 s
# command    llmtune plan --model llama-3-70b --gpu h100
#
# Read by start.sh; secrets are not in it.
set -euo pipefail
export VLLM_NO_USAGE_STATS=1
