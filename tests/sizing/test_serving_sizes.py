"""The GPUs of a service, and of a load that changes over a day."""

import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import planner
from planner.decide.sizing.autoscaling import read_load
from planner.decide.sizing.daily_schedule import (
    DayPeriod,
    HourlyPrices,
    LoadPeriod,
    cheapest_base,
    day_cost,
)
from planner.errors import InfeasibleError, SearchSpaceError, SpecError
from planner.optimize.problem import confidence_factor

SERVICE = {
    "tuned": True,
    "model": "llama-3.1-8b",
    "workload": "serve",
    "engine": "vllm",
    "mode": "aggregated",
    "gpu": "h100",
    "input_tokens": 2000,
    "output_tokens": 300,
    "constraints": {"time_to_first_token": "1s", "time_per_output_token": "40ms"},
}


@pytest.mark.few(1)
@pytest.mark.parametrize("confidence", [0.5, 0.9])
@pytest.mark.parametrize("rate", [1, 20, 173])
def test_no_fewer_gpus_serve_the_rate(rate, confidence):
    """Every number of GPUs below the fewest misses a limit or the rate when it is searched."""
    (size,) = planner.size(**SERVICE, request_rate=rate, confidence=confidence).sizes
    fewest = size.fewest.num_gpus

    def serves(count):
        asked = {**SERVICE, "request_rate": rate, "confidence": confidence, "num_gpus": count}
        return planner.search(**asked).configurations_feasible > 0

    assert serves(fewest)
    assert not any(serves(count) for count in range(1, fewest))


@pytest.mark.slow
def test_what_is_bought_is_kept_by_9_of_10_where_nobody_says_how_surely():
    asked = {**SERVICE, "request_rate": 100}
    (unsaid,), (sure,), (predicted,) = (
        planner.size(**asked, **more).sizes
        for more in ({}, {"confidence": 0.9}, {"confidence": 0.5})
    )
    assert [*map(str, unsaid.fewest.row.values())] == [*map(str, sure.fewest.row.values())]
    assert unsaid.fewest.num_gpus > predicted.fewest.num_gpus
    told = planner.size(**asked).table
    assert told["confidence"] == [0.9] * len(told["gpu"])


def test_with_a_spare_one_of_each_worker_may_fail():
    whole, pools = (
        planner.size(**{**SERVICE, "mode": mode}, request_rate=100).sizes[0].fewest
        for mode in ("aggregated", "disaggregated")
    )
    row = whole.row
    one = row["tensor_parallel"] * row["pipeline_parallel"]
    gpus, cost = whole.with_spare
    assert gpus == whole.num_gpus + one
    assert cost == pytest.approx(row["cost_per_hour_usd"] * (1 + 1 / row["replicas"]))
    row = pools.row
    both = row["tensor_parallel"] * row["pipeline_parallel"]
    both += row["prefill_tensor_parallel"] * row["prefill_pipeline_parallel"]
    assert pools.with_spare[0] == pools.num_gpus + both


def test_of_plans_of_as_many_gpus_size_takes_the_one_that_search_recommends():
    """And names it where it takes a little more than the fewest."""
    asked = {"model": "llama-3-70b", "workload": "serve", "gpu": "mi300x", "request_rate": 40}
    asked |= {"confidence": 0.9, "constraints": {"ttft": "2s", "tpot": "50ms"}}
    found = planner.search(**asked)
    (size,) = planner.size(**asked).sizes
    simplest = size.simplest or size.fewest
    row = found.recommended_row
    names = ("num_gpus", "engine", "mode", "replicas", "tensor_parallel", "prefill_replicas")
    assert [simplest.row[name] for name in names] == [row[name] for name in names]
    assert size.fewest.num_gpus < simplest.num_gpus
    assert "simplest" in {*size.choices}


