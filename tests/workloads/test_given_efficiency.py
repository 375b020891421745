"""Serving at shares of the peaks that users give."""

from __future__ import annotations

from typing import Any

import pytest

import planner
from planner.optimize.source import first_row

# cli99/llm-analysis, examples/llama/README.md: fe=0.7, hbme=0.9, A100-SXM-80GB, 512 tokens in,
# 32 out, batch 1, w16a16; milliseconds of the prompt and of a token.
PUBLISHED = [
    ("llama-7b", 1, 31.89, 7.48),
    ("llama-13b", 1, 61.38, 14.38),
    ("llama-33b", 1, 153.6, 35.95),
    ("llama-65b", 2, 159.47, 37.47),
]
SHARES = {"flops_efficiency": 0.7, "memory_efficiency": 0.9}


def row(model: str = "llama-7b", num_gpus: int = 1, **asked: Any) -> Any:
    told: dict[str, Any] = {
        "workload": "inference",
        "gpu": "a100-sxm-80gb",
        "input_tokens": 512,
        "output_tokens": 32,
        "settings": {"concurrency": 1, "tensor_parallel": num_gpus},
        **SHARES,
        **asked,
    }
    return first_row(planner.estimate(model=model, num_gpus=num_gpus, **told).table())


@pytest.mark.parametrize(("model", "num_gpus", "prefill_ms", "decode_ms"), PUBLISHED)
def test_a_static_batch_takes_what_llm_analysis_says(
    model: str, num_gpus: int, prefill_ms: float, decode_ms: float
) -> None:
    found = row(model, num_gpus)
    assert found["prefill_latency_s"] * 1e3 == pytest.approx(prefill_ms, rel=0.05)
    assert found["decode_latency_s"] * 1e3 == pytest.approx(decode_ms, rel=0.05)


@pytest.mark.parametrize(("model", "num_gpus", "prefill_ms", "decode_ms"), PUBLISHED)
def test_one_request_served_alone_takes_the_same(
    model: str, num_gpus: int, prefill_ms: float, decode_ms: float
) -> None:
    found = row(model, num_gpus, workload="serve")
    assert found["time_to_first_token_s"] * 1e3 == pytest.approx(prefill_ms, rel=0.05)
    assert found["time_per_output_token_s"] * 1e3 == pytest.approx(decode_ms, rel=0.05)


def test_all_of_the_peaks_is_the_ideal() -> None:
    whole = row(flops_efficiency=1.0, memory_efficiency=1.0)
    ideal = row(flops_efficiency=None, memory_efficiency=None, ideal=True)
    for name in ("prefill_latency_s", "decode_latency_s"):
        assert whole[name] == pytest.approx(ideal[name])


def test_a_rate_is_a_share_of_the_sixteen_bit_peak() -> None:
    """312 TFLOP/s in bf16."""
    rate = row(flops_efficiency="156 TFLOP/s")
    share = row(flops_efficiency=0.5)
    assert rate["prefill_latency_s"] == pytest.approx(share["prefill_latency_s"])


# cli99/llm-analysis at d841e40, training: three forward passes, and what is recomputed; forward
# FLOPs over the peak times its efficiency. LLaMA-7B: 6.607 billion numbers of matrices met.
@pytest.mark.parametrize(("recompute", "passes"), [("none", 0), ("full", 1)])
def test_a_flat_step_of_training_is_told_by_part(recompute: str, passes: int) -> None:
    found = first_row(planner.estimate(
        workload="train", model="llama-7b", gpu="a100-sxm-80gb", num_gpus=8, framework="fsdp",
        sequence_length=2048, global_batch_size=8, settings={"recompute": recompute},
        flops_efficiency=0.5,
    ).table())  # fmt: skip
    layers = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    forward = 2 * (layers + 32000 * 4096) + 32 * 2 * 2 * 2048 * 4096
    seconds = 2048 * forward / (0.5 * 312e12)
    assert found["time_forward_s"] == pytest.approx(seconds, rel=1e-3)
    assert found["time_backward_s"] == pytest.approx(2 * seconds, rel=1e-3)
    logits = 2048 * 2 * 32000 * 4096 / (0.5 * 312e12)
    again = passes * (seconds - logits)
    assert found["time_recompute_s"] == pytest.approx(again, rel=1e-3)
    parts = ("forward", "backward", "recompute", "reference")
    assert sum(found[f"time_{part}_s"] for part in parts) == pytest.approx(found["step_time_s"])
