"""Advice is tried, in the order of families, and ends with its budget of configurations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.decide.suggestions.infeasible import round_limit_outward, suggest_feasible
from planner.optimize.exhaustive import exhaustive_search
from planner.optimize.problem import constraints
from planner.question.request import Request
from planner.workloads.make_plan import make_plan, make_single_plan

TIGHT = Request(model="llama-65b", num_gpus=8, space="small", framework="deepspeed")


def test_the_budget_is_one_of_configurations():
    plan = make_plan(TIGHT)
    result = exhaustive_search(plan.problem)
    found = suggest_feasible(plan, result)
    assert len(found) > 1
    poor = replace(plan, workload=replace(plan.workload, advice_rows=1))
    assert suggest_feasible(poor, result) == []
    some = replace(plan, workload=replace(plan.workload, advice_rows=2 * plan.problem.num_rows))
    assert len(suggest_feasible(some, result)) < len(found)


@pytest.mark.parametrize(
    ("name", "value", "option", "bound"),
    [
        ("step_time", 12.34, "--step-time 13s", 13.0),
        ("step_time", 0.01234, "--step-time 13ms", 0.013),
        ("model_flops_utilization", 0.4567, "--mfu 0.45", 0.45),
        ("memory_headroom", 3.21 * 2**30, "--memory-headroom 3.2GiB", 3.2 * 2**30),
    ],
)
def test_limits_are_rounded_away_from_what_was_found(name, value, option, bound):
    (constraint,) = constraints("train", {name: 0.0})
    found = round_limit_outward(constraint, value)
    assert found == (option, pytest.approx(bound))


@pytest.mark.slow
def test_a_rate_that_is_too_much_asks_for_sizing():
    asked = Request(
        workload="serve", model="llama-3.1-8b", gpu="h100", engine="vllm", mode="aggregated",
        num_gpus=1, request_rate=1000.0,
    )  # fmt: skip
    plan = make_plan(asked)
    assert suggest_feasible(plan, exhaustive_search(plan.problem))[0] == "leaving out --gpus"
    slower = make_plan(replace(asked, request_rate=1.0, model="llama-3.1-405b"))
    assert "leaving out --gpus" not in suggest_feasible(slower, exhaustive_search(slower.problem))


def test_what_misses_an_assumed_limit_alone_helps_all_the_same():
    asked = Request(
        workload="serve", model="llama-3.1-8b", gpu="l4-24gb", engine="vllm", mode="aggregated",
        num_gpus=1, input_tokens=60_000, settings={"quantization": "w16a16", "kv_cache": "bf16"},
    )  # fmt: skip
    plan = make_plan(asked)
    assert "--set quantization=fp8" in suggest_feasible(plan, exhaustive_search(plan.problem))


def test_a_search_without_a_fit_combines_memory_savers():
    """A 70B trains whole on 4 H100 and a host of 1 TB: huggingface/accelerate#2675."""
    asked = Request(
        model="llama-2-70b", gpu="h100", num_gpus=4, framework="hf-fsdp", node_host_memory=1e12,
        sequence_length=2048, global_batch_size=4, space="small", settings={"zero_stage": 3},
    )  # fmt: skip
    plan = make_plan(asked)
    found = suggest_feasible(plan, exhaustive_search(plan.problem))
    assert found[0].startswith("--set offload=optimizer_weights")
    assert " with --set " in found[0]


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (4, "--set main_params_precision=bf16"),
        (None, "--global-batch-size 4 with --set main_params_precision=bf16"),
    ],
)
def test_precisions_of_the_trained_weights_are_offered(batch, expected):
    """The weights of that run wait in host memory, in 16 bits (huggingface/accelerate#2675)."""
    asked = Request(
        model="llama-2-70b", gpu="h100", num_gpus=4, framework="hf-fsdp", node_host_memory=1e12,
        sequence_length=2048, global_batch_size=batch,
        settings={"zero_stage": 3, "recompute": "full", "offload": "optimizer_weights"},
    )  # fmt: skip
    plan = make_single_plan(asked)
    found = suggest_feasible(plan, exhaustive_search(plan.problem))
    assert expected in found
