#!/bin/bash

#SBATCH <SLURM OPTIONS> --nodes=128 --exclusive --ntasks-per-node=8 --job-name=gpt3

DIR=`pwd`
NOW=`date +'date_%y-%m-%d'`
DATASET="0.2 <PATH TO ONE> 0.8 <PATH TO ANOTHER>"
options=" \
	--tensor-model-parallel-size 8 \
	--pipeline-model-parallel-size 16 \
        --num-layers 96 \
        --hidden-size 12288 \
        --num-attention-heads 96 \
        --seq-length 2048 \
        --max-position-embeddings 2048 \
	--micro-batch-size 1 \
	--global-batch-size 1536 \
	--rampup-batch-size 16 16 5859375 \
	--data-path ${DATASET} \
	--vocab-file <PATH TO vocab.json> \
        --fp16 \
	--activations-checkpoint-method uniform "
run_cmd="python -u ${DIR}/pretrain_gpt.py $@ ${options}"
srun -l --container-image "pytorch:20.12" \
     --output=$DIR/logs/%x_$NOW.log sh -c "${run_cmd}"
