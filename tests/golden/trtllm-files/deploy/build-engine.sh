#!/usr/bin/env bash
# Written by llmtune 0.1.0 from plan d291778a8a37.
# Do not edit: `llmtune emit` writes this file again from plan.json.
# NOT VERIFIED: the best of a search, measured once. No comparison on fresh servers confirmed it.
# plan       d291778a8a37, study peak-hours, question a30c153d6b87
# model      meta-llama/Meta-Llama-3-70B-Instruct@50fdd307a1da1afb4ab4d0e4d3a7c5b3e8d3c2a1
# engine     trtllm 1.2.1, image nvcr.io/nvidia/tensorrt-llm/release:1.2.1
# hardware   8 x NVIDIA H100 80GB HBM3, driver 570.86.15, 1024 GiB host memory
# workload   short: 64 input and 32 output tokens, 16 at once (closed loop), 64 requests a run after 4 for warm-up
# SLO        p95 ttft<=500ms, p99 itl<=80ms
# objective  output throughput
# verdict    not_verified: stopped before verification
# MEASURED   start 212.4 s, the longest of 6
# command    llmtune optimize --model llama-3-70b --workload chat --baseline serve.sh
#
# WARNING: legacy. The TensorRT backend ended with TensorRT-LLM 1.2.1. Newer releases have neither trtllm-build nor
# convert_checkpoint.py and refuse an engine directory; move to the PyTorch backend, which needs no build.
# Nothing here was measured: the server that llmtune started built its engine by itself.
#
# Run by hand where TensorRT-LLM 1.2.1 and its GPUs are, only to build the engine ahead of the start.
#   MODEL_DIR   directory of the Hugging Face checkpoint
#   CONVERTER   convert_checkpoint.py of the model's family, from the sources of the same release
#   WORK_DIR    where checkpoint and engine go (default: ./trt-engine)
# Ranks of conversion, build and server are the same (8 x 1); trtllm-serve starts them itself, without mpirun.
set -euo pipefail

: "${MODEL_DIR:?set MODEL_DIR to the directory of the checkpoint}"
: "${CONVERTER:?set CONVERTER to convert_checkpoint.py of TensorRT-LLM 1.2.1}"
work=${WORK_DIR:-trt-engine}

python3 "${CONVERTER}" --model_dir "${MODEL_DIR}" --output_dir "${work}/checkpoint" \
  --dtype bfloat16 --tp_size 8 --pp_size 1
trtllm-build --checkpoint_dir "${work}/checkpoint" --output_dir "${work}/engine" \
  --max_batch_size 256 \
  --max_num_tokens 8192 \
  --max_seq_len 8192

printf 'Start it with: trtllm-serve %s/engine --backend tensorrt --tokenizer %s\n' "${work}" "${MODEL_DIR}"
