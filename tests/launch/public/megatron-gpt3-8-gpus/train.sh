#!/bin/bash
# 175B on one node: asks for 8 x 16 ranks where 8 GPUs are.
export CUDA_DEVICE_MAX_CONNECTIONS=1
PER_NODE=8
NODES=1
RANKS=$(($PER_NODE*$NODES))
OUT=$1 # where checkpoints go
VOCAB=$2

LAUNCH=(
    --nproc_per_node $PER_NODE
    --nnodes $NODES
    --master_addr localhost
)
MODEL=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto # or flash
)
TRAIN=(
    --micro-batch-size 1
    --global-batch-size 1536
    --step-batch-size-schedule "0:16 2.4B:320 4.8B:624"
    --train-iters 500000
    --fp16
    --lr 6.0e-5
)
SPLIT=(
	--tensor-model-parallel-size 8
	--pipeline-model-parallel-size 16
)
torchrun ${LAUNCH[@]} pretrain_gpt.py \
    ${MODEL[@]} \
    ${TRAIN[@]} \
    ${SPLIT[@]} --save $OUT --vocab-file $VOCAB
