#!/bin/bash
SIZE=76B
if [ ${SIZE} == "39B" ]; then
    TP=8
    PP=2
    NODES=64
elif [ ${SIZE} == "76B" ]; then
    TP=8
    PP=4
    NODES=128
    EXTRA="--activations-checkpoint-method uniform --num-layers-per-virtual-pipeline-stage 5"
else
    exit 1
fi
export JOB=size_${SIZE}
. `pwd`/CONFIG.sh
. `pwd`/SBATCH.sh
