#!/bin/bash
MODE=$1
BATCH_SIZE=${2:-4}
MODEL_NAME="meta-llama/Llama-3.1-8B"
DS_CONFIG_JSON="./llama-8b_${MODE}_config.json"
MAX_LENGTH=4096
ACTIVATION_CHECKPOINTING_FLAG="--activation_checkpointing"
CMD="deepspeed --num_gpus=1 finetune_zero3.py \
    --deepspeed_config=$DS_CONFIG_JSON \
    --model_name $MODEL_NAME \
    --num_train_epochs 1 \
    --lr 1e-5 \
    --batch_size $BATCH_SIZE \
    --output_dir ./out \
    --max_length $MAX_LENGTH \
    --log_interval 1 \
    $ACTIVATION_CHECKPOINTING_FLAG"
eval $CMD
