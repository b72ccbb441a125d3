#!/usr/bin/env bash
# The main job on the embedded default: tune the demo model on the real vLLM for CPUs. `make demo` sets up what it needs.
# Further options go to llmtune and win over the ones here: scripts/demo.sh --trials 12
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Nothing is to be fetched, and vLLM's usage report is off.
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1

# A fixed KV cache keeps runs comparable, and eager mode halves the start on a CPU.
exec .venv/bin/llmtune optimize \
    --model .cache/demo-model/tiny-llama \
    --engine-command .venv-vllm/bin/vllm \
    --space search_spaces/vllm-cpu-demo.yaml \
    --set enforce-eager=true \
    --set max-model-len=2048 \
    --set env:VLLM_CPU_KVCACHE_SPACE=1 \
    --baseline "vllm serve .cache/demo-model/tiny-llama --max-num-seqs 2" \
    --workload 64x32@c16 --requests 96 \
    --slo "p95 ttft<=1500ms, error_rate<=1%" \
    --trials 5 \
    --finalists 1 \
    --seed 1 \
    --study demo \
    --out outputs \
    "$@"
