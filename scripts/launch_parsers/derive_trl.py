"""What TRL's SFT script makes of its words: {"argv": [...], "folder": where files lie}."""

from __future__ import annotations

import os
from typing import Any

from trl import ModelConfig, ScriptArguments, SFTConfig, TrlParser, get_peft_config

NAMES = ("per_device_train_batch_size", "gradient_accumulation_steps", "gradient_checkpointing")
NAMES += ("bf16", "fp16", "max_length", "packing", "max_steps", "fsdp_config")
LORA = ("r", "target_modules", "lora_alpha")


def answer(case: dict[str, Any]) -> dict[str, Any]:
    os.chdir(case["folder"])
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
    words = ["--use_cpu", "true", *case["argv"]]
    _, training, model = parser.parse_args_and_config(words)
    found = {name: getattr(training, name) for name in NAMES}
    found["optim"] = str(training.optim.value)
    found["dtype"] = model.dtype
    found["load_in_4bit"] = model.load_in_4bit
    lora = get_peft_config(model)
    found["lora"] = lora and {name: getattr(lora, name) for name in LORA}
    if lora and not isinstance(lora.target_modules, str):
        found["lora"]["target_modules"] = sorted(lora.target_modules)
    return found