def test_the_margins_of_a_service():
    (size,) = planner.size(**SERVICE, request_rate=100, confidence=0.9).sizes
    margins = {margin.name: margin for margin in size.fewest.margins}
    assert set(margins) == {"time_to_first_token", "time_per_output_token", "request_rate"}
    row, rate = size.fewest.row, margins["request_rate"]
    assert rate.predicted == row["capacity_requests_per_s"]
    low = row["capacity_requests_per_s_low"] / row["capacity_requests_per_s"]
    assert rate.value_at_confidence == pytest.approx(
        rate.predicted * low ** (1.28155 / 1.64485), rel=1e-4
    )
    assert rate.value_at_confidence >= 100
    assert all(margin.spare >= 0 for margin in margins.values())


def test_columns_of_limits_have_the_unit_of_their_name():
    """Below an upper bound and above the rate there is something to spare."""
    (size,) = planner.size(**SERVICE, request_rate=100, confidence=0.9).sizes
    row = next(iter(size.rows(0.9)))
    assert row["limit_time_to_first_token_s"] == 1
    assert row["limit_time_per_output_token_s"] == pytest.approx(0.04)
    assert row["limit_request_rate"] == 100
    for stem in ("time_to_first_token_s", "time_per_output_token_s"):
        assert row[stem] < row[f"sure_{stem}"] <= row[f"limit_{stem}"]
        assert row[f"spare_{stem}"] == pytest.approx(row[f"limit_{stem}"] - row[f"sure_{stem}"])
    assert row["capacity_requests_per_s"] > row["sure_request_rate"]
    spare = row["sure_request_rate"] - 100
    assert row["spare_request_rate"] == pytest.approx(spare)


@pytest.mark.slow
def test_surer_services_never_have_fewer_gpus():
    found = [
        planner.size(**SERVICE, request_rate=300, confidence=sure).sizes[0].fewest.num_gpus
        for sure in (0.5, 0.7, 0.95)
    ]
    assert all(less <= more for less, more in itertools.pairwise(found))
    assert found[0] < found[-1]


def test_a_service_that_no_gpu_holds_says_what_it_misses():
    asked = {**SERVICE, "constraints": {"time_to_first_token": "1ms"}}
    (size,) = planner.size(**asked, request_rate=10, confidence=0.9).sizes
    assert size.fewest is None
    assert size.reason.startswith("time to first token")
    assert "at 90 %" in size.reason


def test_with_other_gpus_for_prompts_the_cheapest_may_have_more():
    asked = {**SERVICE, "mode": "disaggregated", "gpu": "h200", "prefill_gpu": "h100"}
    (size,) = planner.size(**asked, request_rate=100).sizes
    assert size.cheapest.cost <= size.fewest.cost
    assert size.cheapest.num_gpus >= size.fewest.num_gpus


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("mode", "others", "bound"),
    [
        pytest.param("disaggregated", {"prefill_gpu": "a100"}, 0.3, marks=pytest.mark.slow),
        ("aggregated", {}, 0.2),
    ],
)
def test_what_is_predicted_for_one_contract_is_judged_for_all(mode, others, bound):
    """At 0.3 and 0.2 USD per million tokens spot GPUs serve what others cannot."""
    contracts = ["on-demand", "spot"]

    def table(contract):
        limits = {**SERVICE["constraints"], "cost_per_million_tokens": bound}
        asked = {**SERVICE, "mode": mode, "constraints": limits, "request_rate": 100, **others}
        asked["settings"] = {"tensor_parallel": 1, "pipeline_parallel": 1}
        found = planner.size(**asked, contract=contract, confidence=0.5).to_frame()
        return found.sort_values(["contract", "choice"]).reset_index(drop=True)

    together = table(contracts)
    alone = pd.concat([table(contract) for contract in contracts]).reset_index(drop=True)
    pd.testing.assert_frame_equal(together[alone.columns], alone, check_exact=True)
    assert {*together.contract[together.feasible]} == {"spot"}


@pytest.fixture
def write(tmp_path):
    def written(text):
        path = tmp_path / "day.csv"
        path.write_text(text)
        return path

    return written


def hourly(rates):
    return "hour,request_rate\n" + "".join(f"{hour},{rate}\n" for hour, rate in enumerate(rates))


