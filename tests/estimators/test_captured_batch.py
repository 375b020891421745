"""Decode steps beyond the CUDA graphs of a server that nobody tuned, on published bursts."""

from __future__ import annotations

from typing import Any

import pytest

import planner

# GPUStack performance lab, DeepSeek-R1 on H200: trtllm-serve 1.0.0 --tp_size 8 --ep_size 8,
# 1,000 requests of ShareGPT at once.
BURST: dict[str, Any] = {
    "model": "deepseek-r1", "gpu": "h200-sxm-141gb", "num_gpus": 8, "engine_version": "1.0.0",
    "input_tokens": 219, "output_tokens": 201, "num_requests": 1000,
    "input_variation": 1.1, "output_variation": 0.95,
    "settings": {"concurrency": 1000, "tensor_parallel": 8, "expert_parallel": 8},
}  # fmt: skip


def served(**asked: Any) -> Any:
    usual = {**BURST, "captured_batch": 32}  # as it starts without options
    return planner.estimate(workload="serve", engine="tensorrt-llm", **{**usual, **asked})


def token_time(**asked: Any) -> float:
    return float(served(**asked).candidates.time_per_output_token[0])


def test_an_untuned_server_takes_as_long_for_a_token_as_measured() -> None:
    """Its mean time between tokens was 155 ms, the median 112 ms."""
    assert 0.112 < token_time() < 1.2 * 0.155


def test_plans_capture_all_batches() -> None:
    assert token_time(captured_batch=1000) < 0.7 * token_time()
    assert token_time(captured_batch=None) == token_time(captured_batch=1000)


@pytest.mark.parametrize("number", [16, 31])
def test_batches_within_the_graphs_are_as_fast_with_more_graphs(number: int) -> None:
    few = {"num_requests": None, "settings": {**BURST["settings"], "concurrency": number}}
    assert token_time(**few) == pytest.approx(token_time(**few, captured_batch=1000))


def test_slower_steps_do_not_answer_a_burst_earlier() -> None:
    """At its end a burst has steps within the graphs, but not only these."""
    rates = [
        float(served(captured_batch=captured).candidates.throughput[0])
        for captured in (16, 64, 256, 1000)
    ]
    assert rates == sorted(rates)
