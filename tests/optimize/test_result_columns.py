"""Columns beside the predictions: the ends of their intervals, and what was asked."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.confidence.intervals import quantile
from planner.optimize.exhaustive import exhaustive_search
from planner.optimize.result_columns import (
    COLUMNS_BY_ERROR,
    bad_case_value,
    distinguishing_interval,
    ends_of,
    full_columns,
)
from planner.question.request import Request
from planner.question.terms import term_of_column
from planner.workloads.make_plan import make_plan

TRAIN = Request(model="llama-7b", num_gpus=(8, 16), space="small", framework="megatron-lm")
SERVE = Request(
    workload="serve",
    model="llama-3.1-8b",
    gpu="h100",
    engine="vllm",
    num_gpus=4,
    settings={"concurrency": [1, 8]},
    prefix_cache_hit_rate=0.5,
)
BATCH = Request(**{**vars(SERVE), "workload": "inference", "price": 3.5, "region": "SE"})


@pytest.mark.parametrize("request_", [TRAIN, SERVE, BATCH], ids=lambda r: r.workload)
def test_ends_lie_around_each_value_and_are_terms(request_):
    problem = make_plan(request_).problem
    table = exhaustive_search(problem).table
    found = full_columns(table, problem.sources)
    ended = [name for name in table if ends_of(name)[0] in found]
    follow = {name for both in COLUMNS_BY_ERROR.values() for names in both for name in names}
    assert set(ended) == follow & set(table)
    for name in ended:
        low, high = (found[end] for end in ends_of(name))
        assert all(low < table[name]), name
        assert all(table[name] < high), name
    for name in set(found) - set(table):
        assert term_of_column(name) is not None, name


def test_what_follows_from_the_time_is_as_unsure_as_the_time():
    problem = make_plan(replace(TRAIN, campaign_factor=1)).problem
    found = full_columns(exhaustive_search(problem).table, problem.sources)
    slow = found["step_time_high_s"] / found["step_time_s"]
    offer = problem.sources[0].site.offer
    with_price = np.exp(np.hypot(np.log(slow), np.log(offer.spread[1])))
    assert found["cost_high_usd"] / found["cost_usd"] == pytest.approx(with_price)
    assert found["gpu_hours_high"] / found["gpu_hours"] == pytest.approx(slow)
    assert found["tokens_per_s"] / found["tokens_per_s_low"] == pytest.approx(slow)


def test_what_all_plans_have_in_common_tells_none_apart():
    """The spreads of campaigns and of sellers' prices count in the interval alone, in no tie."""
    asked = {"model": "llama-7b", "num_gpus": 8, "gpu": "h100"}
    (row,) = planner.estimate(**asked, price=2.0).to_frame().to_dict("records")
    low, high = distinguishing_interval("cost_usd", row)
    assert row["cost_low_usd"] <= low < row["cost_usd"] < high < row["cost_high_usd"]
    own = row["time_to_train_high_days"] / row["time_to_train_days"]
    assert high / row["cost_usd"] == pytest.approx(own)
    ends = row["step_time_low_s"], row["step_time_high_s"]
    assert distinguishing_interval("step_time_s", row) == pytest.approx(ends)
    assert distinguishing_interval("price_date", row) is None
    (listed,) = planner.estimate(**asked).to_frame().to_dict("records")
    step = listed["time_to_train_high_days"] / listed["time_to_train_days"]
    assert listed["cost_high_usd"] / listed["cost_usd"] > 1.2 * step
    assert distinguishing_interval("cost_usd", listed)[1] / listed["cost_usd"] == pytest.approx(
        step
    )
    bad = bad_case_value("cost_usd", listed, 1) / listed["cost_usd"]
    assert bad == pytest.approx(quantile((1 / step, step), 0.9, 1))


@pytest.mark.parametrize(
    ("request_", "asked"),
    [
        (
            TRAIN,
            {"sequence_length": 2048, "price_per_gpu_hour_usd": 2.745, "contract": "on-demand"},
        ),
        (SERVE, {"input_tokens": 1024, "output_tokens": 1024, "price_per_gpu_hour_usd": 3.85}),
        (BATCH, {"price_per_gpu_hour_usd": 3.5, "price_low_per_gpu_hour_usd": 3.5}),
    ],
    ids=lambda r: getattr(r, "workload", ""),
)
def test_rows_say_what_was_asked(request_, asked):
    problem = make_plan(request_).problem
    found = full_columns(exhaustive_search(problem).table, problem.sources)
    assert set(found["model"]) == {problem.inputs.model.name}
    for name, value in asked.items():
        (only,) = set(found[name].tolist())
        assert only == (value if isinstance(value, str) else pytest.approx(value))


def test_rows_of_several_gpus_have_their_own_prices():
    problem = make_plan(Request(**{**vars(TRAIN), "gpu": ("h100", "a100", "b200")})).problem
    table = exhaustive_search(problem).comparisons["gpu"].table
    found = full_columns(table, problem.sources)
    prices = dict(zip(table["gpu"], found["price_per_gpu_hour_usd"], strict=True))
    assert len(set(prices.values())) == len(set(table["gpu"])) > 1


def test_an_unknown_price_is_not_a_number():
    source, *_ = make_plan(Request(**{**vars(TRAIN), "gpu": "gaudi2"})).problem.sources
    assert math.isnan(source.question_columns["price_per_gpu_hour_usd"])
