"""Settings and configurations of published runs, for the tests of the estimators."""

from __future__ import annotations

from functools import cache
from typing import Any

from planner import Request
from planner.configurations.training import TrainingConfigurations
from planner.enums import ComputePrecision, Offload, Recompute
from planner.estimators.share import Setting
from planner.plan import make_plan

ONE = {
    "tensor_parallel": 1,
    "context_parallel": 1,
    "pipeline_parallel": 1,
    "virtual_pipeline": 1,
    "expert_parallel": 1,
    "micro_batch_size": 1,
    "zero_stage": 0,
    "data_parallel_replicas": 1,
    "recompute": Recompute.NONE,
    "offload": Offload.NONE,
    "precision": ComputePrecision.BF16,
    "sequence_parallel": False,
    "flash_attention": True,
    "fp8_attention": False,
    "recompute_num_layers": 0,
}


@cache
def setting(model: str, framework: str = "megatron-lm", **request: Any) -> Setting:
    return make_plan(
        Request(model=model, num_gpus=8, framework=framework, **request)
    ).problem.setting


def configuration(**values: Any) -> TrainingConfigurations:
    """One configuration, or a table where values are lists; the rest is trivial."""
    return TrainingConfigurations.of(**{**ONE, **values})
