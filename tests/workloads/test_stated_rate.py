"""A stated request rate is the load: what requests meet at it, and what could be carried."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import planner

QUESTION: dict[str, Any] = {
    "workload": "serve",
    "tuned": True,
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm-80gb",
    "num_gpus": 8,
    "price": 3.6,
    "input_tokens": 1024,
    "output_tokens": 1024,
    "input_variation": 0.0,
    "output_variation": 0.0,
}
POOLS: dict[str, Any] = {
    "mode": "disaggregated",
    "settings": {"replicas": 5, "prefill_replicas": 3},
}
MODES = [pytest.param({}, id="aggregated"), pytest.param(POOLS, id="disaggregated")]


def row(**request: Any) -> dict[str, Any]:
    asked = {**QUESTION, **request}
    found: dict[str, Any] = planner.estimate(**asked).to_frame().iloc[0].to_dict()
    return found


@pytest.mark.parametrize("mode", MODES)
def test_what_is_paid_for_is_the_load(mode: dict[str, Any]) -> None:
    """8 GPUs for 3.60 USD an hour generate 20 x 1,024 tokens in a second: 0.39 USD per million."""
    found = row(**mode, request_rate=20)
    assert found["requests_per_s"] == pytest.approx(20, rel=1e-3)
    by_hand = 8 * 3.6 / 3600 / (20 * 1024) * 1e6
    assert found["cost_per_million_tokens_usd"] == pytest.approx(by_hand, rel=1e-3)
    assert found["capacity_requests_per_s"] > 25


@pytest.mark.parametrize("mode", MODES)
def test_rate_times_latency_is_in_flight(mode: dict[str, Any]) -> None:
    """Little's law; what waits outside of the engine, some ms, is not in flight in it."""
    for rate in (0.01, 1, 20, 40):
        found = row(**mode, request_rate=rate)
        each = found["requests_in_flight"] * found["replicas"]
        assert each == pytest.approx(rate * found["request_latency_s"], rel=0.01)


@pytest.mark.parametrize("mode", MODES)
def test_the_more_requests_come_the_longer_each_takes(mode: dict[str, Any]) -> None:
    found = [row(**mode, request_rate=rate) for rate in (1, 10, 20, 30, 40)]
    for name in ("time_per_output_token_s", "request_latency_s", "requests_in_flight"):
        values = np.array([one[name] for one in found])
        assert np.all(np.diff(values) > 0), name
    capacity = [one["capacity_requests_per_s"] for one in found]
    assert capacity == pytest.approx([capacity[0]] * 5, rel=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_at_its_capacity_a_plan_is_as_clients_who_hold_so_many_requests_see_it(
    mode: dict[str, Any],
) -> None:
    settings = {**mode.get("settings", {}), "concurrency": 50}
    asked = {**mode, "settings": settings}
    most = row(**asked, request_rate=1)["capacity_requests_per_s"]
    almost = row(**asked, request_rate=most * (1 - 1e-6))
    assert almost["requests_in_flight"] == pytest.approx(50, rel=0.01)
    beyond = row(**asked, request_rate=most * 2)
    assert beyond["requests_per_s"] == pytest.approx(most)
    assert beyond["requests_in_flight"] in (pytest.approx(50, rel=0.01), np.inf)


def test_a_search_tells_what_requests_meet_at_the_rate() -> None:
    """And what `planner estimate` says of the same plan."""
    asked = {**QUESTION, "num_gpus": 1, "engine": "vllm", "request_rate": 2.0}
    found = planner.search(**asked, mode="aggregated")
    table: pd.DataFrame = found.to_frame()
    assert table["requests_per_s"].to_numpy() == pytest.approx(2.0, rel=1e-3)
    assert (table["capacity_requests_per_s"] > 4).all()
    assert (table["time_per_output_token_s"] < 0.02).all()
    first = table.iloc[0]
    names = ("concurrency", "max_num_batched_tokens", "quantization", "kv_cache")
    settings = {name: first[name] for name in (*names, "expert_quantization")}
    own = row(num_gpus=1, engine="vllm", request_rate=2.0, settings=settings)
    for name in ("time_to_first_token_s", "time_per_output_token_s", "capacity_requests_per_s"):
        assert own[name] == pytest.approx(first[name], rel=1e-6), name


def test_plans_for_a_load_on_given_gpus_differ_in_capacity_or_in_speed_at_it() -> None:
    """Replicas of the same layout that hold more at most are no other answer."""
    asked = {**QUESTION, "num_gpus": 1, "engine": "vllm", "request_rate": 2.0}
    table = planner.search(**asked, mode="aggregated").to_frame()
    pairs = table[["capacity_requests_per_s_per_gpu", "tokens_per_s_per_user"]]
    assert len(pairs.round(6).drop_duplicates()) == len(table)


def test_rates_have_the_interval_that_the_capacity_leaves() -> None:
    found = row(request_rate=40)
    low, high = found["requests_per_s_low"], found["requests_per_s_high"]
    assert high == pytest.approx(40, rel=1e-3)
    assert low == pytest.approx(min(found["capacity_requests_per_s_low"], 40), rel=1e-3)


def test_clients_beyond_the_room_wait_as_littles_law_has_it() -> None:
    """No more are served than by a full cache, and N clients see N over the rate."""
    few, many = (row(num_gpus=1, settings={"concurrency": number}) for number in (250, 5000))
    assert many["most_sequences"] < 5000
    assert many["peak_memory_gib"] < 79
    rate = many["requests_per_s"]
    assert rate == pytest.approx(few["requests_per_s"], rel=0.05)
    assert rate * many["request_latency_s"] == pytest.approx(5000, rel=0.01)
    waiting = (5000 - many["most_sequences"]) / rate
    assert many["time_to_first_token_s"] == pytest.approx(waiting, rel=0.01)


def test_a_search_has_requests_wait_as_its_row_alone_does() -> None:
    told: dict[str, Any] = {"workload": "serve", "model": "llama-3.1-8b", "gpu": "h100"}
    told["settings"] = {"concurrency": 5000, "quantization": "w16a16", "tensor_parallel": 1}
    told |= {"engine": "vllm", "num_gpus": 1, "mode": "aggregated"}
    searched = planner.search(**told).to_frame().iloc[0]
    told["settings"] |= {name: searched[name] for name in ("max_num_batched_tokens", "kv_cache")}
    alone = planner.estimate(**told).to_frame().iloc[0]
    for name in ("most_sequences", "time_to_first_token_s", "requests_per_s", "peak_memory_gib"):
        assert searched[name] == pytest.approx(alone[name])


def test_those_that_have_room_are_the_largest_batch() -> None:
    many = row(num_gpus=1, settings={"concurrency": 5000})
    number = int(many["most_sequences"])
    whole, more = (row(num_gpus=1, settings={"concurrency": number + extra}) for extra in (0, 1))
    assert whole["peak_memory_gib"] == pytest.approx(many["peak_memory_gib"])
    assert whole["most_sequences"] >= number == more["most_sequences"]
