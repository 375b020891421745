"""What is aimed at for sets of runs: each row of the table names runs and a known figure."""

from __future__ import annotations

import math

import accuracy_targets
import pytest
from accuracy_targets import Reached, reached
from make_accuracy import shipped_rows


@pytest.fixture(scope="module")
def tables():
    return shipped_rows()


def test_every_target_is_of_some_runs(tables) -> None:
    found = reached(tables)
    assert len(found) > 15
    assert all(one.rows > 5 and math.isfinite(one.reached) for one in found)


def test_a_pattern_leaves_out_other_runs(tables) -> None:
    rows = {one.name: one.rows for one in reached(tables)}
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


def test_a_share_of_answers_is_to_be_large() -> None:
    values = {"name": "", "rows": 1, "reached": 0.95, "unfitted": 0.9, "target": 0.9}
    assert Reached(figure="answered", **values).is_met
    assert not Reached(figure="mean", **values).is_met
