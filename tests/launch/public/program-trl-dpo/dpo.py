# Copyright: see the program that this is written after.

"""
# Full training:
```bash
python dpo.py \
    --dataset_name trl-lib/ultrafeedback_binarized \
    --model_name_or_path Qwen/Qwen2-0.5B-Instruct \
    --learning_rate 5.0e-7 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 8 \
    --gradient_checkpointing
```

# LoRA:
```bash
python dpo.py \
    --model_name_or_path Qwen/Qwen2-0.5B-Instruct \
    --per_device_train_batch_size 2 \
    --use_peft \
    --lora_r 32
```
"""

from trl import DPOConfig, DPOTrainer, ModelConfig, ScriptArguments, TrlParser

parser = TrlParser((ScriptArguments, DPOConfig, ModelConfig))
script_args, training_args, model_args = parser.parse_args_and_config()
trainer = DPOTrainer(model_args.model_name_or_path, args=training_args)
