"""Prices of shipped deployments by hand: GPUs times USD per second over tokens per second."""

from __future__ import annotations

from typing import Any

import pytest

import planner

REQUEST: dict[str, Any] = {"model": "llama-3.1-70b", "gpu": "h200-sxm-141gb", "num_gpus": 16}
LENGTHS = {"input_tokens": 3000, "output_tokens": 200}


def rows(workload: str) -> Any:
    settings = {"tensor_parallel": 4, "quantization": "fp8", "concurrency": 32}
    found = planner.estimate(workload=workload, **REQUEST, **LENGTHS, settings=settings)
    return found, found.to_frame().iloc[0]


def test_a_deployment_is_paid_by_the_hour_and_by_the_token() -> None:
    found, row = rows("serve")
    price = found.source.site.price
    assert price * 3600 == pytest.approx(4.77, rel=0.5)
    assert row["cost_per_hour_usd"] == pytest.approx(16 * price * 3600)
    in_an_hour = row["requests_per_s"] * 200 * 3600
    million = row["cost_per_hour_usd"] / in_an_hour * 1e6
    assert row["cost_per_million_tokens_usd"] == pytest.approx(million)
    assert row["output_tokens_per_s"] * 3600 == pytest.approx(in_an_hour)
    later = 199 * row["time_per_output_token_s"]
    assert row["request_latency_s"] == pytest.approx(row["time_to_first_token_s"] + later)


def test_a_static_batch_is_paid_for_as_long_as_it_lasts() -> None:
    found, row = rows("inference")
    paid = 16 * found.source.site.price * row["request_latency_s"]
    assert row["replicas"] == 4
    million = paid / (4 * 32 * 200) * 1e6
    assert row["cost_per_million_tokens_usd"] == pytest.approx(million)


def test_both_pools_of_a_plan_are_paid() -> None:
    found = planner.search(workload="serve", **REQUEST, **LENGTHS)
    frame = found.to_frame()
    apart = frame[frame["mode"] == "disaggregated"]
    assert len(apart)
    price = found.problem.sources[0].site.price
    for _, row in apart.iterrows():
        assert row["num_gpus"] == 16
        assert row["cost_per_hour_usd"] == pytest.approx(16 * price * 3600)
        million = row["cost_per_hour_usd"] / 3600 / row["output_tokens_per_s"] * 1e6
        assert row["cost_per_million_tokens_usd"] == pytest.approx(million)
        assert row["output_tokens_per_s"] == pytest.approx(200 * row["requests_per_s"])
