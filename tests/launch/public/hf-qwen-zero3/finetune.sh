#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
DIR=`pwd`
PER_NODE=$(python -c 'import torch; print(torch.cuda.device_count())')
NNODES=${NNODES:-1}
MODEL="Qwen/Qwen-7B" # or a path
DATA="data.json"
function usage() {
    echo '
Usage: bash finetune.sh [-m MODEL]
'
}
while [[ "$1" != "" ]]; do
    case $1 in
        -m | --model )
            shift
            MODEL=$1
            ;;
        -h | --help )
            usage
            exit 0
            ;;
        * )
            echo "Unknown argument ${1}"
            exit 1
            ;;
    esac
    shift
done
LAUNCH="
    --nproc_per_node $PER_NODE \
    --nnodes $NNODES
"
torchrun $LAUNCH finetune.py \
    --model_name_or_path $MODEL \
    --data_path $DATA \
    --bf16 True \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 16 \
    --evaluation_strategy "no" \
    --learning_rate 1e-5 \
    --model_max_length 512 \
    --gradient_checkpointing True \
    --deepspeed ds_config_zero3.json
