"""The GPUs that a run takes, against every number of GPUs searched on its own."""

import itertools
import re
from collections import Counter

import numpy as np
import pandas as pd
import pytest

import planner
from planner.base import formatting
from planner.base.units import DAY
from planner.decide.sizing.searches import evenly_spaced, node_multiples, spaced_by_doubling
from planner.errors import SearchSpaceError, SpecError
from planner.optimize.exhaustive import search_source
from planner.show.presenters.sizes import choice_columns

PREDICTED = {"confidence": 0.5}
RUN = {"model": "llama-7b", "framework": "megatron-lm", "space": "small"}
GPU = {"gpu": "a100-sxm-80gb"}
LIMITS = {"confidence": 0.9, "total_tokens": "100B"}


def sized(deadline="30d", **more):
    asked = {**RUN, **GPU, **LIMITS, "constraints": {"calendar_time": deadline}, **more}
    return planner.size(**asked)


def feasible(count, deadline, **more):
    asked = {**RUN, **GPU, **LIMITS, "constraints": {"calendar_time": deadline}, **more}
    return planner.search(**asked, num_gpus=count).configurations_feasible > 0


@pytest.fixture(scope="module")
def of_three():
    """GPUs of which one is too old."""
    return sized("13d", gpu=["t4", "a100", "h100"])


@pytest.mark.few(1)
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("deadline", ["60d", "13d", "5d", "2d"])
def test_no_number_below_the_fewest_is_enough(deadline, confidence):
    (size,) = sized(deadline, confidence=confidence).sizes
    counts = (1, 2, 4, *range(8, 384, 8))
    enough = (count for count in counts if feasible(count, deadline, confidence=confidence))
    assert size.fewest.num_gpus == next(enough)


@pytest.mark.few(1)
@pytest.mark.parametrize("batch", [96, 120, 1000])
def test_batches_that_powers_of_two_do_not_divide(batch):
    more = {"global_batch_size": batch}
    (size,) = sized("10d", **more).sizes
    counts = (1, 2, 4, *range(8, 256, 8))
    assert size.fewest.num_gpus == next(count for count in counts if feasible(count, "10d", **more))


def test_columns_of_a_deadline_are_in_days():
    (size,) = sized("13d").sizes
    row = next(iter(size.rows(0.9)))
    (margin,) = size.fewest.margins
    assert row["limit_calendar_time_days"] == pytest.approx(13) == margin.bound / DAY
    assert row["calendar_time_days"] < row["sure_calendar_time_days"] <= 13
    assert row["spare_calendar_time_days"] == pytest.approx(13 - row["sure_calendar_time_days"])
    assert margin.share == pytest.approx(row["spare_calendar_time_days"] / 13)


@pytest.mark.slow
def test_a_table_of_choices_has_a_column_for_each_limit_alone(of_three):
    rows = [next(iter(size.rows(0.9))) for size in of_three.sizes if size.fewest is not None]
    names = [column.name for column in choice_columns(rows)]
    counts = ["num_gpus", "num_gpus_predicted", "num_gpus_at_90"]
    names = [name for name in names if name != "choice"]  # one choice for each GPU
    assert names[:6] == ["rank", "gpu", *counts, "cost_usd"]
    assert names[-3:] == ["calendar_time", "least spare", "plan"]
    assert set(names[6:-3]) <= {"global_batch_size", "evidence_runs"}


def test_of_given_numbers_the_first_that_is_enough():
    (size,) = sized("13d", num_gpus=[24, 40, 48, 128]).sizes
    enough = [count for count in (24, 40, 48, 128) if feasible(count, "13d")]
    assert size.fewest.num_gpus == min(enough)
    assert set(size.tried) <= {24, 40, 48, 128}


@pytest.mark.slow
def test_who_is_surer_never_needs_fewer_gpus():
    asked = {"total_tokens": "20B"}
    sizes = [sized("10d", confidence=sure, **asked).sizes[0] for sure in (0.5, 0.7, 0.95)]
    found = [size.fewest.num_gpus for size in sizes]
    assert all(less <= more for less, more in itertools.pairwise(found))
    assert found[0] < found[-1]


