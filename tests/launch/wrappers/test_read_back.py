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


@pytest.mark.parametrize("wrapper", ["script", "slurm"])
@pytest.mark.parametrize("target", ["megatron-lm", "vllm"])
def test_a_plan_is_read_back(tmp_path: Path, target: str, wrapper: str) -> None:
    job = training() if target == "megatron-lm" else serving()
    tool = target_of(target)
    file = next(
        each for each in wrapper_of(wrapper)(tool, job, tool.drafted(job))
        if each.start and "benchmark" not in each.name
    )  # fmt: skip
    path = tmp_path / file.name
    path.write_text(file.text, encoding="utf-8")
    found = read_launch(path)
    assert found.target is tool
    told = {name: found.values.get(name) for name in job.pinned.parameters}
    asked = {name: value for name, value in job.pinned.parameters.items() if told[name] is not None}
    assert {name: str(told[name]).lower() for name in asked} == {
        name: str(value).lower() for name, value in asked.items()
    }
    assert {"num_gpus", "tensor_parallel", "pipeline_parallel"} <= set(asked)
