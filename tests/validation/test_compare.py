"""Errors, coverage and regret of a small table, by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_runs import row, runs_of

from planner.validation.compare import (
    joined,
    memory_errors,
    memory_verdicts,
    regrets,
    time_errors,
)
from planner.validation.intervals import conformal_factors
from planner.validation.predict import predict


def table(*changes):
    """Rows whose measurements are multiples of what is predicted for them."""
    plain = predict(runs_of(*(row(**change.get("cells", {})) for change in changes)))
    cells = []
    for change, found in zip(changes, plain, strict=True):
        measured = {
            "measured_step_time_s": _times(found.step_time, change.get("time")),
            "measured_tokens_per_s_per_gpu": _times(
                found.tokens_per_second / 8, change.get("speed")
            ),
            "measured_peak_memory_gib": _times(found.memory / 2**30, change.get("memory")),
            "measured_out_of_memory": change.get("out", ""),
        }
        cells.append(row(**change.get("cells", {})) | measured)
    runs = runs_of(*cells)
    return joined(runs, predict(runs))


def _times(value, factor):
    return "" if factor is None else repr(value * factor)


def test_errors_of_step_time():
    rows = table({"time": 1 / 1.1}, {"time": 1 / 0.9}, {"speed": 1.3}, {"cells": {"gpu": "x"}})
    (errors,) = (e for e in time_errors(rows, "source") if e.name == "a source")
    assert (errors.rows, errors.predicted) == (3, 3)
    assert errors.mape == pytest.approx((0.1 + 0.1 + 0.3) / 3)
    assert errors.median == pytest.approx(0.1)
    assert errors.bias == pytest.approx(0.1)


def test_rows_without_prediction_are_counted():
    rows = table({"time": 1.0})
    lost = runs_of(row(gpu="abacus", measured_step_time_s="1"), rows[0].run.cells)
    errors = time_errors(joined(lost, predict(lost)), "source")[0]
    assert (errors.rows, errors.predicted) == (2, 1)


def test_share_within_the_interval():
    rows = table({"time": 1.0}, {"time": 1.0}, {"time": 1.0}, {"time": 1000.0})
    assert time_errors(rows, "source")[0].within == pytest.approx(0.75)


def test_groups_end_with_all_rows():
    rows = table({"time": 1.0}, {"time": 2.0, "cells": {"source": "another"}})
    names = [errors.name for errors in time_errors(rows, "source")]
    assert names == ["a source", "another", "all"]


def test_regret_is_of_the_layout_we_would_pick():
    quick, slow = {"recompute": "none"}, {"recompute": "full"}
    right = table({"cells": quick, "time": 1.0}, {"cells": slow, "time": 1.0})
    assert regrets(right) == [0.0]
    times = [row.prediction.step_time for row in right]
    wrong = table({"cells": quick, "time": 2.0}, {"cells": slow, "time": 1.0})
    assert regrets(wrong) == [pytest.approx(2 * times[0] / min(times[1], 2 * times[0]) - 1)]
    assert regrets(wrong)[0] > 0.3


def test_regret_needs_two_layouts_of_one_problem():
    other = {"cells": {"recompute": "full", "num_gpus": "16"}, "time": 1.0}
    assert regrets(table({"time": 1.0}, other)) == []
    assert regrets(table({"time": 1.0}, {"time": 1.1})) == []


def test_errors_of_memory_and_verdicts():
    large = {"micro_batch_size": "512", "global_batch_size": "2048"}
    rows = table(
        {"memory": 0.5, "time": 1.0},
        {"out": "1"},
        {"out": "0", "time": 1.0, "cells": large},
        {"out": "1", "cells": large},
    )
    assert memory_errors(rows, "source")[0].mape == pytest.approx(1.0)
    verdicts = memory_verdicts(rows)
    assert (verdicts.ran_out, verdicts.said_to_fit) == (2, 1)
    assert (verdicts.ran, verdicts.said_to_run_out) == (2, 1)


def test_conformal_ranks_of_few_runs():
    residuals = np.log(np.arange(1.0, 40.0))
    low, high = conformal_factors(residuals, 0.9)
    assert (low, high) == (pytest.approx(2.0), pytest.approx(38.0))
    assert conformal_factors(residuals[:5], 0.9) == (0.0, math.inf)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(20, 200), skew=st.floats(0, 2))
def test_conformal_intervals_hold_new_runs(seed, size, skew):
    random = np.random.default_rng(seed)
    drawn = random.normal(size=(400, size + 1))
    drawn = drawn + skew * drawn**2
    held = [
        low <= math.exp(one[-1]) <= high
        for one in drawn
        for low, high in [conformal_factors(one[:-1], 0.9)]
    ]
    assert np.mean(held) > 0.9 - 4 * math.sqrt(0.09 / 400)


def test_a_source_counts_once_however_many_runs_it_has():
    many, few = [0.0] * 100, [math.log(2)] * 2
    weights = [1 / 100] * 100 + [1 / 2] * 2
    _, plain = conformal_factors([*many, *few], 0.9, new_weight=0.0)
    _, balanced = conformal_factors([*many, *few], 0.9, weights, new_weight=0.0)
    assert (plain, balanced) == (pytest.approx(1.0), pytest.approx(2.0))
