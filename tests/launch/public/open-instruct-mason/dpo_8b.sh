#!/bin/bash
BEAKER_IMAGE=${1:-nathanl/open_instruct_auto}
uv run python mason.py \
    --cluster ai2/jupiter ai2/ceres \
    --workspace ai2/tulu-3-dev \
    --priority normal \
    --image $BEAKER_IMAGE --pure_docker_mode \
    --preemptible \
    --num_nodes 4 \
    --budget ai2/oe-other \
    --gpus 8 -- source configs/beaker_configs/setup.sh \&\& accelerate launch \
    --mixed_precision bf16 \
    --num_processes 8 \
    --use_deepspeed \
    --deepspeed_config_file configs/ds_configs/stage3_no_offloading_accelerate.conf \
    --deepspeed_multinode_launcher standard \
    open_instruct/dpo_tune_cache.py \
    --exp_name tulu3_8b_dpo \
    --model_name_or_path meta-llama/Llama-3.1-8B-Instruct \
    --use_slow_tokenizer \
    --mixer_list allenai/llama-3.1-tulu-3-8b-preference-mixture 1.0 \
    --max_seq_length 2048 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 16 \
    --learning_rate 5e-07 \
    --lr_scheduler_type linear \
    --num_epochs 1 \
    --loss_type dpo_norm \
    --gradient_checkpointing \
    --with_tracking
