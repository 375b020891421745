#!/bin/bash
SCALE="8B" # or "800M"
case "${SCALE}" in
    "800M")
        TP=1
        PATTERN="M-M-M--M-*M-M-"
        HIDDEN=1024
        HEADS=16
        BATCH=32
        ;;
    "8B")
        TP=4
        PATTERN="M-M-M--M-M*-M-M-M-M--M*-M-M-M-M-M*--M-M-M-M-M*-M--M-M-M-"
        HIDDEN=4096
        HEADS=32
        BATCH=8
        ;;
    *)
        echo "which scale?"
        exit 1
        ;;
esac
DATA=$1
SEQ=4096
options=" \
       --tensor-model-parallel-size ${TP} \
       --sequence-parallel \
       --pipeline-model-parallel-size 1 \
       --use-distributed-optimizer \
       --untie-embeddings-and-output-weights \
       --position-embedding-type none \
       --hybrid-layer-pattern ${PATTERN} \
       --hidden-size ${HIDDEN} \
       --num-attention-heads ${HEADS} \
       --group-query-attention \
       --num-query-groups 8 \
       --seq-length ${SEQ} \
       --max-position-embeddings ${SEQ} \
       --data-path ${DATA} \
       --micro-batch-size 4 \
       --global-batch-size ${BATCH} \
       --attention-dropout 0.0 \
       --hidden-dropout 0.0 \
       --normalization RMSNorm \
       --bf16"
torchrun --nproc_per_node 8 ../../pretrain_hybrid.py ${options}
