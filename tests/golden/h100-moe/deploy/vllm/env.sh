#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan 0b2929c2e06a.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# plan       0b2929c2e06a, study moe, question 834b2b0971c0
# model      openai/gpt-oss-120b@b5c939de8f754692c1647ca79fbf85e8c1e70f8a
# engine     vllm 0.32.0, image vllm/vllm-openai:v0.32.0
# hardware   1 x NVIDIA H100 80GB HBM3, driver 570.86.15, 512 GiB host memory
# workload   assistants: 800 input and 200 output tokens, 40 users in conversations of 4 turns, 5 s between them, 400 requests a run after 4 for warm-up
# SLO        p95 ttft<=500ms, p99 itl<=80ms
# objective  output throughput
# verdict    winner: 33% more output tokens/s than the default [29%, 37%]
# MEASURED   output throughput 1200 [1176, 1224] tokens/s, n=3, 3 rounds
# MEASURED   limit p95 ttft<=500ms 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   limit p99 itl<=80ms 44 [41.8, 46.2] ms, n=192, 3 rounds
# MEASURED   p95 TTFT 192 [182.4, 201.6] ms, n=192, 3 rounds
# MEASURED   p95 ITL 32 [30.4, 33.6] ms, n=192, 3 rounds
# MEASURED   p95 TPOT 33.6 [31.92, 35.28] ms, n=192, 3 rounds
# MEASURED   ratio to default 1.33 [1.29, 1.37], 3 rounds
# MEASURED   start 95.0 s, the longest of 4
# command    llmtune optimize --model openai/gpt-oss-120b --workload chat
#
# Read by start.sh; secrets are not in it.
set -euo pipefail
