nproc_per_node=4
NPROC_PER_NODE=$nproc_per_node \
swift rlhf \
    --rlhf_type gkd \
    --model Qwen/Qwen2.5-7B \
    --teacher_model Qwen/Qwen2.5-14B-Instruct \
    --tuner_type full \
    --torch_dtype bfloat16 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps $(expr 32 / $nproc_per_node) \
    --max_length 2048 \
    --max_completion_length 512 \
    --experts_impl grouped_mm \
    --attn_impl flash_attn \
    --deepspeed zero3
