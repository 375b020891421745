"""What a megawatt, or a budget, carries."""

import math
import re
from collections import defaultdict
from dataclasses import replace

import pytest

import planner
from planner.decide.sizing.budget_search import BudgetSearch
from planner.decide.sizing.size import read_budget
from planner.errors import PlannerError, SearchSpaceError
from planner.show.presenters.services import carried_columns
from planner.specs.operating_terms import api_prices

SERVICE = {
    "workload": "serve",
    "model": "llama-3.1-70b",
    "gpu": "h100",
    "input_tokens": 2000,
    "output_tokens": 300,
    "confidence": 0.5,
    "engine": "vllm",
    "mode": "aggregated",
}


def _carried(**asked):
    (size,) = planner.size(**{**SERVICE, **asked}).sizes
    assert size.carried is not None, size.reason
    return size.carried


@pytest.mark.parametrize(
    ("words", "rate"),
    [
        ("100USD/h", 100 / 3600),
        ("$100 per hour", 100 / 3600),
        ("24k/day", 1000 / 3600),
        ("50kUSD/month", 50e3 * 12 / (365 * 86400)),
        ("2MUSD/year", 2e6 / (365 * 86400)),
    ],
)
def test_budgets_by_the_time(words, rate):
    assert read_budget(words).rate == pytest.approx(rate)


def test_a_budget_in_total():
    budget = read_budget("2MUSD")
    assert budget.amount == 2e6
    assert budget.period is None
    assert read_budget(2e6).amount == 2e6
    for words in ("2M/week", "much", "0 USD/h", "-3k/day"):
        with pytest.raises(SearchSpaceError, match="budget"):
            read_budget(words)


@pytest.mark.parametrize("mode", ["aggregated", "disaggregated"])
@pytest.mark.parametrize("confidence", [0.5, 0.9])
def test_a_megawatt_is_used_to_its_last_node(mode, confidence):
    """So many GPUs draw no more, and those of one more node do."""
    one = _carried(constraints={"power": "1MW"}, engine="sglang", mode=mode, confidence=confidence)
    (margin,) = [margin for margin in one.fleet.margins if margin.name == "power"]
    assert margin.value_at_confidence <= 1e6
    assert one.fleet.num_gpus % 8 == 0
    # Pools of more than 512 GPUs grow by as many parts.
    step = 8 * (math.ceil(one.fleet.num_gpus / 512) if mode == "disaggregated" else 1)
    assert margin.value_at_confidence * (1 + step / one.fleet.num_gpus) > 1e6 * (1 - 0.002)


def test_pools_of_many_gpus_are_as_many_times_those_of_a_part():
    asked = {"engine": "sglang", "mode": "disaggregated"}
    one = _carried(constraints={"power": "1MW"}, **asked)
    ten = _carried(constraints={"power": "10MW"}, **asked)
    assert ten.fleet.num_gpus > 4096
    assert 9900 < ten.fleet.row["power_kw"] <= 10_000
    assert ten.output_tokens / one.output_tokens == pytest.approx(10, rel=0.03)


@pytest.mark.slow
def test_a_budget_pays_single_gpus():
    """A hundred USD an hour pay 25 GPUs at 4 USD: 12 replicas of two."""
    assert _carried(price=4, budget="100USD/h").fleet.num_gpus == 24
    assert _carried(price=4, budget="95USD/h").fleet.num_gpus == 22
    assert _carried(price=4, budget="20USD/h").fleet.num_gpus in (4, 5)


def test_a_budget_and_a_limit_of_power_hold_both():
    both = _carried(price=4, budget="100USD/h", constraints={"power": "20kW"})
    assert both.fleet.num_gpus == 16
    assert both.fleet.row["power_kw"] <= 20


@pytest.mark.slow
def test_a_budget_of_owned_gpus_pays_whole_nodes():
    """H100 are bought in nodes of 8, of which each GPU costs 1.88 USD an hour: 15.1 a node."""
    asked = {"contract": "owned", "model": "llama-3.1-8b"}
    assert _carried(**asked, budget="31USD/h").fleet.cost == pytest.approx(2 * 15.07, abs=0.05)
    (size,) = planner.size(**{**SERVICE, **asked}, budget="15USD/h").sizes
    assert "below 8 GPUs, which are sold together," in size.reason