@pytest.mark.slow
def test_a_longer_deadline_never_needs_more():
    asked = {"total_tokens": "20B"}
    found = [sized(f"{days}d", **asked).sizes[0].fewest.num_gpus for days in (2, 3, 12, 48)]
    assert all(more >= less for more, less in itertools.pairwise(found))
    assert found[0] > found[-1]


def test_the_margin_is_what_is_left_at_the_confidence(of_three):
    (size,) = (size for size in of_three.feasible if size.gpu == "a100-sxm-80gb")
    (margin,) = size.fewest.margins
    row = size.fewest.row
    assert margin.bound == 13 * DAY
    assert margin.predicted == pytest.approx(row["calendar_time_days"] * DAY)
    high = row["calendar_time_high_days"] / row["calendar_time_days"]
    # z(0.9) / z(0.95) of a table of the normal distribution.
    assert margin.value_at_confidence == pytest.approx(
        margin.predicted * high ** (1.28155 / 1.64485), rel=1e-4
    )
    assert margin.spare == pytest.approx(margin.bound - margin.value_at_confidence)
    assert margin.share == pytest.approx(margin.spare / margin.bound)
    assert 0 <= margin.spare < margin.bound
    assert size.fewest.tightest is margin


def test_the_cheapest_costs_no_more_than_the_fewest_and_keeps_the_limits(of_three):
    for size in of_three.feasible:
        assert size.cheapest.cost <= size.fewest.cost
        assert size.cheapest.num_gpus >= size.fewest.num_gpus
        assert all(margin.spare >= 0 for margin in size.cheapest.margins)


def test_the_cheapest_gpu_comes_first_and_what_cannot_last(of_three):
    sizes = of_three.sizes
    costs = [size.cheapest.cost for size in sizes[:2]]
    assert costs == sorted(costs)
    assert sizes[-1].gpu == "t4"
    assert sizes[-1].fewest is None
    assert "precision" in sizes[-1].reason


@pytest.mark.slow
@pytest.mark.parametrize("count", [144, 168, 336])
def test_a_budget_has_a_fastest_run_that_no_number_beats(count):
    asked = {**RUN, **GPU, **PREDICTED, "total_tokens": "100B", "price": 2.0}
    goal = {"objectives": ("calendar_time",)}
    runs = {
        number: planner.search(**asked, **goal, num_gpus=number).fastest
        for number in node_multiples(8, 512)
    }
    known = {
        number: (float(np.ravel(run.cost)[0]), float(np.ravel(run.calendar_time)[0]) / DAY)
        for number, run in runs.items()
        if run is not None
    }
    budget = 1.0001 * known[count][0]
    (size,) = planner.size(**asked, constraints={"cost": budget}).sizes
    assert size.fastest.row["calendar_time_days"] <= min(
        time for cost, time in known.values() if cost <= budget
    ) * (1 + 1e-9)
    assert size.fastest.cost <= budget
    assert size.fastest.num_gpus > size.fewest.num_gpus


def test_a_deadline_that_no_number_reaches_is_told_with_the_nearest():
    (size,) = sized("1h").sizes
    assert size.fewest is None
    assert "calendar time" in size.reason
    assert "at 90 %" in size.reason


@pytest.mark.slow
def test_the_limit_that_binds_is_told_at_the_number_that_comes_nearest():
    asked = {**RUN, **GPU, **PREDICTED, "total_tokens": "100B", "price": 2.0}
    days = {
        count: float(np.ravel(planner.search(**asked, num_gpus=count).fastest.calendar_time)[0])
        for count in (16, 32)
    }
    limits = {"calendar_time": "5d"}
    (size,) = planner.size(**asked, constraints=limits, num_gpus=[16, 32]).sizes
    told = formatting.format_duration(days[32])
    assert size.reason == f"calendar time {told} with 32 GPUs, above 5.00 days"
    (size,) = planner.size(**asked, constraints={"calendar_time": "1s"}).sizes
    (fastest,) = planner.size(**asked, constraints={"cost": 1e9}).sizes
    assert f"with {fastest.fastest.num_gpus:,} GPUs, above 1.00 s" in size.reason


