"""Pools of prefill and decode workers as one configuration: asked for, priced, limited."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import planner
from planner.errors import SearchSpaceError
from planner.question.request import Request
from planner.workloads.make_plan import make_plan
from planner.workloads.serving.results import rounded_up

QUESTION: dict[str, Any] = {
    "workload": "serve",
    "model": "llama-3.1-70b",
    "gpu": "h200-sxm-141gb",
    "num_gpus": 16,
    "mode": "disaggregated",
    "input_tokens": 4000,
    "output_tokens": 300,
}
LAYOUT = {"tensor_parallel": 2, "quantization": "fp8", "concurrency": 32}


def one(settings: dict[str, Any], **request: Any) -> dict[str, Any]:
    asked = {**QUESTION, **request, "settings": {**LAYOUT, **settings}}
    row: dict[str, Any] = planner.estimate(**asked).to_frame().iloc[0].to_dict()
    return row


def test_prefill_workers_have_the_plain_values_where_they_have_no_own() -> None:
    row = one({"prefill_tensor_parallel": 4, "prefill_replicas": 2})
    assert (row["tensor_parallel"], row["prefill_tensor_parallel"]) == (2, 4)
    assert (row["replicas"], row["prefill_replicas"]) == (4, 2)
    assert row["prefill_quantization"] == row["quantization"] == "fp8"
    assert row["num_gpus"] == 16


@pytest.mark.parametrize("name", ["replicas", "prefill_replicas"])
def test_one_number_of_workers_decides_the_other(name: str) -> None:
    row = one({name: 3})
    assert row["replicas"] + row["prefill_replicas"] == 8
    assert row[name] == 3


def test_without_gpus_both_numbers_are_needed() -> None:
    row = one({"replicas": 3, "prefill_replicas": 2}, num_gpus=None)
    assert row["num_gpus"] == 10
    with pytest.raises(SearchSpaceError, match="replicas and prefill_replicas together"):
        one({"replicas": 3}, num_gpus=None)


@pytest.mark.parametrize(
    ("settings", "request_", "words"),
    [
        (
            {},
            {},
            "Several configurations are possible, of prefill workers of 2 and decode",
        ),
        ({"replicas": [1, 2]}, {}, "one number of replicas"),
        ({"prefill_tensor_paralel": 2}, {}, "Did you mean tensor_parallel"),
        ({"prefill_kv_cache": "fp9"}, {}, "kv_cache is one of"),
        ({"prefill_replicas": 2}, {"mode": "aggregated"}, "except with --mode disaggregated"),
        ({"prefill_kv_cache": "fp8"}, {"mode": None}, "needs --mode disaggregated"),
    ],
)
def test_what_makes_no_sense_is_told(
    settings: dict[str, Any], request_: dict[str, Any], words: str
) -> None:
    with pytest.raises(SearchSpaceError, match=words):
        one(settings, **request_)


def test_a_search_may_pin_prefill_workers() -> None:
    settings = {
        "tensor_parallel": [1, 2, 4],
        "prefill_tensor_parallel": [8],
        "concurrency": [8, 64],
    }
    rows: list[pd.DataFrame] = []
    planner.search(
        **QUESTION, settings=settings, sink=lambda table: rows.append(pd.DataFrame(table))
    )
    every = pd.concat(rows)
    assert set(every["prefill_tensor_parallel"]) == {8}
    assert len(set(every["tensor_parallel"])) > 1
    assert set(every["prefill_replicas"]) == {1}


@pytest.mark.parametrize(("replicas", "rows"), [(3, 1), (4, 0)])
def test_both_numbers_must_fill_the_gpus(replicas: int, rows: int) -> None:
    settings = {**LAYOUT, "kv_cache": "fp8", "prefill_tensor_parallel": 4}
    settings |= {"replicas": replicas, "prefill_replicas": 1}
    question = {**QUESTION, "num_gpus": 10, "engine": "vllm"}
    found = planner.search(**question, settings=settings)
    assert found.configurations_feasible == rows


@pytest.mark.slow
def test_a_plan_that_does_not_fit_elsewhere_gets_advice(planner: Any, tmp_path: Any) -> None:
    plan = tmp_path / "plan.toml"
    words = ("--workload", "serve", "--model", "llama-3.1-70b", "--gpu", "h200", "--gpus", "16")
    pools = ("--mode", "disaggregated", "--set", "quantization=w16a16")
    assert planner("search", *words, *pools, "--save-plan", plan, "--quiet").exit_code == 0
    ran = planner("estimate", "--plan", plan, "--gpu", "t4")
    assert ran.exit_code == 4
    assert "internal error" not in ran.err


def test_each_pool_is_paid_at_its_own_price_and_keeps_its_own_memory_free() -> None:
    settings = {"prefill_replicas": 4, "prefill_tensor_parallel": 2}
    row = one(settings, prefill_gpu="h100-sxm-80gb")
    (source,) = make_plan(
        Request(**QUESTION, engine="vllm", prefill_gpu="h100-sxm-80gb")
    ).problem.sources
    prices: Any = source
    expected = 8 * prices.site.price + 8 * prices.prefill_site.price
    assert prices.site.price != prices.prefill_site.price
    assert row["cost_per_hour_usd"] == pytest.approx(3600 * expected)
    alone = one(settings, prefill_gpu=None)
    assert row["memory_headroom_gib"] < alone["memory_headroom_gib"]
    assert row["peak_memory_gib"] == alone["peak_memory_gib"]


def test_caches_move_over_the_fabric_where_all_workers_share_one() -> None:
    """A domain of an H200 has eight GPUs; other GPUs share none with it."""
    settings = {"prefill_replicas": 1, "replicas": 3}
    inside = one(settings, num_gpus=8)["transfer_time_s"]
    apart = one({**settings, "replicas": 4}, num_gpus=10)["transfer_time_s"]
    other = one(settings, num_gpus=8, prefill_gpu="h100-sxm-80gb")["transfer_time_s"]
    assert inside < 0.3 * apart
    assert other == pytest.approx(apart)


def test_a_worker_that_breaks_a_rule_or_finds_no_room_is_named() -> None:
    wrong = {"prefill_replicas": 1, "prefill_tensor_parallel": 3}
    found = planner.estimate(**{**QUESTION, "num_gpus": 7, "settings": {**LAYOUT, **wrong}})
    assert found.rejected_by == "attention_heads"
    small = {"prefill_replicas": 1, "prefill_quantization": "w16a16", "prefill_tensor_parallel": 1}
    request = {**QUESTION, "num_gpus": 9, "prefill_gpu": "h100-sxm-80gb"}
    found = planner.estimate(**{**request, "settings": {**LAYOUT, **small}})
    assert found.rejected_by == "out_of_memory"
    needed, usable = found.candidates.memory[1]
    assert float(np.ravel(needed)[0]) > usable > 60 * 2**30


def test_a_burst_queues_for_prompts_and_for_places() -> None:
    """4 workers compute 100 prompts each, 4 others have 128 places together."""
    asked = {**QUESTION, "settings": {**LAYOUT, "replicas": 4, "prefill_replicas": 4}}
    found = planner.estimate(**asked, burst=400)
    pools, served = found.candidates.pools, found.detail
    # The last prompts are 99 before them at a worker, and 128 places turn over three times.
    prompts = float(np.ravel(pools.prompt_time + 99 * pools.service_time + pools.transfer_time)[0])
    assert served.makespan == pytest.approx(served.answered_within(1.0))
    answer = served.makespan - served.first_within(1.0)
    assert served.makespan >= prompts + answer
    assert served.makespan >= np.ceil(400 / 128) * answer
    alone = planner.estimate(**asked, burst=1).detail
    assert alone.first_within(0.5) > float(np.ravel(pools.prompt_time + pools.transfer_time)[0])
    many = planner.estimate(**asked, burst=4000).detail
    assert many.makespan / served.makespan == pytest.approx(10, rel=0.15)
    row = found.to_frame().iloc[0]
    assert row["burst_requests"] == 400
    assert row["burst_request_latency_p99_s"] <= row["makespan_s"]


def test_a_burst_of_pools_takes_the_places_that_there_are() -> None:
    settings = {"tensor_parallel": 2, "quantization": "fp8", "replicas": 4, "prefill_replicas": 4}
    few, many = (
        planner.estimate(**{**QUESTION, "settings": settings}, burst=number)
        for number in (40, 4000)
    )
    held = [one.to_frame().iloc[0]["concurrency"] for one in (few, many)]
    assert held[0] <= 11
    assert held[1] > 100
    assert not few.rejected_by
    assert not many.rejected_by


def test_replicas_are_the_next_whole_number_but_for_rounding() -> None:
    """So many requests as exactly three replicas answer need no fourth."""
    needed = np.array([0.2, 1.0, 3 * (1 - 1e-15), 3.0, 3 * (1 + 1e-15), 3.01])
    assert rounded_up(needed).tolist() == [1, 1, 3, 3, 3, 4]
