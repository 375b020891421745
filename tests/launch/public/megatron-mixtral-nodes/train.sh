#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
PER_NODE=8
ADDRESS=${MASTER_ADDR:-"localhost"}
NODES=${SLURM_NNODES:-"1"}
LAUNCH=(
    --nproc_per_node $PER_NODE
    --nnodes $NODES
    --master_addr $ADDRESS
)
MODEL=(
    --seq-length 4096
    --max-position-embeddings 32768
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --normalization RMSNorm
    --position-embedding-type rope
    --swiglu
    --untie-embeddings-and-output-weights
    --group-query-attention
    --num-query-groups 8
    --attention-dropout 0.0 --hidden-dropout 0.0
    --disable-bias-linear
)
EXPERTS=(
    --num-experts 8
    --moe-router-topk 2
    --moe-token-dispatcher-type alltoall
)
TRAIN=(
    --micro-batch-size 1
    --global-batch-size 256
    --bf16
    --tensor-model-parallel-size 1
    --pipeline-model-parallel-size 4
    --expert-model-parallel-size 8
    --use-distributed-optimizer
)
LOG=(
    --log-interval 1 \
    --save-interval 10000 \
)
if [ -n "${WANDB_API_KEY}" ]; then
    LOG+=(--wandb-project ${WANDB_PROJECT:-"experts"})
fi
torchrun ${LAUNCH[@]} pretrain_gpt.py ${MODEL[@]} ${EXPERTS[@]} ${TRAIN[@]} ${LOG[@]}
