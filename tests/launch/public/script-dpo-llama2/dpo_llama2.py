from dataclasses import dataclass, field

import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, HfArgumentParser
from trl import DPOConfig, DPOTrainer


@dataclass
class ScriptArguments:
    beta: float = field(default=0.1, metadata={"help": "the beta parameter"})
    model_name_or_path: str = field(default="meta-llama/Llama-2-7b-hf")
    optimizer_type: str = field(default="paged_adamw_32bit")
    per_device_train_batch_size: int = field(default=4)
    gradient_accumulation_steps: int = field(default=4)
    gradient_checkpointing: bool = field(default=True)
    lora_alpha: float = field(default=16)
    lora_r: int = field(default=8)
    max_length: int = field(default=1024)
    max_steps: int = field(default=1000)
    output_dir: str = field(default="./results")
    load_in_4bit: bool = field(default=True)


if __name__ == "__main__":
    parser = HfArgumentParser(ScriptArguments)
    script_args = parser.parse_args_into_dataclasses()[0]
    model = AutoModelForCausalLM.from_pretrained(
        script_args.model_name_or_path,
        torch_dtype=torch.bfloat16,
        load_in_4bit=script_args.load_in_4bit,
    )
    training_args = DPOConfig(
        per_device_train_batch_size=script_args.per_device_train_batch_size,
        max_steps=script_args.max_steps,
        gradient_accumulation_steps=script_args.gradient_accumulation_steps,
        gradient_checkpointing=script_args.gradient_checkpointing,
        output_dir=script_args.output_dir,
        optim=script_args.optimizer_type,
        bf16=True,
    )
    peft_config = LoraConfig(r=script_args.lora_r, target_modules=["q_proj", "v_proj", "k_proj"])
    trainer = DPOTrainer(
        model,
        ref_model=None,
        args=training_args,
        beta=script_args.beta,
        peft_config=peft_config,
        max_length=script_args.max_length,
    )
    trainer.train()
