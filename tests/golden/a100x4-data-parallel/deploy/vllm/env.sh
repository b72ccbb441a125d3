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
# Read by start.sh; secrets are not in it.
set -euo pipefail
