"""Runs whose columns cannot be their layout are listed, and in no table of errors."""

from __future__ import annotations

import math

import pytest
from sample_runs import row, runs_of

from planner.validation.accuracy import IMPOSSIBLE, STEP_TIME, errors, joined, predict

MEASURED = "measured_step_time_s"


def test_an_impossible_layout_is_flagged_and_not_compared(library) -> None:
    odd = {"tensor_parallel": "7", "num_gpus": "7", "global_batch_size": "70"}
    runs = runs_of(row(**{MEASURED: "1"}), row(**{MEASURED: "1", **odd}))
    good, bad = joined(runs, predict(runs, library))
    assert not good.prediction.impossible
    assert "does not divide" in bad.prediction.impossible
    assert bad.prediction.basis == IMPOSSIBLE
    assert bad.ratio(STEP_TIME) is None
    assert bad.held(STEP_TIME) is None
    (found,) = errors([good, bad], STEP_TIME, "framework")
    assert (found.rows, found.predicted) == (1, 1)


def test_the_interval_score_is_the_width_and_what_is_missed(library) -> None:
    (one,) = joined(runs := runs_of(row()), predict(runs, library))
    found = one.ranges["step_time_s"]
    width = math.log(found.high / found.low)
    for measured, more in ((found.value, 0.0), (found.high * 1.1, 20 * math.log(1.1))):
        runs = runs_of(row(**{MEASURED: repr(measured)}))
        (one,) = joined(runs, predict(runs, library))
        assert one.interval_score(STEP_TIME) == pytest.approx(width + more)
