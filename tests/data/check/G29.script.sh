#!/bin/bash
set -e
python3 convert_checkpoint.py --model_dir ./llama --output_dir ./ckpt --dtype bfloat16
cp -r ./llama /models/llama
cp -r ./llama /models/llama-copy
trtllm-build --checkpoint_dir ./ckpt --output_dir ./engine --max_input_len 32768
