"""Settings and meshes for the properties of the estimator."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from planner import Request
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.configurations.enumerate import OpenMesh, training_mesh
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.workloads.make_plan import make_plan

MODELS = ("llama-65b", "gpt-3-175b", "mixtral-8x7b", "deepseek-v3", "gemma-2-9b")
GPUS = ("a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb", "rtx4090-24gb")
FRAMEWORKS = ("megatron-lm", "nemo", "torchtitan", "megatron-deepspeed", "deepspeed", "fsdp")

ONE: dict[str, Any] = {
    **TrainingConfigurations.default_codes(),
    "num_gpus": 64,
    "global_batch_size": 512,
    "zero_stage": 0,
}


@cache
def setting(
    model: str, framework: str = "megatron-lm", gpu: str = "a100-sxm-80gb"
) -> TrainingInputs:
    return make_plan(Request(model=model, num_gpus=8, framework=framework, gpu=gpu)).problem.inputs


def table(**values: Any) -> TrainingConfigurations:
    return TrainingConfigurations.of(**{**ONE, **values})


def mesh(**values: Any) -> OpenMesh[TrainingConfigurations]:
    """A mesh of some hundred rows: tensor, pipeline and expert parallelism, ZeRO, recompute."""
    default: dict[str, Any] = {
        "tensor_parallel": [1, 2, 8],
        "pipeline_parallel": [1, 2, 4, 16],
        "expert_parallel": [1, 8],
        "virtual_pipeline": [1, 2],
        "zero_stage": [0, 1, 3],
        "data_parallel_replicas": [1, 2],
        "recompute": [0, 1, 2],
        "sequence_parallel": [False, True],
    }
    single = {name: [value] for name, value in ONE.items()}
    return training_mesh({**single, **default, **values})


def with_gpu(s: TrainingInputs, **changes: Any) -> TrainingInputs:
    return replace(s, machine=replace(s.machine, gpu=replace(s.machine.gpu, **changes)))


def with_links(s: TrainingInputs, up: float = 1.0, out: float = 1.0) -> TrainingInputs:
    """Scale-up and scale-out links some times as wide."""
    cluster = s.machine.cluster
    wider = replace(
        cluster,
        scale_up=replace(cluster.scale_up, bandwidth=up * cluster.scale_up.bandwidth),
        scale_out=replace(cluster.scale_out, bandwidth=out * cluster.scale_out.bandwidth),
    )
    return replace(s, machine=replace(s.machine, cluster=wider))
