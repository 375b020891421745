"""What DeepSpeed derives of ds_config.json: {"config": {...}, "world": n}.

It refuses unknown keys of zero_optimization itself; "unread" has those of the top level that it
passes over.
"""

from __future__ import annotations

from typing import Any

from deepspeed import comm
from deepspeed.runtime.config import DeepSpeedConfig


class Read(dict[str, Any]):
    """A mapping that remembers which of its keys were asked for."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__({k: Read(v) if isinstance(v, dict) else v for k, v in given.items()})
        self.asked: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)


def answer(case: dict[str, Any]) -> dict[str, Any]:
    given = Read(case["config"])
    comm.get_world_size = lambda *_: case["world"]
    comm.get_rank = lambda *_: 0
    comm.is_initialized = lambda: True
    config = DeepSpeedConfig(given)
    zero = config.zero_config
    per_gpu = config.train_micro_batch_size_per_gpu
    accumulation = config.gradient_accumulation_steps
    return {
        "data_parallel": config.train_batch_size // (per_gpu * accumulation),
        "train_batch_size": config.train_batch_size,
        "micro_batch_size": per_gpu,
        "gradient_accumulation": accumulation,
        "zero_stage": int(zero.stage),
        "offload_optimizer": zero.offload_optimizer and str(zero.offload_optimizer.device),
        "offload_param": zero.offload_param and str(zero.offload_param.device),
        "hpz_partition_size": zero.zero_hpz_partition_size,
        "bf16": config.bfloat16_config.enabled,
        "fp16": config.float16_config.enabled,
        "tensor_parallel": config.tensor_parallel_config.autotp_size,
        "unread": sorted(set(given) - given.asked),
    }