@pytest.mark.few(1)
@pytest.mark.parametrize("confidence", [0.5, 0.9])
@pytest.mark.parametrize("rate", [20, 200])
@pytest.mark.parametrize(("model", "gpu"), [("llama-3.1-70b", "h100"), ("llama-3.1-8b", "a100")])
def test_a_budget_carries_what_it_pays_for_a_rate(model, gpu, rate, confidence):
    """A size for a rate costs so much; that much as a budget carries at least as many requests."""
    limits = {"ttft": "2s", "tpot": "60ms"}
    asked = {
        **SERVICE, "model": model, "gpu": gpu, "confidence": confidence, "constraints": limits,
    }  # fmt: skip
    fleet = planner.size(**asked, request_rate=rate).best.fewest
    carried = planner.size(**asked, budget=f"{fleet.cost * (1 + 1e-9)}USD/h").best.carried
    assert carried.fleet.cost <= fleet.cost * (1 + 1e-6)
    per_gpu = fleet.row["capacity_requests_per_s"] / fleet.num_gpus
    step = fleet.num_gpus // fleet.row["replicas"]
    least = min(fleet.row["capacity_requests_per_s"], per_gpu * (fleet.num_gpus - step))
    assert carried.fleet.row["requests_per_s"] >= max(least, rate if confidence == 0.5 else 0)


def test_the_cost_of_a_service_points_to_its_budget():
    with pytest.raises(SearchSpaceError, match="Limit the cost of a service with budget of size"):
        planner.size(**SERVICE, constraints={"cost": "5M"})


def test_tokens_users_and_profit_per_megawatt_by_hand():
    one = _carried(constraints={"power": "1MW"}, price=4, engine="vllm", mode="aggregated")
    row, columns = one.fleet.row, one.columns
    mega = row["power_kw"] / 1000
    assert row["cost_per_hour_usd"] == pytest.approx(4 * row["num_gpus"])
    assert columns["gpus_per_megawatt"] == pytest.approx(row["num_gpus"] / mega)
    assert one.users == pytest.approx(row["replicas"] * row["concurrency"], rel=1e-4)
    assert columns["users_per_megawatt"] == pytest.approx(one.users / mega)
    asked = sorted(
        2000 * price.input + 300 * price.output
        for price in api_prices("llama-3.1-70b")
        if not price.is_old
    )
    median = asked[(len(asked) - 1) // 2]
    revenue = 3600 * row["requests_per_s"] * median
    assert columns["revenue_per_hour_usd"] == pytest.approx(revenue)
    profit = revenue - 4 * row["num_gpus"]
    assert columns["profit_per_hour_per_megawatt_usd"] == pytest.approx(profit / mega)
    assert columns["break_even_utilization"] == pytest.approx(4 * row["num_gpus"] / revenue)
    assert columns["pue"] == pytest.approx(1.25)


def test_a_smaller_pue_leaves_room_for_more_gpus():
    asked = {"engine": "vllm", "mode": "aggregated", "constraints": {"power": "1MW"}}
    usual, cool = _carried(**asked), _carried(**asked, pue=1.0)
    assert cool.fleet.num_gpus / usual.fleet.num_gpus == pytest.approx(1.25, rel=0.02)


def test_gpus_stand_in_the_order_of_their_tokens():
    answer = planner.size(
        **{**SERVICE, "gpu": ["a100", "h100", "b200"]}, constraints={"power": "1MW"}, price=3
    )
    tokens = [size.carried.output_tokens for size in answer.sizes]
    assert tokens == sorted(tokens, reverse=True)
    assert answer.best.carried.output_tokens == tokens[0]
    frame = answer.to_frame()
    assert {"gpus_per_megawatt", "users", "profit_per_hour_usd"} <= {*frame.columns}
    text = answer.summary(width=120, full=True)
    assert "Within 1,000 kW, the most tokens first" in text
    assert "Most tokens" in text
    assert "GPUs /MW" in " ".join(text.split()) or "/MW" in text


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"constraints": {"power": "4kW"}}, ["a node of 8 draws", "above 4.00 kW"]),
        ({"budget": "2USD/h", "price": 4}, ["2.00 USD an hour is below one GPU at 4.00 USD"]),
        (
            {"gpu": "gh200-96gb", "constraints": {"power": "1MW"}},
            ["power of gh200-96gb is unknown"],
        ),
        ({"gpu": "mi250", "budget": "9USD/h", "contract": "owned"}, ["--price", "price"]),
    ],
)
def test_what_is_too_little_is_told(asked, words):
    try:
        (size,) = planner.size(**{**SERVICE, **asked}).sizes
    except PlannerError as error:
        told = str(error)
    else:
        told = size.reason
        assert size.fewest is None
    assert any(word in told for word in words), told


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({}, "what they may draw or cost: power, budget"),
        ({"budget": "2MUSD"}, "per hour, day, month or year"),
        ({"budget": "2k/day", "load": "day.csv"}, "leave out budget"),
        ({"workload": "train", "total_tokens": "1T", "budget": "2k/day"}, "without a period"),
        (
            {
                "workload": "train",
                "total_tokens": "1T",
                "budget": "2M",
                "constraints": {"cost": "1M"},
            },
            "give one of them",
        ),
    ],
)
def test_questions_without_an_envelope_are_refused(asked, word):
    plain = {"model": "llama-3.1-70b", "workload": "serve", "gpu": "h100"}
    with pytest.raises(SearchSpaceError, match=word):
        planner.size(**{**plain, **asked})


