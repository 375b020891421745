#!/bin/bash
set -ex
data_options=" --vocab-file ${VOCAB_PATH} --data-impl mmap"
CONFIG=ds_config.json
HOSTS=/job/hostfile
TP=1
PP=1
NLAYERS=96
HIDDEN=12288
HEADS=96
SEQ=1024
MICRO=4
NODES=2
PER_NODE=8
GLOBAL=$(( ${PER_NODE} * ${MICRO} * ${NODES} ))
#OFFLOAD="cpu"
#CPU_OPTIM=" --cpu-optimizer"
OFFLOAD="none"
CPU_OPTIM=" "
STAGE=3
cat <<EOT > $CONFIG
{
  "train_batch_size" : $GLOBAL,
  "train_micro_batch_size_per_gpu": $MICRO,
  "gradient_accumulation_steps": 1,
  "zero_optimization": {
    "stage": 3,
    "stage3_max_live_parameters": 3e9,
    "overlap_comm": true,
    "offload_optimizer": {
      "device": "$OFFLOAD",
      "pin_memory": true
    }
  },
  "fp16": {
    "enabled": true,
    "initial_scale_power" : 15
  },
  "aio": {"block_size": 1048576}
}
EOT
ds_args=" "
ds_args=" --deepspeed ${ds_args}"
ds_args=" --no-pipeline-parallel ${ds_args}"
ds_args=" --deepspeed_config=$CONFIG ${ds_args}"
ds_args=" --zero-stage=$STAGE ${ds_args}"
ds_args=" --deepspeed-activation-checkpointing ${ds_args}"

deepspeed --force_multi --num_nodes=$NODES --num_gpus=$PER_NODE --hostfile $HOSTS pretrain_gpt.py \
    --tensor-model-parallel-size $TP \
    --pipeline-model-parallel-size $PP \
    --num-layers $NLAYERS \
    --hidden-size $HIDDEN \
    --num-attention-heads $HEADS \
    --seq-length $SEQ \
    --max-position-embeddings $SEQ \
    --micro-batch-size $MICRO \
    --global-batch-size $GLOBAL \
    --fp16 \
    --checkpoint-activations \
    $CPU_OPTIM $ds_args \
    --exit-interval 5000 | tee output.log
