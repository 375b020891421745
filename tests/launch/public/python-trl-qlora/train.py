import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer
model_id = "mistralai/Mistral-7B-v0.1"
bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(model_id, quantization_config=bnb, device_map="auto", attn_implementation="flash_attention_2")
peft_config = LoraConfig(r=64, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
args = SFTConfig(output_dir="o", per_device_train_batch_size=4, gradient_accumulation_steps=2, gradient_checkpointing=True, bf16=True, max_length=2048, optim="paged_adamw_32bit", packing=True)
trainer = SFTTrainer(model=model, args=args, peft_config=peft_config)
