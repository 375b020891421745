ACTOR_ZERO_STAGE=$1
if [ "$ACTOR_ZERO_STAGE" == "" ]; then
    ACTOR_ZERO_STAGE=3
fi
deepspeed --num_gpus 8 main.py \
   --data_path some/answers \
   --data_split 2,4,4 \
   --actor_model_name_or_path meta-llama/Llama-2-7b-hf \
   --critic_model_name_or_path ./critic \
   --per_device_generation_batch_size 1 \
   --per_device_training_batch_size 1 \
   --max_answer_seq_len 256 \
   --max_prompt_seq_len 256 \
   --gradient_accumulation_steps 1 \
   --actor_gradient_checkpointing \
   --critic_gradient_checkpointing \
   --offload \
   --deepspeed \
   --actor_zero_stage $ACTOR_ZERO_STAGE \
   --critic_zero_stage 3 \
   --actor_lora_dim 64 \
   --critic_lora_dim 64 \
   --actor_lora_module_name "layers."
