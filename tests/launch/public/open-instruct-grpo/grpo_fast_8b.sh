#!/bin/bash
export exp_name=tulu3_8b_grpo
python mason.py \
    --cluster ai2/jupiter \
    --image ${1:-nathanl/open_instruct_auto} --pure_docker_mode \
    --priority urgent \
    --num_nodes 2 \
    --gpus 8 -- source configs/beaker_configs/ray_node_setup.sh \&\& python open_instruct/grpo_fast.py \
    --exp_name ${exp_name} \
    --beta 0.01 \
    --num_samples_per_prompt_rollout 16 \
    --num_unique_prompts_rollout 48 \
    --num_mini_batches 2 \
    --per_device_train_batch_size 1 \
    --dataset_mixer_list allenai/RLVR-GSM-MATH-IF-Mixed-Constraints 1.0 \
    --max_prompt_token_length 2048 \
    --response_length 2048 \
    --pack_length 4096 \
    --model_name_or_path meta-llama/Llama-3.1-8B-Instruct \
    --temperature 1.0 \
    --total_episodes 10000000 \
    --deepspeed_stage 2 \
    --num_learners_per_node 6 2 \
    --vllm_num_engines 8 \
    --vllm_tensor_parallel_size 1 \
    --lr_scheduler_type linear \
    --gradient_checkpointing \
    --with_tracking
