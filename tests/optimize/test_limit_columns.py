"""How surely rows of results keep limits: the same as is told of one plan."""

from __future__ import annotations

import numpy as np
import pytest

import planner
from planner.optimize.problem import (
    joint_probability,
    limit_probability,
    limit_rows,
    with_rate_limit,
)
from planner.optimize.result_columns import full_columns
from planner.question.names import LIMITS_PROBABILITY
from planner.show.presenters.row_tables import with_limits


def searched(limits: dict[str, float], **asked: object):
    return planner.search(
        **{"workload": "serve", "model": "llama-3.1-8b", "gpu": "h100-sxm", "num_gpus": 2, **asked},
        constraints=limits,
    )


SERVED = {
    "time_to_first_token_p99": 1.0,
    "time_per_output_token": 0.02,
    "request_latency": 8.0,
    "cost_per_million_tokens": 0.5,
}


@pytest.mark.parametrize("name", SERVED)
def test_a_row_says_what_is_told_of_its_plan(name: str) -> None:
    result = searched({name: SERVED[name]}, input_tokens=1000, output_tokens=300)
    best, limits = result.recommended, with_rate_limit(result.problem.constraints, None)
    table = with_limits(full_columns(best.columns(), result.problem.sources), limits)
    told = {row["name"]: row["probability"] for row in limit_rows(best, limits)}
    assert table[LIMITS_PROBABILITY] == pytest.approx([float(joint_probability(told))], rel=1e-9)


def test_the_rate_that_is_asked_for_counts() -> None:
    result = searched({}, input_tokens=1000, output_tokens=300, request_rate=10.0)
    sources, best = result.problem.sources, result.recommended
    limits = with_rate_limit(result.problem.constraints, 10.0)
    (alone,) = (one for one in limits if one.name == "request_rate")
    table = full_columns(best.columns(), sources)
    assert with_limits(table, [alone])[LIMITS_PROBABILITY] == pytest.approx(
        [limit_probability(best, alone)]
    )
    (chance,) = with_limits(table, limits)[LIMITS_PROBABILITY]
    assert chance <= limit_probability(best, alone) + 1e-9


def test_days_and_dollars_are_compared_in_their_units() -> None:
    asked = {"workload": "train", "num_gpus": 64, "total_tokens": 1e11, "global_batch_size": 256}
    limits = {"time_to_train": 3 * 86400.0, "cost": 2e4}
    result = searched(limits, **asked)
    table = full_columns(result.table, result.problem.sources)
    found = with_limits(table, result.problem.constraints)[LIMITS_PROBABILITY]
    assert np.all((found >= 0.5) & (found <= 1))
    # The faster a row, the surer.
    order = np.argsort(table["time_to_train_days"])
    assert found[order[0]] > found[order[-1]]


def test_without_limits_there_is_no_column() -> None:
    assert with_limits({"num_gpus": [1]}, ()) == {"num_gpus": [1]}
