#!/bin/bash
export VLLM_PORT=8080
python3 -m vllm.entrypoints.openai.api_server \
  --model /home/alice/models/qwen3-8b \
  --port "$VLLM_PORT" --host 127.0.0.1 --trust-remote-code
