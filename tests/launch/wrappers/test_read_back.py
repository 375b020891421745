"""What wrappers write is read back as the plan that it starts."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from planner.launch.job import Job
from planner.launch.read import read_launch
from planner.launch.targets import target_of
from planner.launch.wrappers import wrapper_of
from planner.request import Request


@cache
def training() -> Job:
    settings = {
        "tensor_parallel": 4, "pipeline_parallel": 2, "micro_batch_size": 2,
        "sequence_parallel": True, "recompute": "selective",
    }  # fmt: skip
    return Job.of(
        Request(
            workload="train", model="llama-2-13b", gpu="h100-sxm", num_gpus=32,
            framework="megatron-lm", global_batch_size=128, total_tokens=1e11, settings=settings,
        )
    )  # fmt: skip


@cache
def serving() -> Job:
    settings = {"tensor_parallel": 4, "concurrency": 48, "max_num_batched_tokens": 4096}
    return Job.of(
        Request(
            workload="serve", model="llama-3-70b", gpu="h100-sxm", num_gpus=4, engine="vllm",
            settings=settings,
        )
    )  # fmt: skip


@cache
def sharded() -> Job:
    """Its configuration is a file beside the command."""
    return Job.of(
        Request(
            workload="train", model="llama-2-7b", gpu="h100-sxm", num_gpus=16,
            framework="deepspeed",
            global_batch_size=64, settings={"micro_batch_size": 1, "zero_stage": 3},
        )
    )  # fmt: skip


@pytest.mark.parametrize("wrapper", ["script", "slurm", "kubernetes"])
@pytest.mark.parametrize("target", ["megatron-lm", "vllm", "deepspeed", "axolotl"])
def test_a_plan_is_read_back(tmp_path: Path, target: str, wrapper: str) -> None:
    job = {"megatron-lm": training, "vllm": serving, "deepspeed": sharded, "axolotl": sharded}[
        target
    ]()
    tool = target_of(target)
    files = wrapper_of(wrapper)(tool, job, tool.drafted(job))
    for file in files:
        (tmp_path / file.name).write_text(file.text, encoding="utf-8")
    first = next(each for each in files if each.start and "benchmark" not in each.name)
    found = read_launch(tmp_path / first.name)
    assert found.target is tool
    told = {name: found.values.get(name) for name in job.pinned.parameters}
    asked = {name: value for name, value in job.pinned.parameters.items() if told[name] is not None}
    assert {name: str(told[name]).lower() for name in asked} == {
        name: str(value).lower() for name, value in asked.items()
    }
    assert {"num_gpus", "tensor_parallel"} <= set(asked)
    assert job is not sharded() or asked["zero_stage"] == 3
