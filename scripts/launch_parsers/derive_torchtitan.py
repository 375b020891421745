"""What torchtitan derives of its arguments: {"argv": [...], "world": n, "file": a config module}.

`file` is the path of a Python module whose config function --config names, where the plan needs
one: its folder is put on the path and `--module` names it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import fake_gpu
import stubs
import torch

stubs.install("triton")
# ruff: noqa: E402
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from torch.testing._internal.distributed.fake_pg import FakeStore
from torchtitan.config import ConfigManager
from torchtitan.distributed import ParallelDims
from torchtitan.distributed.pipeline_parallel import (
    _generate_llm_fqn_per_model_part,
    _get_pipeline_metadata,
)


def stages(dims: Any, parallelism: Any, model: Any) -> list[list[int]]:
    """Layers of every rank's stages; stages lie on the ranks in turn, as the schedules loop."""
    count, num_layers, first, last = _get_pipeline_metadata(dims, parallelism, model)
    parts = _generate_llm_fqn_per_model_part(count, num_layers, first, last)
    held = [sum(name.startswith("layers.") for name in part) for part in parts]
    return [held[rank :: dims.pp] for rank in range(dims.pp)]


def batches(config: Any, dims: Any) -> dict[str, int]:
    """The trainer's own check of its batch sizes, and what follows from them."""
    degree = dims.dp_replicate * dims.dp_shard
    local = config.training.local_batch_size
    total = config.training.global_batch_size
    total = local * degree if total < 0 else total
    if total % (local * degree):
        raise ValueError(f"global batch size {total} is not a multiple of {local} * {degree}")
    micro = config.parallelism.pipeline_parallel_microbatch_size if dims.pp > 1 else local
    return {
        "global_batch_size": total,
        "micro_batch_size": micro,
        "gradient_accumulation": total // (local * degree),
        "num_microbatches": total // (degree * micro),
    }


def answer(case: dict[str, Any]) -> dict[str, Any]:
    fake_gpu.install(case)
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(case["world"]))
    if case.get("file"):
        sys.path.insert(0, str(Path(case["file"]).parent))
    config = ConfigManager().parse_args(case["argv"])
    torch.distributed.init_process_group(
        backend="fake", world_size=case["world"], rank=0, store=FakeStore()
    )
    dims = ParallelDims.from_config(config.parallelism, case["world"])
    schedule = get_schedule_class(config.parallelism.pipeline_parallel_schedule)
    model = config.model_spec.model
    found = {
        "tensor_parallel": dims.tp,
        "context_parallel": dims.cp,
        "pipeline_parallel": dims.pp,
        "expert_parallel": dims.ep,
        "dp_shard": dims.dp_shard,
        "dp_replicate": dims.dp_replicate,
        "data_parallel": dims.dp_shard * dims.dp_replicate,
        "sequence_length": config.training.seq_len,
        "interleaved": dims.pp > 1 and not issubclass(schedule, PipelineScheduleSingle),
        "activation_checkpoint": type(config.activation_checkpoint).__qualname__,
        "layers": stages(dims, config.parallelism, model) if dims.pp > 1 else [[len(model.layers)]],
        **batches(config, dims),
    }
    if case.get("parameters"):
        model.update_from_config(config=config)
        with torch.device("meta"):
            built = model.build()
        found["parameters"] = sum(x.numel() for x in built.parameters())
    return found