def test_a_load_by_the_hour_and_by_the_clock(write):
    load = read_load(write(hourly(range(24))))
    assert load.peak == 23
    assert load.requests == 3600 * sum(range(24))
    clock = read_load(write("time,request_rate\n06:30,4\n00:00,1\n22:00,2\n"))
    assert [(one.clock, one.hours, one.request_rate) for one in clock.periods] == [
        ("00:00", 6.5, 1),
        ("06:30", 15.5, 4),
        ("22:00", 2, 2),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["no column request_rate"]),
        ("hour,request_rate\n", ["has no rows"]),
        ("hour,rate\n0,1\n", ["column 'rate' is unknown", "no column request_rate"]),
        ("hour,time,request_rate\n0,00:00,1\n", ["hour or time"]),
        ("request_rate\n1\n", ["hour or time"]),
        (
            "hour,request_rate\n0,many\n1,-3\n24,1\n2,2\n2,2\nx,inf\n",
            [
                "'many' is not a number",
                "-3 is negative",
                "'24'",
                "2 is also on line 5",
                "'x'",
                "inf",
            ],
        ),
        ("hour,request_rate\n0,1\n2,1\n", ["hour 1, 3, 4"]),
        ("time,request_rate\n06:00,1\n25:00,1\n", ["'25:00' is not HH:MM"]),
        ("time,request_rate\n06:00,1\n", ["first time is 00:00"]),
        (hourly([0] * 24), ["no requests"]),
    ],
)
def test_faults_of_a_load_are_told_at_once(write, text, words):
    with pytest.raises(SpecError) as error:
        read_load(write(text))
    assert all(word in str(error.value) for word in words), str(error.value)


def _hours(numbers, base=0):
    return tuple(
        DayPeriod(
            period=LoadPeriod(start=start, hours=24 / len(numbers), request_rate=1.0),
            num_gpus=number,
            base=base,
            capacity=2.0,
            paid=((24 / len(numbers), number),),
        )
        for start, number in enumerate(numbers)
    )


def test_the_base_by_hand():
    """8 h of 2, 4 and 10 GPUs: a GPU that works 16 h is worth 24 h at less than 2/3 the price."""
    hours = _hours([2, 4, 10])
    for base_price, base in ((0.5, 4), (0.65, 4), (0.67, 2), (0.9, 2), (1.2, 0), (0.3, 10)):
        terms = HourlyPrices(base=base_price, base_contract="r", hourly=1.0, hourly_contract="h")
        assert cheapest_base(hours, terms) == base, base_price
    cheap = HourlyPrices(base=0.5, base_contract="r", hourly=1.0, hourly_contract="h")
    assert day_cost(hours, 4, cheap) == pytest.approx(3600 * (4 * 24 * 0.5 + 6 * 8 * 1.0))
    one = HourlyPrices(base=1.0, base_contract="h", hourly=1.0, hourly_contract="h")
    assert cheapest_base(hours, one) == 2


@pytest.mark.parametrize("seed", range(5))
def test_no_other_base_costs_less(seed):
    random = np.random.default_rng(seed)
    hours = _hours(random.integers(1, 40, 24).tolist())
    terms = HourlyPrices(
        base=float(random.uniform(0.2, 1.2)), base_contract="r", hourly=1.0, hourly_contract="h"
    )
    best = cheapest_base(hours, terms)
    costs = [day_cost(hours, base, terms) for base in range(45)]
    assert day_cost(hours, best, terms) == pytest.approx(min(costs))


