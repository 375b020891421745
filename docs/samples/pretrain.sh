#!/bin/bash
#SBATCH --nodes=8
#SBATCH --gpus-per-node=8

TP=${TP:-8}
PP=${PP:-2}
MODEL=(
    --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672
    --num-attention-heads 64 --group-query-attention --num-query-groups 8
    --swiglu --normalization RMSNorm --position-embedding-type rope
    --disable-bias-linear --untie-embeddings-and-output-weights
    --vocab-size 128256 --max-position-embeddings 8192
)
TRAINING=(
    --seq-length 8192
    --micro-batch-size 1
    --global-batch-size 512
    --train-iters 100000 --lr 1.5e-4
    --attention-dropout 0 --hidden-dropout 0
    --bf16 --use-distributed-optimizer
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size $PP
    --sequence-parallel
    --recompute-granularity full
    --recompute-method uniform
    --recompute-num-layers 1
)

srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 \
    --rdzv_backend c10d --rdzv_endpoint $(scontrol show hostnames | head -n 1):29500 \
    pretrain_gpt.py "${MODEL[@]}" "${TRAINING[@]}" --data-path "$DATA"
