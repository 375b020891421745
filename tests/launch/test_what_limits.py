"""What a refused server lacks, and the change that makes it start."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Command

GPT_OSS = "# vLLM 0.11.0\nvllm serve openai/gpt-oss-120b --gpu-memory-utilization 0.95"
QWEN_VL = "lmdeploy serve api_server Qwen/Qwen2.5-VL-7B-Instruct --cache-max-entry-count 0.99"
KIMI = "vllm serve moonshotai/Kimi-K2.5 --tensor-parallel-size 8"
LONG = "# vLLM 0.6.4\nvllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 29000"
IMAGES = ("--image-size", "1920x1080", "--images-per-sample", "3")


def answer(planner: Command, folder: Path, text: str, *options: str) -> str:
    path = folder / "serve.sh"
    path.write_text(text + "\n")
    return " ".join(planner("estimate", "--from", path, *options).out.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "gpu"), [(f"{GPT_OSS} --max-num-batched-tokens 1024", "h100"), (LONG, "rtx3090")]
)
def test_a_server_with_the_offered_change_starts(
    planner: Command, tmp_path: Path, text: str, gpu: str
) -> None:
    """github.com/vllm-project/vllm/issues/27508 and 10517: too long for the cache."""
    refused = answer(planner, tmp_path, text, "--gpu", gpu, "--write")
    assert refused.startswith("Does not start")
    assert "cannot express" not in refused
    # More tokens in a step need more memory, and 0.6 refuses fewer than its longest request has.
    assert "--max-num-batched-tokens" not in refused.partition("Best change")[2]
    written = (tmp_path / "serve.sh").read_text()
    assert answer(planner, tmp_path, written, "--gpu", gpu).startswith("Fits")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "options", "limit"),
    [
        (QWEN_VL, ("--gpu", "h100", *IMAGES), "activations of a step need"),
        (KIMI, ("--gpu", "h100"), "weights and reserved memory need"),
        ("vllm serve Qwen/Qwen3-32B --max-model-len 4096", ("--gpu", "l40s"), "weights need"),
    ],
)
def test_the_part_that_leaves_no_room_is_named(
    planner: Command, tmp_path: Path, text: str, options: tuple[str, ...], limit: str
) -> None:
    """github.com/InternLM/lmdeploy/issues/3280: the cache takes what three images need."""
    assert answer(planner, tmp_path, text, *options).startswith(f"Does not fit: {limit}")


@pytest.mark.slow
def test_a_cache_that_takes_too_much_gets_a_smaller_share(planner: Command, tmp_path: Path) -> None:
    refused = answer(planner, tmp_path, QWEN_VL, "--gpu", "h100", *IMAGES)
    assert "Best change: gpu_memory_utilization 0.8:" in refused


@pytest.mark.slow
def test_requests_that_all_run_at_once_do_not_queue(planner: Command, tmp_path: Path) -> None:
    text = "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4"
    load = ("--gpu", "h100", "--request-rate", "50", "--num-requests")
    few, many = (answer(planner, tmp_path, text, *load, number) for number in ("50", "2000"))
    assert "All 50 requests run at once" in few
    assert "the queue grows" not in few
    assert "the queue grows" in many