@pytest.mark.slow
def test_a_budget_below_what_the_deadline_costs_is_the_reason():
    asked = {**RUN, **GPU, **PREDICTED, "total_tokens": "100B", "price": 2.0}
    (within,) = planner.size(**asked, constraints={"calendar_time": "13d"}).sizes
    limits = {"calendar_time": "13d", "cost": 10.0}
    (size,) = planner.size(**asked, constraints=limits).sizes
    found = re.fullmatch(
        r"cost ([\d,]+) USD with [\d,]+ GPUs, above 10.00 USD, where calendar time is kept",
        size.reason,
    )
    assert found
    # Of a budget the fastest plan is told, else the one to launch, which ties with it.
    assert float(found[1].replace(",", "")) == pytest.approx(within.cheapest.cost, rel=0.05)
    (size,) = planner.size(**asked, constraints=limits, num_gpus=within.fewest.num_gpus).sizes
    assert "where calendar time is kept" in size.reason
    limits["cost"] = 0.9999 * within.cheapest.cost
    (size,) = planner.size(**asked, constraints=limits).sizes
    assert "where calendar time is kept" in size.reason or size.fewest.cost <= limits["cost"]


def test_a_bound_that_is_missed_by_a_hair_is_told_so():
    asked = {**RUN, **GPU, **PREDICTED, "total_tokens": "100B", "num_gpus": 32}
    run = planner.search(**asked, objectives=("calendar_time",)).fastest
    seconds = float(np.ravel(run.calendar_time)[0])
    (size,) = planner.size(**asked, constraints={"calendar_time": f"{seconds - 1}s"}).sizes
    assert "GPUs, just above " in size.reason


@pytest.mark.slow
def test_whole_nodes_that_were_not_looked_at_are_told(of_three):
    asked = {**RUN, **GPU, "total_tokens": "400B"}
    sizes = planner.size(**asked, constraints={"calendar_time": "2d"})
    (size,) = sizes.sizes
    assert size.not_tried
    assert not set(size.not_tried) & set(size.tried)
    assert set(range(size.not_tried[-1] + 8, size.fewest.num_gpus, 8)) <= set(size.tried)
    told = " ".join(sizes.summary(full=True).split())
    assert f"{size.not_tried[0]:,} to {size.not_tried[-1]:,} GPUs, where the number" in told
    assert "Fewer GPUs may be enough" in told
    assert "Fewer GPUs may be enough" not in of_three.summary(full=True)


def test_memory_that_lacks_is_told():
    asked = {**RUN, "gpu": "rtx4070ti", "num_gpus": [4, 8], "model": "llama-65b"}
    (size,) = planner.size(**asked, constraints={"calendar_time": "900d"}).sizes
    assert "nothing fits with 8 GPUs" in size.reason
    assert "GiB needed" in size.reason


@pytest.mark.slow
def test_contracts_are_sized_one_by_one():
    sizes = sized("13d", gpu="h100", contract=["on-demand", "spot"])
    assert {size.contract for size in sizes.feasible} == {"on-demand", "spot"}
    prices = {size.contract: size.fewest.row["price_per_gpu_hour_usd"] for size in sizes.feasible}
    assert prices["spot"] < prices["on-demand"]
    # Spot GPUs are taken away now and then.
    times = {size.contract: size.fewest.row["calendar_time_days"] for size in sizes.feasible}
    assert times["spot"] > times["on-demand"]


def test_a_contract_without_a_price_is_told():
    sizes = sized("13d", gpu=["h100", "a800"], contract="spot")
    reasons = {size.gpu: size.reason for size in sizes.sizes}
    assert reasons["a800"] == "no spot price is known: give --price"
    assert not reasons["h100-sxm-80gb"]


def test_without_a_gpu_the_current_ones_of_data_centers_are_sized():
    names = {task.request.gpu for task in _tasks()}
    assert {"h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb"} <= names
    assert not {"rtx4090-24gb", "t4-16gb", "v100-sxm-32gb"} & names


def _tasks():
    from planner.decide.sizing.size_all import sizing_tasks
    from planner.workloads.build_request import make_request

    return sizing_tasks(make_request({**RUN, "constraints": {"cost": 1e6}}))


@pytest.mark.slow
def test_processes_find_what_one_finds():
    gpus = ["a100", "h100"]
    one, two = (sized("13d", gpu=gpus, workers=number) for number in (1, 2))
    # What is unknown is not equal to itself.
    assert repr(one.table) == repr(two.table)


