#!/bin/bash
LLM=lmsys/vicuna-7b-v1.5
docker run --gpus all -p 8000:8000 my-vllm \
  --model $MODEL --dtype=float --gpu-memory-utilization 0.95 --enforce-eager
