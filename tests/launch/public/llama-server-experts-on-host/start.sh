#!/usr/bin/env bash
set -euo pipefail
MODEL="./models/Qwen3-30B-A3B-UD-Q4_K_XL.gguf"

./build/bin/llama-server \
  --model "$MODEL" \
  --port 8080 \
  \
  --n-gpu-layers 99 \
  -ot ".ffn_.*_exps.=CPU" \
  \
  -np 5 \
  --ctx-size 32768 \
  -b 4096 \
  -ub 4096 \
  \
  --cache-type-k q8_0 \
  --cache-type-v q8_0 \
  --temp 1.0
