"""What TrainingArguments become of {"arguments": {...}} or {"argv": [...]}, as Trainer takes."""

from __future__ import annotations

import tempfile
from typing import Any

from transformers import HfArgumentParser, TrainingArguments

NAMES = ("per_device_train_batch_size", "gradient_accumulation_steps", "gradient_checkpointing")
NAMES += ("bf16", "fp16", "deepspeed", "world_size", "train_batch_size")


def answer(case: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        if "argv" in case:
            words = ["--output_dir", folder, "--use_cpu", "true", *case["argv"]]
            (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(words)
        else:
            given = {"output_dir": folder, "use_cpu": True, **case["arguments"]}
            args = TrainingArguments(**given)
    found = {name: getattr(args, name) for name in NAMES}
    found["optim"] = str(args.optim.value)
    return found
