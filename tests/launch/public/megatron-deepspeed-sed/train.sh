#!/bin/bash
DIR=`pwd`
SEQ=2048
MODEL_SIZE=1.3
BATCH=8
GBS=512
MP=1
PP=1
GPUS=64
EP=128
if [[ $EP -gt $GPUS ]]; then
    EP_RANKS=$GPUS
else
    EP_RANKS=$EP
fi
TOKENS=300000000000
ITERS=$(( ${TOKENS} * 3 / ${GBS} / ${SEQ} ))
NAME="gpt-${MODEL_SIZE}B-gpus-${GPUS}-mp-${MP}"
now=$(date "+%Y.%m.%d")
megatron_options=" \
        --tensor-model-parallel-size ${MP} \
        --moe-expert-parallel-size ${EP_RANKS} \
        --num-experts ${EP} \
        --micro-batch-size ${BATCH} \
        --global-batch-size ${GBS} \
        --num-layers 24 \
        --hidden-size 2048 \
        --num-attention-heads 16 \
        --seq-length ${SEQ} \
        --max-position-embeddings ${SEQ} \
        --train-iters ${ITERS} \
        --fp16"
CHECKPOINT="true"
if [ "${CHECKPOINT}" = "true" ]; then
megatron_options="${megatron_options} \
        --checkpoint-activations"
fi
template="ds_TEMPLATE.json"
config="ds_${NAME}.json"
sed "s/CONFIG_BATCH_SIZE/${GBS}/" ${template} \
    | sed "s/ZERO_STAGE/0/" \
	  > ${config}
deepspeed_options=" --deepspeed --deepspeed_config ${config} --pipeline-model-parallel-size ${PP} --no-pipeline-parallel"
run_cmd="deepspeed ${DIR}/../../pretrain_gpt.py ${megatron_options} ${deepspeed_options} &> ${NAME}_${now}.log"
echo ${run_cmd}
eval ${run_cmd}
