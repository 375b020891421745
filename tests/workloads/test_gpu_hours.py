"""GPU-hours of the computation, and those of the campaign around it."""

from __future__ import annotations

from typing import Any

import pytest

import planner
from planner.optimize.source import first_row

# cli99/llm-analysis at d841e40, examples/llama/README.md and run_train.sh: 2,048 A100-SXM-80GB,
# tp8 pp8 dp32 with sequence parallelism, flops_efficiency 0.5. 33B has 60 layers, which 8 stages
# do not divide (llm-analysis rounds down): 4 stages here. FLOPs alone make the hours.
PUBLISHED = [
    ("llama-7b", 8, 1.0e12, 77_832),
    ("llama-13b", 8, 1.0e12, 148_047),
    ("llama-33b", 4, 1.4e12, 510_213),
    ("llama-65b", 8, 1.4e12, 1_015_701),
]


def row(model: str = "llama-65b", stages: int = 8, tokens: float = 1.4e12, **more: Any) -> Any:
    question: dict[str, Any] = {
        "gpu": "a100-sxm-80gb",
        "num_gpus": 2048,
        "framework": "megatron-lm",
        "flops_efficiency": 0.5,
        "memory_efficiency": 0.9,
        "price": 2.0,
    }
    layout = {
        "tensor_parallel": 8,
        "pipeline_parallel": stages,
        "sequence_parallel": True,
        "recompute": "selective",
        "micro_batch_size": 1,
    }
    question |= {"settings": layout, "total_tokens": tokens, **more}
    return first_row(planner.estimate(model=model, **question).table())


@pytest.mark.parametrize(("model", "stages", "tokens", "published"), PUBLISHED)
def test_gpu_hours_at_an_efficiency_are_those_of_llm_analysis(
    model: str, stages: int, tokens: float, published: float
) -> None:
    assert row(model, stages, tokens)["gpu_hours"] == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize("efficiency", [None, 0.5])
def test_gpu_hours_are_gpus_times_the_time_to_train_whatever_the_campaign(
    efficiency: float | None,
) -> None:
    plain = row(flops_efficiency=efficiency, campaign_factor=1)
    longer = row(flops_efficiency=efficiency, campaign_factor=1.5)
    assert plain["gpu_hours"] == pytest.approx(2048 * 24 * plain["time_to_train_days"])
    assert longer["gpu_hours"] == pytest.approx(plain["gpu_hours"])
    assert longer["campaign_gpu_hours"] == pytest.approx(1.5 * plain["campaign_gpu_hours"])


def test_the_cost_counts_the_hours_of_the_campaign() -> None:
    found = row()
    assert found["campaign_gpu_hours"] > 1.1 * found["gpu_hours"]
    assert found["cost_usd"] == pytest.approx(2.0 * found["campaign_gpu_hours"])


def test_reinforcement_learning_counts_alike() -> None:
    found = first_row(planner.estimate(
        workload="rl", model="qwen3-8b", gpu="h100", num_gpus=16, framework="verl",
        prompts_per_step=64, samples_per_prompt=16, output_tokens=1000, price=2.0,
    ).table())  # fmt: skip
    assert found["gpu_hours"] == pytest.approx(16 * 24 * found["time_to_train_days"])
    assert found["campaign_gpu_hours"] == pytest.approx(16 * 24 * found["calendar_time_days"])
    assert found["cost_usd"] == pytest.approx(2.0 * found["campaign_gpu_hours"])
