"""Keys of ds_config.json: what DeepSpeedConfig asks its mapping for, and its sections' fields."""

from __future__ import annotations

from typing import Any

from deepspeed import comm
from deepspeed.runtime.config import DeepSpeedConfig
from derive_deepspeed import Read
from rows import Row, distinct, of_class

SECTIONS = {
    "zero_optimization": "zero_config",
    "bf16": "bfloat16_config",
    "fp16": "float16_config",
    "compile": "compile_config",
    "tensor_parallel": "tensor_parallel_config",
}


def answer(case: dict[str, Any]) -> list[Row]:
    comm.get_world_size = lambda *_: 1
    comm.get_rank = lambda *_: 0
    comm.is_initialized = lambda: True
    given = Read({"train_batch_size": 1})
    config = DeepSpeedConfig(given)
    found: list[Row] = []
    for key in sorted(given.asked | set(SECTIONS)):
        found.append({"name": key})
        if key in SECTIONS:
            found += of_class(type(getattr(config, SECTIONS[key])), f"{key}.")
    return distinct(found)
