"""Serving at shares of the peaks that users give."""

from __future__ import annotations

from typing import Any

import pytest

import planner
from planner.optimize.collector import first_row

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
