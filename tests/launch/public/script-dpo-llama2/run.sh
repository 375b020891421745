accelerate launch --num_machines 1 --num_processes 8 examples/stack_llama_2/scripts/dpo_llama2.py \
    --output_dir dpo --lora_r 16