@pytest.mark.slow
def test_the_fleet_of_each_hour(write):
    path = write(hourly([3] * 5 + [20] * 3 + [60, 120, 120] + [173] * 5 + [60] * 4 + [20] * 4))
    asked = {**SERVICE, "confidence": 0.9}
    (size,) = planner.size(
        **asked,
        load=path,
        price="h100:reserved-1y=2,on-demand=2",
        contract=["reserved-1y", "on-demand"],
    ).sizes
    day = size.day
    row = day.peak.row
    alone = planner.size(**asked, request_rate=173).sizes[0].fewest
    assert size.fewest.num_gpus == alone.num_gpus
    source = planner.search(**asked, request_rate=173).recommended.source
    each = row["capacity_requests_per_s"] / row["replicas"]
    sure = each * confidence_factor(source, "request_rate", 0.9, -1)
    width = row["num_gpus"] // row["replicas"]
    for hour in day.hours:
        expected = max(1, math.ceil(hour.period.request_rate / sure - 1e-9)) * width
        assert hour.num_gpus == expected
        assert hour.capacity == pytest.approx(each * hour.num_gpus / width)
    # At a price of its own every contract costs the same: what never rests is held.
    assert day.base == min(hour.num_gpus for hour in day.hours)
    gpu_hours = sum(hour.num_gpus for hour in day.hours)
    assert day.gpu_hours == gpu_hours
    assert day.cost == pytest.approx(2 * gpu_hours)
    assert day.cost_at_peak == pytest.approx(2 * 24 * size.fewest.num_gpus)
    assert sum(one["cost_usd"] for one in day.rows()) == pytest.approx(day.cost)
    could = sum(hour.capacity for hour in day.hours)
    assert day.utilization == pytest.approx(sum(h.period.request_rate for h in day.hours) / could)


@pytest.mark.slow
def test_a_reserved_base_and_a_peak_by_the_hour(write):
    path = write(hourly([20] * 12 + [200] * 12))
    answer = planner.size(
        **{**SERVICE, "gpu": ["h100", "h200"]}, load=path, contract=["reserved-3y", "on-demand"]
    )
    for size in answer.feasible:
        day = size.day
        terms = day.terms
        assert terms.base_contract == "reserved-3y"
        assert terms.hourly_contract == "on-demand"
        costs = [day_cost(day.hours, base, terms) for base in range(day.peak.num_gpus + 1)]
        assert day.cost == pytest.approx(min(costs))
        assert day.commitment_cost == pytest.approx(3 * 365 * 24 * 3600 * day.base * terms.base)
    frame = answer.to_frame()
    assert len(frame) == 48
    assert (frame["base_gpus"] + frame["on_demand_gpus"] >= frame["num_gpus"]).all()
    text = answer.summary(full=True)
    assert "A day, by cost" in text
    assert "Hour by hour" in text


def test_pools_of_an_hour_are_no_more_than_those_of_a_busier_one(write):
    path = write(hourly([3, 22, 120] * 8))
    asked = {**SERVICE, "mode": "disaggregated", "confidence": 0.9}
    (size,) = planner.size(**asked, load=path).sizes
    by_rate = sorted({(h.period.request_rate, h.num_gpus) for h in size.day.hours})
    numbers = [number for _, number in by_rate]
    assert numbers == sorted(numbers)
    assert numbers[0] < numbers[-1] <= size.fewest.num_gpus


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"request_rate": 3}, "leave out request_rate"),
        ({"workload": "train", "engine": None}, "for requests"),
    ],
)
def test_a_load_is_of_a_service_without_another_rate(write, asked, word):
    path = write(hourly([1] * 24))
    plain = {"model": "llama-3.1-8b", "workload": "serve", "gpu": "h100"}
    with pytest.raises(SearchSpaceError, match=word):
        planner.size(**{**plain, **asked}, load=path)


def test_one_replica_has_no_size():
    asked = {"model": "llama-3.1-8b", "workload": "serve", "gpu": "h100", "request_rate": 500}
    with pytest.raises(SearchSpaceError, match="space serve_single is of one replica"):
        planner.size(**asked, space="serve_single")


def test_the_shipped_load_is_read_where_there_is_no_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert read_load(Path("day.csv")).peak == 50
    (tmp_path / "day.csv").write_text(hourly(range(24)))
    assert read_load(Path("day.csv")).peak == 23
    with pytest.raises(SpecError):
        read_load(tmp_path / "elsewhere" / "day.csv")


def test_a_rate_beyond_every_number_is_an_error_of_one_gpu():
    with pytest.raises((SearchSpaceError, InfeasibleError, SpecError)):
        planner.size(**{**SERVICE, "model": "no-such-model"}, request_rate=5)
