"""What a plan assumes of its environment, each with a reason."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from planner.launch.target import LaunchJob, Process
from planner.launch.targets import target_of
from planner.launch.write.write_launch import link_lines, process_environment
from planner.question.request import Request

PROCESS = Process(name="train", arguments=(), num_nodes=1, gpus_per_node=8)


@cache
def job_of(
    framework: str = "megatron-lm", num_gpus: int = 8, offload: str = "none",
    model: str = "llama-2-7b",
) -> LaunchJob:  # fmt: skip
    return LaunchJob.of(
        Request(
            workload="train", model=model, gpu="h100-sxm", num_gpus=num_gpus,
            framework=framework, global_batch_size=64, settings={"offload": offload},
        )
    )  # fmt: skip


def named(job: LaunchJob, process: Process = PROCESS) -> dict[str, str]:
    found = process_environment(target_of("megatron-lm"), job, process)
    assert all(one.reason for one in found)
    return {one.name: one.text for one in found}


@pytest.mark.parametrize(("framework", "is_set"), [("torchtitan", True), ("megatron-lm", False)])
def test_segments_grow_where_the_profile_loses_little_memory(framework: str, is_set: bool) -> None:
    job = job_of(framework)
    assert (job.profile.memory.fragmentation <= 0.02) == is_set
    found = named(job).get("PYTORCH_CUDA_ALLOC_CONF")
    assert found == ("expandable_segments:True" if is_set else None)


def test_the_target_knows_better() -> None:
    own = replace(PROCESS, environment={"PYTORCH_CUDA_ALLOC_CONF": "backend:x", "A": "b"})
    assert named(job_of("torchtitan"), own) == {"PYTORCH_CUDA_ALLOC_CONF": "backend:x", "A": "b"}


def test_an_optimizer_on_the_host_has_its_cores() -> None:
    threads = named(job_of(offload="optimizer"))["OMP_NUM_THREADS"]
    assert threads == "${OMP_NUM_THREADS:-$(($(nproc) / 8))}"
    assert "OMP_NUM_THREADS" not in named(job_of())


def test_links_are_those_of_the_cluster() -> None:
    assert not link_lines(job_of(model="bloom-1b1", num_gpus=1))
    inside, between, how = link_lines(job_of(num_gpus=16))
    cluster = job_of().cluster
    assert inside.startswith(f"{cluster.scale_up.bandwidth / 1e9:g} GB/s")
    assert between.startswith(f"{cluster.scale_out.bandwidth / 1e9:g} GB/s")
    assert "all_reduce_perf" in how
    assert len(link_lines(job_of())) == 1
