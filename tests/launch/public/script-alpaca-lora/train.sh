WORLD_SIZE=2 CUDA_VISIBLE_DEVICES=0,1 torchrun \
    --nproc_per_node=2 \
    --master_port=1234 \
    finetune.py \
    --base_model='huggyllama/llama-7b' \
    --num_epochs=10 \
    --cutoff_len=512 \
    --group_by_length \
    --lora_r=16 \
    --micro_batch_size=8
