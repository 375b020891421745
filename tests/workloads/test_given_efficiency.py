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


# The same README, table "decode latency" at the peaks: 4-bit weights, activations of 4, 8 and 16
# bits. LLaMA 65B in 4 bit is on one GPU there; in 16 bit it takes two (33.85 ms).
DECODE_MS = {
    "llama-7b": {"w4a4": 1.78, "w4a8": 1.85, "w4a16": 1.99, "w8a8": 3.43},
    "llama-13b": {"w4a4": 3.36, "w4a8": 3.47, "w4a16": 3.69, "w8a8": 6.55},
    "llama-33b": {"w4a4": 8.25, "w4a8": 8.46, "w4a16": 8.89, "w8a8": 16.28},
    "llama-65b": {"w4a4": 16.41, "w4a8": 16.76, "w4a16": 17.47, "w8a8": 32.56},
}


def _decode(model: str, quantization: str, **more: Any) -> Any:
    shares = {"flops_efficiency": None, "memory_efficiency": None, "ideal": True}
    settings = {"concurrency": 1, "quantization": quantization}
    return row(model, **{**shares, "settings": settings, **more})


@pytest.mark.parametrize("model", DECODE_MS)
def test_decode_reads_a_cache_of_the_bits_of_the_activations(model: str) -> None:
    found = {name: _decode(model, name) for name in DECODE_MS[model]}
    for name, published in DECODE_MS[model].items():
        assert found[name]["decode_latency_s"] * 1e3 == pytest.approx(published, rel=0.05), name
    times = [found[name]["decode_latency_s"] for name in ("w4a4", "w4a8", "w4a16")]
    assert times == sorted(set(times))


@pytest.mark.parametrize(
    ("quantization", "more", "cache"),
    [
        ("w4a8", {}, "int8"),
        ("w4a8", {"engine": "vllm"}, "bf16"),
        ("w4a8", {"ideal": False}, "bf16"),
        ("w4a8", {"ideal": False, "flops_efficiency": 0.7}, "int8"),
        ("fp8", {"gpu": "h100"}, "bf16"),
    ],
)
def test_a_roofline_alone_narrows_the_cache(
    quantization: str, more: dict[str, Any], cache: str
) -> None:
    """Engines keep 16 bit where no other format is specified."""
    assert _decode("llama-7b", quantization, **more)["kv_cache"] == cache


def test_a_specified_cache_stays() -> None:
    settings = {"concurrency": 1, "quantization": "w4a4", "kv_cache": "bf16"}
    assert _decode("llama-7b", "w4a4", settings=settings)["kv_cache"] == "bf16"


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
