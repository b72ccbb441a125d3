#!/bin/bash
vllm serve Qwen/Qwen2.5-7B-Instruct-AWQ --quantization awq \
  --gpu-memory-utilization 0.40 --enforce-eager --host 127.0.0.1 --port 9001
