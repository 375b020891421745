#!/bin/bash
OUTPUT=$1
STAGE=$2
if [ "$OUTPUT" == "" ]; then
    OUTPUT=./out
fi
if [ "$STAGE" == "" ]; then
    STAGE=3
fi
mkdir -p $OUTPUT
deepspeed --num_gpus 8 main.py \
   --data_path Dahoas/rm-static Dahoas/full-hh-rlhf \
   --model_name_or_path meta-llama/Llama-2-7b-hf \
   --per_device_train_batch_size 4 \
   --per_device_eval_batch_size 4 \
   --max_seq_len 512 \
   --weight_decay 0. \
   --gradient_accumulation_steps 1 \
   --gradient_checkpointing \
   --zero_stage $STAGE \
   --deepspeed \
   --output_dir $OUTPUT \
   &> $OUTPUT/training.log
