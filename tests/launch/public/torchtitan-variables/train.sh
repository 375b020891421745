#!/bin/bash
export NCCL_DEBUG=WARN
NGPU=16 MODULE=deepseek_v3 CONFIG=deepseek_v3_16b ./run_train.sh \
  --parallelism.data_parallel_shard_degree=16 --parallelism.expert_parallel_degree=8 \
  --training.steps 500
