"""What tokens of each kind cost adds up to what all GPUs cost, whatever is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.estimators.inference.continuous_batching import prefix_share, prompt_batch
from planner.estimators.inference.engine_step import step_time

KINDS = ("input", "cached_input", "output")
ANY: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100", "price": 3.0}
SLOW = settings(max_examples=examples(15, 3))
LENGTH, SHARE = st.integers(1, 6000), st.sampled_from([0.0, 0.3, 0.9])


def paid_per_second(row: Any, lengths: dict[str, Any], rate: float) -> float:
    """USD per second of all tokens at what a million of their kind cost."""
    cached = min(
        lengths["input_tokens"] * lengths["prefix_cache_hit_rate"], lengths["input_tokens"] - 1
    )
    tokens = lengths["input_tokens"] - cached, cached, lengths["output_tokens"]
    costs = [row.get(f"cost_per_million_{kind}_tokens_usd", np.nan) for kind in KINDS]
    assert np.isnan(costs[1]) == (cached == 0)
    return rate / 1e6 * sum(n * cost for n, cost in zip(tokens, costs, strict=True) if n)


@SLOW
@given(
    input_tokens=LENGTH,
    output_tokens=LENGTH,
    share=SHARE,
    tensor_parallel=st.sampled_from([1, 2]),
    concurrency=st.sampled_from([1, 16, 100]),
    engine=st.sampled_from(["vllm", "sglang", "tensorrt-llm"]),
)
def test_tokens_pay_a_replica_that_does_all(
    input_tokens: int, output_tokens: int, share: float, tensor_parallel: int,
    concurrency: int, engine: str,
) -> None:  # fmt: skip
    lengths = {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "prefix_cache_hit_rate": share,
    }
    found = planner.estimate(
        workload="serve",
        **ANY,
        **lengths,
        num_gpus=4,
        engine=engine,
        settings={"tensor_parallel": tensor_parallel, "concurrency": concurrency},
    )
    row = found.to_frame().iloc[0]
    assert row["cost_per_hour_usd"] == pytest.approx(4 * 3.0)
    assert 3600 * paid_per_second(row, lengths, row["requests_per_s"]) == pytest.approx(12.0)
    computing = row["cost_per_million_output_tokens_usd"] * output_tokens * row["requests_per_s"]
    assert 3600 * computing / 1e6 == pytest.approx(12.0 * (1 - row["utilization"]))


def test_prefill_workers_are_paid_by_input_and_decode_workers_by_output() -> None:
    lengths = {"input_tokens": 4000, "output_tokens": 500, "prefix_cache_hit_rate": 0.5}
    found = planner.search(
        workload="serve", mode="disaggregated", engine="vllm", num_gpus=8, **ANY, **lengths
    )
    for _, row in found.to_frame().iterrows():
        rate = row["requests_per_s"]
        assert 3600 * paid_per_second(row, lengths, rate) == pytest.approx(8 * 3.0)
        workers = row["prefill_replicas"] * row["prefill_tensor_parallel"]
        workers *= row["prefill_pipeline_parallel"] * row["prefill_attention_data_parallel"]
        answers = row["cost_per_million_output_tokens_usd"] * 500 * rate
        assert 3600 * answers / 1e6 == pytest.approx((8 - workers) * 3.0)


@pytest.mark.parametrize("share", [0.0, 0.75])
def test_tokens_pay_a_static_batch(share: float) -> None:
    lengths = {"input_tokens": 2000, "output_tokens": 100, "prefix_cache_hit_rate": share}
    found = planner.estimate(
        workload="inference", **ANY, **lengths, num_gpus=2, settings={"concurrency": 8}
    )
    row = found.to_frame().iloc[0]
    rate = row["output_tokens_per_s"] / 100
    assert 3600 * paid_per_second(row, lengths, rate) == pytest.approx(6.0)
    share_of_prompts = row["prefill_latency_s"] / row["request_latency_s"]
    answers = row["cost_per_million_output_tokens_usd"] * 100 * rate / 1e6
    assert 3600 * answers == pytest.approx(6.0 * (1 - share_of_prompts))


def test_a_cached_token_costs_a_small_part_of_a_computed_one() -> None:
    def cost(input_tokens: int, share: float) -> tuple[float, float]:
        row = planner.estimate(
            workload="serve",
            **ANY,
            num_gpus=1,
            input_tokens=input_tokens,
            output_tokens=100,
            prefix_cache_hit_rate=share,
            settings={"concurrency": 8},
        ).to_frame().iloc[0]  # fmt: skip
        return tuple(row[f"cost_per_million_{kind}_tokens_usd"] for kind in KINDS[:2])

    computed, cached = cost(10_000, 0.8)
    assert 0 < cached < 0.2 * computed
    # Two thousand new tokens behind 8,000 or 38,000 cached ones.
    behind_more = cost(40_000, 0.95)[1]
    assert 38_000 * behind_more > 3 * 8_000 * cached


def test_a_prefix_adds_what_a_prompt_without_it_lacks() -> None:
    """2,000 new tokens behind 38,000, against a prompt of 2,000: one prompt a step of 2,048."""
    found = planner.estimate(
        workload="serve",
        **ANY,
        num_gpus=1,
        input_tokens=40_000,
        output_tokens=100,
        prefix_cache_hit_rate=0.95,
        settings={"concurrency": 1, "max_num_batched_tokens": 2048},
    )
    setting, c = found.source.inputs, found.candidates.configurations
    short = replace(setting.workload, input_tokens=2_000, prefix_cache_hit_rate=0.0)
    one, nothing = np.ones(()), np.zeros(())
    times = [
        step_time(each, c, prompt_batch(each, one, 2_000 * one, nothing), decoding=False).total
        for each in (setting, replace(setting, workload=short))
    ]
    share = prefix_share(setting, c)
    assert 0.1 < share < 0.9
    assert share == pytest.approx(1 - times[1] / times[0], rel=1e-6)