def test_a_rate_above_the_budget_is_refused_with_its_cost():
    """GPUs x 4 USD over 9 USD: by how much it is above, and how many GPUs are paid, by hand."""
    (size,) = planner.size(**SERVICE, request_rate=50, budget="9USD/h", price=4).sizes
    match = re.fullmatch(
        r"(\d+) GPUs cost ([\d.]+) USD an hour, ([\d,.]+) % above the budget of 9.00 USD, "
        r"which pays ([\d.]+) % of them",
        size.reason,
    )
    assert match, size.reason
    gpus, cost, above, paid = (float(text.replace(",", "")) for text in match.groups())
    assert cost == 4 * gpus
    assert above == pytest.approx(100 * (cost / 9 - 1), rel=0.02)
    assert paid == pytest.approx(100 * 9 / cost, rel=0.02)


@pytest.mark.parametrize(
    ("gpu", "tokens", "rate", "times"),
    [("h100", 200, 10, 3), ("h100", 500, 30, 1), ("h200", 200, 20, 2)],
)
@pytest.mark.slow
def test_a_budget_carries_at_least_what_the_plan_of_a_rate_would(gpu, tokens, rate, times):
    """The fleet for a rate, paid ``times`` over, serves no more than the budget of that price."""
    asked = {"workload": "serve", "model": "llama-3.1-70b", "gpu": gpu, "input_tokens": 1000}
    asked |= {"output_tokens": tokens}
    asked["constraints"] = {"time_to_first_token": "2s", "time_per_output_token": "50ms"}
    sized = planner.size(**asked, request_rate=rate)
    fleet = sized.best.cheapest or sized.best.fewest
    budget = times * fleet.cost * (1 + 1e-9)
    (carried,) = planner.size(**asked, budget=f"{budget!r}/h").sizes
    of_rate = BudgetSearch(
        request=replace(sized.request, gpu=sized.best.gpu, request_rate=None), budget=budget / 3600
    )._largest_load_of(fleet)
    assert carried.fewest.cost <= budget
    scaled = times * of_rate.fleet.row["requests_per_s"]
    assert carried.fewest.row["requests_per_s"] >= (1 - 1e-9) * scaled
    assert carried.fewest.row["requests_per_s"] >= times * rate


@pytest.mark.slow
def test_a_run_within_watts_or_dollars():
    """The fastest run is as fast as the power lets it be; a budget is the limit of its cost."""
    run = {"model": "llama-7b", "gpu": "h100", "framework": "megatron-lm", "total_tokens": "100B"}
    run |= {"space": "small"}
    (size,) = planner.size(**run, constraints={"power": "100kW"}).sizes
    assert size.fastest.row["power_kw"] <= 100
    assert size.fastest.row["power_kw"] > 70
    assert size.fastest.num_gpus > size.fewest.num_gpus
    run |= {"num_gpus": [8, 32, 128]}
    spent = planner.size(**run, budget="20kUSD", price=3)
    limited = planner.size(**run, constraints={"cost": "20kUSD"}, price=3)
    one, other = (answer.best.fastest.row for answer in (spent, limited))
    assert [*map(str, one.items())] == [*map(str, other.items())]


def test_the_picture_has_tokens_over_cost():
    from planner.show.presenters.plots.curves import size_curves

    answer = planner.size(
        **{**SERVICE, "gpu": ["h100", "b200"]}, constraints={"power": "100kW"}, price=3
    )
    curves = size_curves(answer)
    assert [(curve.x[0], curve.y[0]) for curve in curves.curves] == [
        (size.carried.fleet.cost, size.carried.output_tokens) for size in answer.sizes
    ]


def test_columns_of_a_budget_are_in_the_units_of_their_heads():
    numbers = {
        "gpu": "h100", "engine": "vllm", "num_gpus": 1000, "power_kw": 1380.0,
        "gpus_per_megawatt": 725.0, "output_tokens_per_s": 1.5e6, "users": 40000,
        "output_tokens_per_s_per_megawatt": 1.25e6, "cost_per_hour_usd": 2500.0,
        "cost_per_million_tokens_usd": 0.46, "profit_per_hour_usd": 1200.0,
        "profit_per_hour_per_megawatt_usd": 870.0,
    }  # fmt: skip
    row = defaultdict(lambda: 1, numbers)  # of the layout
    cells = {
        column.header: [getattr(cell, "text", cell) for cell in column.cells]
        for column in carried_columns([row])
    }
    assert cells["k tok/s"] == ["1,500"]
    assert cells["k tok/s /MW"] == ["1,250"]
    assert (cells["GPUs"], cells["kW"], cells["users"]) == (["1,000"], ["1,380"], ["40,000"])
    assert (cells["USD /h"], cells["USD /Mtok"]) == (["2,500"], ["0.46"])
