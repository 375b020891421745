#!/bin/bash
set -e
ENV=$1
PATCH=$2
export PYTHONPATH=${PATCH}:$PYTHONPATH
if [ $ENV = dsw ]; then
NNODES=1
GPUS_PER_NODE=8
elif [ $ENV = dlc ]; then
NNODES=${WORLD_SIZE}
GPUS_PER_NODE=${KUBERNETES_CONTAINER_RESOURCE_GPU}
fi
LAUNCH="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES"
SIZE=$3
MBS=$4
GBS=$5
SEQ=$6
TP=${10}
PP=${11}
AC=${12}
if [ $SIZE = 7B ]; then
LAYERS=32
elif [ $SIZE = 13B ]; then
LAYERS=40
fi
if [ $AC = full ]; then
    activations=" --recompute-method uniform --recompute-granularity full"
elif [ $AC = none ]; then
    activations=" "
fi
options=" \
        --micro-batch-size ${MBS} \
        --global-batch-size ${GBS} \
        --num-layers ${LAYERS} \
        --seq-length ${SEQ} \
        --tensor-model-parallel-size ${TP} \
        --pipeline-model-parallel-size ${PP} \
        --extra-vocab-size 0 \
        --swiglu"
run_cmd="torchrun $LAUNCH pretrain_megatron_llama.py ${options} ${activations}"
eval ${run_cmd}
