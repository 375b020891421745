"""What is aimed at for sets of runs: each row of the table names runs and a known figure."""

from __future__ import annotations

import math

import accuracy_targets
import pytest
import target_sets
from accuracy_targets import Reached, reached


@pytest.fixture(scope="module")
def tables(shipped_tables):
    return shipped_tables


@pytest.fixture(scope="module")
def found(tables) -> list[Reached]:
    return reached(tables)


def test_every_target_is_of_some_runs(found) -> None:
    assert len(found) > 15
    assert all(one.rows > 5 and math.isfinite(one.reached) for one in found)


def test_a_pattern_leaves_out_other_runs(found) -> None:
    rows = {one.name: one.rows for one in found}
    assert rows["vTrain, one node"] == 900
    assert rows["vTrain, several nodes"] == 62
    assert rows["all training speed"] > 2000


def test_what_their_source_calls_noise_is_left_out(tables) -> None:
    names = ("source", "workload", "mode", "software", "kind", "rated")
    of_speed = {**dict.fromkeys(names, ""), "figure": "mean"}
    noisy = [row for row in tables[0] if "gpt2.md" in row.run.text("source")]
    assert len(noisy) == 8
    assert not any(accuracy_targets._belongs(of_speed, row) for row in noisy)
    of_memory = {**of_speed, "figure": "refused"}
    assert all(accuracy_targets._belongs(of_memory, row) for row in noisy)


def test_a_series_is_one_layout_with_equal_work(tables) -> None:
    (compared,) = (one for one in tables[0][0].kind.compared if one.interval == "step_time")
    few, many, other = (
        next(row for row in tables[0] if row.run.text("id") == name)
        for name in ("mlperf-0059", "mlperf-0056", "mlperf-0027")
    )
    # 64 and 1,024 GPUs, each with as many samples.
    speeds = [row.run.number("measured_tokens_per_s_per_gpu") for row in (few, many)]
    predicted = [row.ranges["tokens_per_s_per_gpu"].value for row in (few, many)]
    wanted = abs(predicted[1] / predicted[0] - speeds[1] / speeds[0])
    assert target_sets.scaling_gaps([few, many, other], compared) == [pytest.approx(wanted)]
    assert target_sets.scaling_gaps([few, other], compared) == []


def test_sets_that_are_no_tables_have_figures_too(found) -> None:
    named = {one.name: one for one in found}
    assert named["vendors' recipes"].rows == 106
    assert named["deployments"].reached <= 1 / named["deployments"].rows
    assert named["room for the cache"].is_met


def test_a_share_of_answers_is_to_be_large() -> None:
    values = {"name": "", "rows": 1, "reached": 0.95, "unfitted": 0.9, "target": 0.9}
    assert Reached(figure="answered", **values).is_met
    assert not Reached(figure="mean", **values).is_met
