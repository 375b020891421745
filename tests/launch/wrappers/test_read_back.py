"""What wrappers write is read back as the plan that it starts."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

import pytest

from planner.launch.read.read_launch import read_launch
from planner.launch.target import LaunchJob
from planner.launch.targets import target_of
from planner.launch.wrappers import wrapper_of
from planner.question.request import Request


@cache
def training() -> LaunchJob:
    settings = {
        "tensor_parallel": 4, "pipeline_parallel": 2, "micro_batch_size": 2,
        "sequence_parallel": True, "recompute": "selective",
    }  # fmt: skip
    return LaunchJob.of(
        Request(
            workload="train", model="llama-2-13b", gpu="h100-sxm", num_gpus=32,
            framework="megatron-lm", global_batch_size=128, total_tokens=1e11, settings=settings,
        )
    )  # fmt: skip


@cache
def serving(num_gpus: int = 4, mode: str = "aggregated") -> LaunchJob:
    settings = {
        "tensor_parallel": 4, "concurrency": 48, "max_num_batched_tokens": 4096,
        "gpu_memory_utilization": 0.92,
    }  # fmt: skip
    pools = {
        "replicas": 2, "prefill_replicas": 3, "prefill_tensor_parallel": 2,
        "prefill_max_num_batched_tokens": 2048, "prefill_gpu_memory_utilization": 0.95,
    }  # fmt: skip
    return LaunchJob.of(
        Request(
            workload="serve", model="llama-3-70b", gpu="h100-sxm", engine="vllm", mode=mode,
            num_gpus=num_gpus, settings=settings | (pools if mode == "disaggregated" else {}),
        )
    )  # fmt: skip


@cache
def sharded() -> LaunchJob:
    """Its configuration is a file beside the command."""
    return LaunchJob.of(
        Request(
            workload="train", model="llama-2-7b", gpu="h100-sxm", num_gpus=16,
            framework="deepspeed",
            global_batch_size=64, settings={"micro_batch_size": 1, "zero_stage": 3},
        )
    )  # fmt: skip


JOBS = {
    "megatron-lm": ("megatron-lm", training),
    "deepspeed": ("deepspeed", sharded),
    "axolotl": ("axolotl", sharded),
    "vllm": ("vllm", serving),
    "vllm, copies": ("vllm", partial(serving, 16)),
    "vllm, pools": ("vllm", partial(serving, 14, "disaggregated")),
}


@pytest.mark.parametrize("wrapper", ["script", "slurm", "kubernetes"])
@pytest.mark.parametrize("case", JOBS)
def test_a_plan_is_read_back(tmp_path: Path, case: str, wrapper: str) -> None:
    if (case, wrapper) == ("vllm, pools", "script"):
        pytest.skip("each pool has a script of its own")
    target, made = JOBS[case]
    job, tool = made(), target_of(target)
    draft = tool.make_draft(job)
    files = wrapper_of(wrapper)(tool, job, draft)
    for file in files:
        (tmp_path / file.name).write_text(file.text, encoding="utf-8")
    first = files[0].name if wrapper != "script" else f"{draft.processes[0].name}.sh"
    found = read_launch(tmp_path / first)
    assert found.target is tool
    every = job.saved_plan.parameters
    told = {
        name: str(found.values[name])
        for name, word in every.items()
        # Files spell out what a program takes by itself.
        if found.values.get(name) is not None and word != "auto"
    }
    assert {name: word.lower() for name, word in told.items()} == {
        name: str(every[name]).lower() for name in told
    }
    assert {"num_gpus", "tensor_parallel"} <= set(told)
    assert {"zero_stage", "replicas"} & set(every) <= set(told)


def test_copies_in_a_batch_job_have_a_part_of_its_gpus(tmp_path: Path) -> None:
    job = LaunchJob.of(
        Request(
            workload="inference", model="llama-3-8b", gpu="h100-sxm", engine="llama.cpp",
            num_gpus=8, settings={"pipeline_parallel": 2},
        )
    )  # fmt: skip
    tool = target_of("llama-server")
    (batch, *_) = wrapper_of("slurm")(tool, job, tool.make_draft(job))
    (tmp_path / batch.name).write_text(batch.text, encoding="utf-8")
    values = read_launch(tmp_path / batch.name).values
    assert (values["pipeline_parallel"], values["num_gpus"]) == (2, 8)
