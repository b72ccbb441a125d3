#!/bin/bash
# Hermes 70B on the DGX Spark
vllm serve casperhansen/hermes-70b-awq \
  --host 0.0.0.0 --port 8000 \
  --kv-cache-dtype fp8 >> /var/log/vllm.log 2>&1
