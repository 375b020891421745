#!/bin/bash
torchrun --nproc-per-node=8 examples/llm_finetune/finetune.py \
  --config examples/llm_finetune/llama3_1/llama3_1_8b_squad_qlora.yaml \
  --step_scheduler.local_batch_size 2 --packed_sequence.packed_sequence_size=1024
