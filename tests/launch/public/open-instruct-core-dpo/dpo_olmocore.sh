#!/bin/bash
MODEL_NAME=/weka/checkpoints/instruct-sft-1115
for LR in 1e-6
do
    uv run python mason.py \
        --cluster ai2/jupiter \
        --preemptible \
        --num_nodes 4 \
        --gpus 8 -- torchrun \
        --nnodes=4 \
        --node_rank=\$BEAKER_REPLICA_RANK \
        --master_port=29400 \
        --nproc_per_node=8 \
        open_instruct/dpo.py \
        --model_name_or_path "$MODEL_NAME" \
        --config_name olmo3_7B \
        --max_seq_length 16384 \
        --per_device_train_batch_size 1 \
        --gradient_accumulation_steps 4 \
        --fsdp_shard_degree 16 \
        --fsdp_num_replicas 2 \
        --learning_rate "$LR" \
        --activation_memory_budget 0.1
done
