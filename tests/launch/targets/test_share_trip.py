"""The share of a GPU's memory in the words of each engine, written and read again."""

from __future__ import annotations

from pathlib import Path

import pytest
from serving_trip import planned

from planner.launch.read.read_launch import read_launch
from planner.launch.target import LaunchTarget
from planner.launch.targets import dynamo, sglang, tensorrt_llm, vllm

ENGINES = {"vllm": vllm.TARGET, "sglang": sglang.TARGET, "tensorrt-llm": tensorrt_llm.TARGET}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("target", [None, dynamo.TARGET], ids=["own", "dynamo"])
def test_a_share_is_written_as_the_plan_has_it_and_read_again(
    engine: str, target: LaunchTarget | None, tmp_path: Path
) -> None:
    asked = {"tensor_parallel": 2, "concurrency": 4, "gpu_memory_utilization": 0.437}
    job = planned(model="llama-3.1-8b", engine=engine, num_gpus=2, settings=asked)
    draft = (target or ENGINES[engine]).make_draft(job)
    if target is None:
        words = [str(word) for a in draft.processes[0].arguments for word in a.words]
        path = tmp_path / "run.sh"
        path.write_text(" ".join(word for word in words if word.isprintable()) + "\n")
    else:
        path = tmp_path / draft.files[0].name
        path.write_text(draft.files[0].text)
    assert float(read_launch(path).values["gpu_memory_utilization"]) == 0.437


@pytest.mark.parametrize(
    ("command", "share"),
    [
        ("vllm serve Qwen/Qwen2.5-7B --gpu-memory-utilization 0.4", 0.4),
        ("python -m sglang.launch_server --model-path Qwen/Qwen2.5-7B "
         "--mem-fraction-static=0.8", 0.8),
        ("trtllm-serve Qwen/Qwen2.5-7B --kv_cache_free_gpu_memory_fraction 0.7", 0.7),
        ("python -m dynamo.trtllm --model-path Qwen/Qwen2.5-7B "
         "--free-gpu-memory-fraction 0.6", 0.6),
    ],
)  # fmt: skip
def test_a_share_of_a_command_is_a_parameter(command: str, share: float, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(command + "\n")
    assert float(read_launch(path).values["gpu_memory_utilization"]) == share


def test_a_command_that_says_none_has_the_default_of_its_version(tmp_path: Path) -> None:
    """0.92 of vllm/config/cache.py of 0.25 and later, which a file without a version is of."""
    path = tmp_path / "run.sh"
    path.write_text("vllm serve Qwen/Qwen2.5-7B\n")
    assert read_launch(path).values["gpu_memory_utilization"] == "0.92"
    path.write_text("# vllm 0.11.0\nvllm serve Qwen/Qwen2.5-7B\n")
    assert not read_launch(path).values.get("gpu_memory_utilization")
