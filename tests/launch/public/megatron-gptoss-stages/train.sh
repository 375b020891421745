#!/bin/bash
SAVE="NONE"
CONFIG=""
while [[ $# -gt 0 ]]; do
    case $1 in
        --save-to)
            SAVE="$2"
            shift 2
            ;;
        --distributed)
            CONFIG="$2"
            shift 2
            ;;
        *)
            exit 1
            ;;
    esac
done
PER_NODE=8
NODES=1
if [ -n "$CONFIG" ]; then
    source "$CONFIG"
fi
PER_NODE=${PER_NODE:-8}
NODES=${NODES:-1}
WORLD=$(($PER_NODE*$NODES))
PP=${WORLD}
MODEL=(
    --num-layers 12
    --hidden-size 512
    --ffn-hidden-size 2048
    --num-attention-heads 64
    --group-query-attention
    --num-query-groups 8
    --seq-length 8192
    --max-position-embeddings 8192
    --num-experts 4
    --moe-router-topk 2
    --vocab-size 128256
    --swiglu
)
SPLIT=(
    --tensor-model-parallel-size 1
    --pipeline-model-parallel-size ${PP}
    --micro-batch-size 1
    --global-batch-size 128
    --use-distributed-optimizer
    --fp8-format hybrid
    --bf16
    --recompute-activations
)
torchrun --nproc_per_node $PER_NODE --nnodes $NODES pretrain_gpt.py ${MODEL[@]} ${SPLIT[@]}
