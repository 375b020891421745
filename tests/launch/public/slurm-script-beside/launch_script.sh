#!/bin/bash
SEQ=${1:-4096}
cd /opt/Megatron-Bridge
worker_command=$(cat <<- EOM
  numactl --cpunodebind=\$((LOCAL_RANK/4)) \
  python scripts/performance/run_script.py \
    --gpu h100 \
    --model_family_name llama \
    --model_recipe_name llama3_70b \
    --num_gpus 32 \
    --gpus_per_node 8 \
    --compute_dtype fp8_cs \
    --global_batch_size 1024 \
    --micro_batch_size ${MICRO_BATCH:-1} \
    --seq_length $SEQ \
    --tensor_model_parallel_size 2 \
    --pipeline_model_parallel_size 1 \
    --virtual_pipeline_model_parallel_size None \
    --max_steps 50
EOM
)
echo "$worker_command" > worker_command.sh
torchrun --nproc-per-node=8 --nnodes=$NNODES --node_rank=$JOB_COMPLETION_INDEX \
  --no-python bash worker_command.sh
