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
# Read by start.sh; secrets are not in it.
set -euo pipefail
