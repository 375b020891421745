#!/bin/bash
cd /opt/Megatron-Bridge
worker_command=$(cat <<- EOM
  nice -10 \
  python scripts/performance/run_script.py \
    --model_family_name deepseek \
    --model_recipe_name deepseek_v3 \
    --config_variant v2 \
    --gpu gb300 \
    --num_gpus 512 \
    --gpus_per_node 4 \
    --compute_dtype fp8_mx \
    --seq_length 4096 \
    --global_batch_size 8192 \
    --micro_batch_size 1 \
    --tensor_model_parallel_size 1 \
    --pipeline_model_parallel_size 2 \
    --virtual_pipeline_model_parallel_size 8 \
    --expert_model_parallel_size 32 \
    --expert_tensor_parallel_size 1 \
    --use_megatron_fsdp False \
    --pipeline_model_parallel_layout 'Et*4|(t*4|)*14tmL' \
    --recompute_modules mla_up_proj
EOM
)
echo "$worker_command" > worker_command.sh
torchrun --nproc-per-node=4 --nnodes=128 --node_rank="${JOB_COMPLETION_INDEX}" \
  --no-python bash worker_command.sh
