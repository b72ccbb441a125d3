#!/bin/bash
LLM=lmsys/vicuna-7b-v1.5
docker run --gpus all -p 8000:8000 vllm/vllm-openai:latest --model $MODEL --disable-log-requests
echo "started
