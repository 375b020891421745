#!/bin/bash
set -eu -o pipefail

export WORKLOAD_TYPE=pretrain
export MODEL_NAME=llama3.1
export FW_VERSION=26.04.01
export IMAGE=${RUN_CONF_IMAGE:-$LLMB_INSTALL/images/nvidia+nemo+$FW_VERSION.sqsh}

MODEL_SIZE=${MODEL_SIZE:-405b}
MODEL_SIZE=${MODEL_SIZE,,}
GPU_TYPE=${GPU_TYPE:-h100}
JOB_TOTAL_GPUS=${JOB_TOTAL_GPUS:-256}
TIME_LIMIT=${TIME_LIMIT:-"02:00:00"}

MODEL_FAMILY_NAME="llama"
if [[ $MODEL_SIZE == 405b ]]; then
    MODEL_RECIPE_NAME="llama31_405b"
elif [[ $MODEL_SIZE == 70b ]]; then
    MODEL_RECIPE_NAME="llama3_70b"
else
    exit 1
fi
if [[ $GPU_TYPE == "gb200" ]] || [[ $GPU_TYPE == "gb300" ]]; then
    GPUS_PER_NODE=4
else
    GPUS_PER_NODE=8
fi
CONFIG_OVERRIDES="${CONFIG_OVERRIDES:-}"
CONFIG_OVERRIDES+=" --max_steps=50 "
CONFIG_OVERRIDES+=" --compute_dtype fp8_cs "

pushd $LLMB_WORKLOAD/Megatron-Bridge
python scripts/performance/setup_experiment.py \
    --model_family_name $MODEL_FAMILY_NAME \
    --model_recipe_name $MODEL_RECIPE_NAME \
    --gpu $GPU_TYPE \
    --container_image $IMAGE \
    --num_gpus $JOB_TOTAL_GPUS \
    --gpus_per_node $GPUS_PER_NODE \
    --offline \
    $CONFIG_OVERRIDES \
    --account $SBATCH_ACCOUNT \
    --time_limit $TIME_LIMIT
popd
