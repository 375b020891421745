#!/bin/bash
tune download meta-llama/Llama-2-70b-hf --output-dir /tmp/Llama-2-70b-hf
tune run --nproc_per_node 8 lora_finetune_distributed --config llama2/70B_lora \
  batch_size=4 tokenizer.max_seq_len=4096 model.lora_rank=16 compile=True \
  checkpointer.checkpoint_dir=/tmp/Llama-2-70b-hf dataset.packed=True
