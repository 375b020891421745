#!/bin/bash
OUT=$1
ZERO=$2
if [ "$OUT" == "" ]; then
    OUT=./out
fi
if [ "$ZERO" == "" ]; then
    ZERO=3
fi
deepspeed main.py \
   --model_name_or_path facebook/opt-66b \
   --per_device_train_batch_size 4 \
   --max_seq_len 512 \
   --gradient_accumulation_steps 1 \
   --gradient_checkpointing \
   --zero_stage $ZERO \
   --lora_dim 128 \
   --lora_module_name decoder.layers. \
   --deepspeed \
   --output_dir $OUT
