import os

import fire
import torch
import transformers
from peft import LoraConfig, get_peft_model, prepare_model_for_int8_training
from transformers import LlamaForCausalLM


def train(
    base_model: str = "",
    batch_size: int = 128,
    micro_batch_size: int = 4,
    num_epochs: int = 3,
    learning_rate: float = 3e-4,
    cutoff_len: int = 256,
    lora_r: int = 8,
    lora_target_modules=("q_proj", "v_proj"),
    group_by_length: bool = False,
):
    gradient_accumulation_steps = batch_size // micro_batch_size
    world_size = int(os.environ.get("WORLD_SIZE", 1))
    if world_size != 1:
        gradient_accumulation_steps = gradient_accumulation_steps // world_size
    model = LlamaForCausalLM.from_pretrained(
        base_model,
        load_in_8bit=True,
        torch_dtype=torch.float16,
    )
    model = prepare_model_for_int8_training(model)
    config = LoraConfig(r=lora_r, target_modules=lora_target_modules, bias="none")
    model = get_peft_model(model, config)
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            per_device_train_batch_size=micro_batch_size,
            gradient_accumulation_steps=gradient_accumulation_steps,
            num_train_epochs=num_epochs,
            learning_rate=learning_rate,
            fp16=True,
            optim="adamw_torch",
            group_by_length=group_by_length,
        ),
    )
    trainer.train()


if __name__ == "__main__":
    fire.Fire(train)
