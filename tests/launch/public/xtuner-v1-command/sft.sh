#!/bin/bash
MODEL=${MODEL:-Qwen/Qwen3-8B}
torchrun --nproc-per-node 8 xtuner/v1/train/cli/sft.py --load-from $MODEL --chat_template qwen3 \
  --dataset data/openai_sft.jsonl --total-step 100 --work-dir work_dirs/qwen3 \
  --pack-max-length 8192 --fsdp-config.cpu-offload --optim Muon \
  --float8-config.scaling-granularity-gemm TILEWISE