@pytest.mark.few(1)
@pytest.mark.parametrize("bound", [{"calendar_time": "7.466d"}, {"cost": 40_000}])
def test_what_is_predicted_for_one_contract_is_judged_for_all(monkeypatch, bound):
    """Costs differ, which may be a limit; 32 spot GPUs, taken away, take 7.469 days for 7.463."""
    contracts = ["on-demand", "reserved-1y", "spot"]
    made = []

    def search(problem, takers, *others):
        made.append((takers[0][0].description, takers[0][0].counts))
        return search_source(problem, takers, *others)

    monkeypatch.setattr("planner.optimize.exhaustive.search_source", search)

    def table(contract):
        asked = {**RUN, **GPU, **LIMITS, "confidence": 0.5, "num_gpus": [16, 32, 64]}
        asked["campaign_factor"] = 1
        made.clear()
        return planner.size(**asked, constraints=bound, contract=contract).to_frame()

    alone, looked_at = [], set()
    for contract in contracts:
        alone.append(table(contract))
        looked_at |= {*made}
    every = pd.concat(alone).sort_values(["contract", "choice"]).reset_index(drop=True)
    together = table(contracts).sort_values(["contract", "choice"]).reset_index(drop=True)
    assert {*made} == looked_at
    assert max(Counter(made).values()) <= 2  # at the prediction, and with 90 %
    pd.testing.assert_frame_equal(together[every.columns], every, check_exact=True)
    fewest = together[together.choice.str.contains("fewest")].set_index("contract").num_gpus
    assert "cost" in bound or [*fewest[contracts]] == [32, 32, 64]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"constraints": {}}, ["calendar_time", "cost"]),
        ({"constraints": {"memory_headroom": "1GiB"}}, ["calendar_time"]),
        ({"confidence": 0.99}, ["0.95"]),
        ({"model": "llama-7b,llama-13b"}, ["one at a time"]),
        ({"objectives": "cost"}, ["leave out"]),
        ({"contract": "weekly"}, ["contract is one of"]),
        ({"gpu": "h100000"}, ["h100000"]),
    ],
)
def test_faults(asked, words):
    with pytest.raises((SearchSpaceError, SpecError)) as error:
        planner.size(**{**RUN, **GPU, **LIMITS, "constraints": {"calendar_time": "1d"}, **asked})
    assert all(word in str(error.value) for word in words)


def test_a_static_batch_has_no_size():
    with pytest.raises(SearchSpaceError, match="static batch"):
        planner.size(model="llama-7b", workload="inference", num_gpus=1)


def test_faults_are_told_at_once():
    with pytest.raises(SearchSpaceError) as error:
        planner.size(model=["llama-7b", "llama-13b"], workload="serve", num_gpus=8, confidence=0.99)
    assert len(str(error.value).splitlines()) == 4


def test_frames_and_reports_have_every_choice(of_three):
    sizes = of_three
    frame = sizes.to_frame()
    assert list(frame["feasible"]).count(False) == 1
    assert frame.loc[frame["feasible"], "spare_calendar_time_days"].ge(0).all()
    text, page = sizes.summary(full=True), sizes._repr_html_()
    for words in ("Cheapest:", "at 90 %", "to spare; predicted", "Not possible:"):
        assert words in " ".join(text.split())
    assert "<table>" in page
    assert "RECOMMENDED" in page
    assert max(map(len, text.splitlines())) <= 80
    assert max(map(len, sizes.summary(width=40).splitlines())) <= 60
    with pytest.raises(SearchSpaceError):
        sizes.summary(width=3)


def test_numbers_of_whole_nodes():
    found = node_multiples(8, None)
    assert found[:6] == (1, 2, 4, 8, 16, 24)
    assert found[-1] == 16_384
    assert 8 * 11 not in found
    assert 8 * 7 in found
    assert node_multiples(1, 6) == (1, 2, 3, 4, 5, 6)
    assert node_multiples(72, 150) == (1, 2, 4, 8, 16, 32, 64, 72, 144)


def test_grids_of_numbers():
    assert spaced_by_doubling((1, 2, 3, 4, 7, 9, 10)) == (1, 2, 4, 9, 10)
    assert evenly_spaced((1, 2, 3, 4, 5), 3) == (1, 3, 5)
    assert evenly_spaced((1, 2), 3) == (1, 2)
