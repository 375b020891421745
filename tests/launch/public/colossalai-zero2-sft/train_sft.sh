#!/bin/bash
PROJECT_NAME="SFT"
PRETRAINED_MODEL_PATH="meta-llama/Llama-2-7b-hf"
declare -a dataset=(
    data/arrow/part-00000
    data/arrow/part-00001
)
SAVE_DIR="checkpoints/${PROJECT_NAME}-$(date +%Y-%m-%d)"
colossalai run --nproc_per_node 4 --master_port 31312 --hostfile ./hostfile train_sft.py \
    --pretrain $PRETRAINED_MODEL_PATH \
    --tokenizer_dir $PRETRAINED_MODEL_PATH \
    --save_interval 2000 \
    --dataset ${dataset[@]} \
    --plugin zero2_cpu \
    --batch_size 8 \
    --max_epochs 1 \
    --lr 5e-5 \
    --max_len 4096 \
    --use_flash_attn \
    --grad_checkpoint \
    --save_path $SAVE_DIR
