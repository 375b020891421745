"""Weights and caches of fewer bits on GPUs that lack the arithmetic: stored so, computed in 16."""

from __future__ import annotations

from typing import Any

import pytest

import planner

EXPERTS = "qwen3-30b-a3b"


def row(gpu: str, engine: str, model: str = "llama-3.1-8b", **settings: Any) -> dict[str, Any]:
    """The one configuration of a server for 8 requests."""
    found = planner.estimate(
        workload="serve", model=model, gpu=gpu, num_gpus=1, engine=engine,
        settings={"concurrency": 8, **settings},
    )  # fmt: skip
    return {name: column[0] for name, column in found.table().items()}


@pytest.mark.parametrize(
    ("gpu", "engine", "model", "quantization", "rejected"),
    [
        ("a100", "vllm", "llama-3.1-8b", "fp8", ""),
        ("rtx3090", "vllm", "llama-3.1-8b", "fp8", ""),
        ("a10-24gb", "sglang", "llama-3.1-8b", "fp8_block", ""),
        ("a10-24gb", "tgi", "llama-3.1-8b", "fp8", ""),
        ("h100", "vllm", "llama-3.1-8b", "nvfp4", ""),
        ("h100", "sglang", EXPERTS, "nvfp4", ""),
        ("l40s-48gb", "vllm", EXPERTS, "nvfp4", ""),
        ("a100", "vllm", EXPERTS, "fp8", ""),
        ("a100", "sglang", EXPERTS, "fp8", "quantization"),
        ("a100", "vllm-v0", "llama-3.1-8b", "fp8", ""),
        ("a100", "vllm-v0", EXPERTS, "fp8", "quantization"),
        ("a100", "vllm-v0", "llama-3.1-8b", "fp8_block", "quantization"),
        ("a100", "tensorrt-llm", "llama-3.1-8b", "fp8", "quantization"),
        ("h100", "tensorrt-llm", "llama-3.1-8b", "nvfp4", "quantization"),
        ("v100-sxm-32gb", "vllm", "llama-3.1-8b", "fp8", "quantization"),
        ("mi300x", "vllm", "llama-3.1-8b", "nvfp4", "quantization"),
        ("rtx4090", "llama-cpp", "llama-3.1-8b", "q4_k_m", ""),
        ("h100", "vllm", "llama-3.1-8b", "q6_k", ""),
        ("h100", "tensorrt-llm", "llama-3.1-8b", "q4_k_m", "quantization"),
    ],
)
def test_engines_that_unpack_weights(
    gpu: str, engine: str, model: str, quantization: str, rejected: str
) -> None:
    assert row(gpu, engine, model, quantization=quantization)["rejected_by"] == rejected


@pytest.mark.parametrize(
    ("gpu", "engine", "rejected"),
    [
        ("a100", "vllm", ""), ("rtx3090", "sglang", ""), ("a10-24gb", "vllm-v0", ""),
        ("a100", "tensorrt-llm", ""), ("v100-sxm-32gb", "vllm", "kv_cache"),
        ("h100", "tensorrt-llm", ""),
    ],
)  # fmt: skip
def test_engines_that_unpack_a_cache(gpu: str, engine: str, rejected: str) -> None:
    settings = {"quantization": "w4a16", "kv_cache": "fp8"}
    assert row(gpu, engine, **settings)["rejected_by"] == rejected


@pytest.mark.parametrize(
    ("gpu", "quantization", "kernels", "stored"),
    [
        ("a100", "fp8", "w8a16", 1.0), ("rtx3090", "fp8", "w8a16", 1.0),
        ("h100", "nvfp4", "w4a16", 0.5625 / 0.515625),
    ],
)  # fmt: skip
def test_bytes_of_the_type_at_the_rates_of_16_bits(
    gpu: str, quantization: str, kernels: str, stored: float
) -> None:
    found, like = (row(gpu, "vllm", quantization=word) for word in (quantization, kernels))
    ends = 2 * 128256 * 4096 * 2 / 2**30
    weights = [one["memory_weights_gib"] - ends for one in (found, like)]
    assert weights[0] / weights[1] == pytest.approx(stored, rel=1e-3)
    for name in ("time_per_output_token_s", "time_to_first_token_s"):
        assert found[name] == pytest.approx(like[name], rel=0.01)
        assert stored > 1 or found[name] == like[name]


def test_a_cache_of_8_bits_on_ampere_is_half_as_large_and_no_slower() -> None:
    plain, packed = (row("a100", "vllm", kv_cache=word) for word in ("bf16", "fp8"))
    assert packed["memory_kv_cache_gib"] == plain["memory_kv_cache_gib"] / 2
    # As measured at 8 requests of 1,000 tokens: github.com/vllm-project/vllm/issues/42058.
    faster = plain["time_per_output_token_s"] / packed["time_per_output_token_s"]
    assert 1.0 < faster < 1.1


@pytest.mark.parametrize(
    ("gpu", "engine", "rejected"),
    [
        ("l4", "tensorrt-llm", "quantization"),  # github.com/NVIDIA/TensorRT-LLM/issues/6717
        ("a100", "tensorrt-llm", "quantization"),
        ("h100", "tensorrt-llm", ""),
        ("a100", "vllm", ""),  # by Marlin
    ],
)
def test_experts_in_mxfp4_need_kernels_of_the_generation(
    gpu: str, engine: str, rejected: str
) -> None:
    assert (row(gpu, engine, "gpt-oss-20b")["rejected_by"] or "") == rejected


def test_ranks_without_a_request_wait_for_the_others() -> None:
    """github.com/NVIDIA/TensorRT-LLM/issues/3058: one user of a server with attention_dp."""
    layout = {"attention_data_parallel": 8, "expert_parallel": 8}
    one, eight = (
        planner.estimate(
            workload="serve", model="deepseek-v3", gpu="b200", num_gpus=8, engine="tensorrt-llm",
            settings={**layout, "concurrency": requests},
        )
        for requests in (1, 8)
    )  # fmt: skip
    assert one.rejected_by == eight.rejected_by == ""
    times = [each.table()["time_per_output_token_s"][0] for each in (one, eight)]
    assert 0.7 * times[1] < times[0] < times[1]
