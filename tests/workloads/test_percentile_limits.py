"""Limits on what 50, 90, 95 or 99 % of the requests do not exceed, in searches and sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import planner
from planner.optimize.problem import limit_on_predictions
from planner.question.request import Request
from planner.question.terms import glossary, parse_percentile
from planner.workloads.make_plan import make_plan
from planner.workloads.serving.results import PERCENTILES

SERVICE: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "workload": "serve",
    "engine": "vllm",
    "gpu": "h100",
    "num_gpus": 4,
    "request_rate": 30,
    "input_tokens": 1000,
    "output_tokens": 250,
}
QUANTITIES = ("time_to_first_token", "time_per_output_token", "request_latency")


def test_four_percentiles_of_three_times_are_limits_with_an_option() -> None:
    assert {quantity for quantity, _ in PERCENTILES.values()} == set(QUANTITIES)
    assert sorted({share for _, share in PERCENTILES.values()}) == [0.5, 0.9, 0.95, 0.99]
    assert len(PERCENTILES) == 12
    assert glossary()["request_latency_p95"].option_name == "--latency-p95"
    assert parse_percentile("step_time") is None


@pytest.mark.parametrize("mode", ["aggregated", "disaggregated"])
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_percentiles_are_in_order_and_limits_keep_them(quantity: str, mode: str) -> None:
    held = {**SERVICE, "request_rate": None}
    loose = planner.search(**held, mode=mode, constraints={f"{quantity}_p99": 60.0})
    columns = {p: np.array(loose.table[f"{quantity}_p{p}_s"]) for p in (50, 90, 95, 99)}
    assert np.all(columns[50] <= columns[90])
    assert np.all(columns[90] <= columns[95])
    assert np.all(columns[95] <= columns[99])
    bound = float(np.quantile(columns[99], 0.3))
    kept = planner.search(**held, mode=mode, constraints={f"{quantity}_p99": bound})
    assert max(kept.table[f"{quantity}_p99_s"]) <= bound
    assert 0 < kept.configurations_feasible < loose.configurations_feasible


def test_what_misses_a_percentile_is_told() -> None:
    limits = {"time_to_first_token_p99": 0.001}
    result = planner.search(**SERVICE, mode="aggregated", constraints=limits)
    assert result.configurations_feasible == 0
    assert result.rejected_by["time_to_first_token_p99"] > 0
    nearest = next(m for m in result.nearest_misses if m.rejection == "time_to_first_token_p99")
    assert nearest.value > 0.001


def test_limited_percentiles_are_shown() -> None:
    limits = {"time_to_first_token_p99": 1.0, "request_latency_p95": 20.0}
    words = planner.search(**SERVICE, mode="aggregated", constraints=limits).summary(width=200)
    assert "TTFT-p99" in words
    assert "latency-p95" in words
    assert "TPOT-p99" not in words


def test_a_confidence_tightens_a_percentile_as_its_mean() -> None:
    plan = make_plan(
        Request(
            **SERVICE,
            mode="aggregated",
            confidence=0.9,
            constraints={"time_to_first_token_p99": 1.0, "time_to_first_token": 1.0},
        )
    )
    source = plan.problem.sources[0]
    high, mean = (limit_on_predictions(limit, source) for limit in plan.problem.constraints[:2])
    assert high.bound == mean.bound < 1.0


@pytest.mark.slow
def test_tighter_percentiles_take_no_fewer_gpus() -> None:
    asked = {**SERVICE, "num_gpus": None, "request_rate": 200, "mode": "aggregated"}
    found = []
    for bound in (1.0, 0.3, 0.12):
        limits = {"time_to_first_token_p99": bound, "time_per_output_token_p95": 0.03}
        (size,) = planner.size(**asked, constraints=limits, confidence=0.5).sizes
        assert size.fewest.row["time_to_first_token_p99_s"] <= bound
        found.append(size.fewest.num_gpus)
    assert found == sorted(found)
    assert found[0] < found[-1]


def test_a_limit_of_the_mean_takes_no_more_than_one_of_99_percent() -> None:
    """Of pipelines, whose places never fill, the mean wait for one is none."""
    asked = {
        "workload": "serve", "model": "llama-3.1-70b", "gpu": "h100", "engine": "vllm",
        "mode": "aggregated", "request_rate": 100, "lengths": "azure-conversation",
        "num_gpus": 36,
        "settings": {
            "pipeline_parallel": 4, "tensor_parallel": 1, "quantization": "fp8", "kv_cache": "fp8",
            "max_num_batched_tokens": 2048, "concurrency": (300, 400, 500, 569),
        },
    }  # fmt: skip
    mean, tail = (
        planner.search(**asked, constraints={f"time_to_first_token{end}": 200.0})
        for end in ("", "_p99")
    )
    assert mean.configurations_feasible >= tail.configurations_feasible == 4
    assert max(mean.table["time_to_first_token_s"]) < 6
