"""The facts of a sweep: each against what looking at every row gives."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest
from made import COUNTS, GPUS, plan_of, row_of, rows_of
from rows import each

from planner.confidence.intervals import probability_below, quantile
from planner.confidence.ranking import RankedPlan, are_plans_tied
from planner.sweeps.plan import work_questions
from planner.sweeps.summary import reason_mark, summarize
from planner.sweeps.summary_blocks import crossover_line, tie_lines, winner_lines

SPOTS = [*product(GPUS, COUNTS)]
PLAN = plan_of(gpu=GPUS, num_gpus=COUNTS)


def drawn(seed, share_without=0.2):
    draw = np.random.default_rng(seed)
    costs, times = draw.lognormal(0, 1, (2, len(SPOTS)))
    missing = draw.random(len(SPOTS)) < share_without
    return rows_of(
        {
            spot: None if none else (float(cost), float(time))
            for spot, cost, time, none in zip(SPOTS, costs, times, missing, strict=True)
        }
    )


def only_group(rows, plan=PLAN, **more):
    (group,) = summarize(rows, plan, **more).groups
    return group


@pytest.mark.parametrize("seed", range(8))
def test_the_best_are_those_of_all_rows(seed):
    rows = drawn(seed)
    group = only_group(rows)
    able = [row for row in rows if row["feasible"]]
    for measure, value in {
        "cost": lambda row: row["cost_usd"],
        "time": lambda row: row["time_to_train_days"],
        "value": lambda row: row["cost_usd"] * row["time_to_train_days"],
    }.items():
        best = min(able, key=value)
        assert group.best[measure]["scenario"] == best["scenario"]
        spot = group.best_spot(measure)
        assert spot == ((best["gpu"],), best["num_gpus"])
        for count in COUNTS:
            known = [row for row in able if row["num_gpus"] == count]
            winner = group.best_spot(measure, count)
            assert winner == (((min(known, key=value)["gpu"],), count) if known else None)
    assert (group.scenarios, group.feasible) == (len(rows), len(able))


@each("seed", range(8))
@each("measure", ["cost", "time"])
def test_overtakings_are_the_neighbours_where_the_order_of_two_changes(seed, measure):
    rows = drawn(seed)
    column = {"cost": "cost_usd", "time": "time_to_train_days"}[measure]
    value = {(r["gpu"], r["num_gpus"]): r[column] for r in rows if r["feasible"]}
    expected = set()
    for one, other in product(GPUS, GPUS):
        both = [n for n in COUNTS if (one, n) in value and (other, n) in value]
        for before, after in pairwise(both):
            lead = [value[one, n] - value[other, n] for n in (before, after)]
            if lead[0] < 0 < lead[1]:
                expected.add((one, other, before, after))
    found = only_group(rows).crossovers(measure)
    assert {(o.first[0], o.second[0], o.before, o.num_gpus) for o in found} == expected
    for one in found:
        ahead = value[one.first[0], one.num_gpus] / value[one.second[0], one.num_gpus] - 1
        assert one.ahead == pytest.approx(ahead)
        least = min(v for (_, count), v in value.items() if count == one.before)
        assert one.is_of_winners <= (value[one.first[0], one.before] == least)


def test_an_overtaking_is_told_with_what_each_is_ahead():
    costs = {"a100": (1.0, 1.0, 1.2), "b200": (2.0, 1.5, 1.0), "h100": (9.0, 9.0, 9.0)}
    rows = rows_of({(g, n): (costs[g][COUNTS.index(n)], 1.0) for g, n in SPOTS})
    group = only_group(rows)
    (one,) = group.crossovers("cost")
    assert one.is_of_winners
    assert crossover_line(one) == (
        "b200 is cheaper than a100 from 32 GPUs on (50 % behind with 16; 20 % ahead)"
    )
    assert winner_lines(group)[0] == "Cheapest by number of GPUs: a100 with 8 to 16, b200 with 32"


def test_contracts_are_never_weighed_against_each_other_in_overtakings():
    plan = plan_of(gpu=GPUS[:2], num_gpus=[8, 16], contract=["spot", "on-demand"])
    spots = [*product(GPUS[:2], [8, 16], ["spot", "on-demand"])]
    rows = []
    for number, (gpu, count, contract) in enumerate(spots):
        cost = (1.0 + ((gpu == "b200") ^ (count == 16))) * (0.9 if contract == "spot" else 1.0)
        rows.append(row_of(number, gpu, count, cost, 1.0, contract=contract))
    found = only_group(rows, plan).crossovers("cost")
    assert len(found) == 2
    assert all(one.first[1] == one.second[1] for one in found)


def test_what_fits_nowhere_has_its_reason():
    rows = rows_of({(g, n): None if g != "h100" or n == 8 else (1.0, 1.0) for g, n in SPOTS})
    rows[2]["reason"] = "cost: 5 USD against 3 USD"  # of a100 with the most GPUs
    assert only_group(rows).places_without_plan() == {
        "cost": [("a100",)],
        "out of memory": [("b200",)],
    }


def test_a_place_without_a_price_is_named():
    rows = rows_of({(g, n): (None if g == "b200" else 1.0, 1.0) for g, n in SPOTS})
    group = only_group(rows)
    assert group.unpriced == {("b200",)}
    assert group.best["time"]["gpu"] == "a100"


def test_of_the_fastest_the_cheapest_is_named():
    rows = rows_of({(g, n): (3.0 - (g == "b200"), 1.0) for g, n in SPOTS})
    assert only_group(rows).best["time"]["gpu"] == "b200"


def found(value, *, spread=1.1, kin="a", factor=1.2, time=1.0):
    return RankedPlan(value, value / spread, value * spread, value, (kin,), factor, time)


@pytest.mark.parametrize(
    ("one", "other", "is_tie"),
    [
        (found(1.0), found(1.19, time=2.0), True),  # layouts of the same GPU and software
        (found(1.0), found(1.21, time=2.0), False),
        (found(1.0), found(1.01), False),  # the same plan at another price
        (found(1.0), found(1.1 ** math.sqrt(2) - 1e-6, kin="b"), True),  # independent errors
        (found(1.0), found(1.1 ** math.sqrt(2) + 1e-6, kin="b"), False),
        (found(1.0), found(1.0, kin="b"), True),
        (found(1.0), RankedPlan(1.0001, error_group=("b",)), False),
    ],
)
def test_ties(one, other, is_tie):
    assert are_plans_tied(one, other) is are_plans_tied(other, one) is is_tie


def test_ties_with_the_best_are_named_with_their_counts():
    rows = rows_of({(g, n): (1.0 + (g == "h100"), n / 8) for g, n in SPOTS})
    rows[0]["cost_usd"] = 0.99
    group = only_group(rows)
    best = group.spots[("a100",), 8].best_by_measure["cost"]
    expected = {
        spot for spot, here in group.spots.items()
        if spot != (("a100",), 8) and are_plans_tied(best, here.best_by_measure["cost"])
    }  # fmt: skip
    assert set(group.ties("cost")) == expected
    assert tie_lines(group, "cost") == [
        "5 tied with the cheapest: a100 (16, 32); b200 (any number)"
    ]


def test_other_work_is_another_group():
    plan = plan_of(gpu=["a100"], total_tokens=["1T", "2T"], time_to_train=["9d", "8d"])
    rows = [row_of(n, "a100", 8, 1.0 + n, 1.0) for n in range(4)]
    summary = summarize(rows, plan)
    assert work_questions(plan.works[0]) == ("total_tokens", "time_to_train")
    assert [group.shared_answers["total_tokens"] for group in summary.groups] == [
        "1T",
        "1T",
        "2T",
        "2T",
    ]
    assert [group.best["cost"]["scenario"] for group in summary.groups] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("reason", "mark"),
    [
        ("out of memory: 9 GiB against 8 GiB", "m"),
        ("time to train: 9 days against 8 days", "l"),
        ("cost is unknown", "?"),
        ("sequence_length 9999 is beyond the model's", "x"),
    ],
)
def test_reasons_have_marks(reason, mark):
    assert reason_mark(reason) == mark


@each("confidence", [0.5, 0.6, 0.8, 0.95])
@each("ends", [(0.7, 1.8), (0.9, 1.01), (0.5, 3.0)])
def test_the_chance_is_the_inverse_of_the_quantile(confidence, ends):
    predicted = 40.0
    bound = predicted * quantile(ends, confidence, 1)
    found = probability_below(bound, predicted, (ends[0] * predicted, ends[1] * predicted))
    assert found == pytest.approx(confidence)
    low = predicted * quantile(ends, confidence, -1)
    found = probability_below(low, predicted, (ends[0] * predicted, ends[1] * predicted))
    assert found == pytest.approx(1 - confidence)


def test_the_chance_of_what_is_unknown_is_unknown():
    assert math.isnan(probability_below(math.nan, 1.0, (0.5, 2.0)))
    assert math.isnan(probability_below(1.0, 1.0, (0.0, math.inf)))
    assert probability_below(1.1, 1.0, (0.5, 0.9)) == 1.0
