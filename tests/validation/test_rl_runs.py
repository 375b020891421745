"""Published steps of reinforcement learning against what is predicted of them."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from planner.validation.compare import RL_STEP, joined, predict
from planner.validation.runs import SHIPPED_RL, TableKind, read_runs


@pytest.fixture(scope="module")
def rows():
    runs = read_runs(SHIPPED_RL)
    assert runs.kind is TableKind.RL
    assert runs.not_understood == ()
    return joined(runs, predict(runs))


def test_most_steps_are_predicted_about_right(rows):
    errors = [abs(ratio - 1) for row in rows if (ratio := row.ratio(RL_STEP)) is not None]
    assert len(errors) >= 60
    assert np.mean(errors) < 0.25


def test_steps_of_a_source_that_nothing_was_fitted_to(rows):
    errors = [
        abs(ratio - 1)
        for row in rows
        if not row.run.flag("calibration")
        and row.run.text("publisher") == "verl"
        and (ratio := row.ratio(RL_STEP)) is not None
    ]
    assert len(errors) >= 5
    assert np.mean(errors) < 0.25


def test_intervals_hold_nine_of_ten(rows):
    held = [inside for row in rows if (inside := row.held(RL_STEP)) is not None]
    assert np.mean(held) >= 0.88


def pairs(rows):
    """Async over colocated steps of one release, model, GPU and precision, per GPU."""
    names = ("source", "model", "gpu", "rollout_quantization", "algorithm")
    known = [row for row in rows if row.ratio(RL_STEP) is not None]
    for one in known:
        for other in known:
            same = all(one.run.text(name) == other.run.text(name) for name in names)
            if same and (one.run.text("placement"), other.run.text("placement")) == (
                "async",
                "colocated",
            ):
                gpus = other.run.count("num_gpus") / one.run.count("num_gpus")
                measured = other.measured["step_time_s"] / one.measured["step_time_s"] * gpus
                values = [each.prediction.values["step_time_s"] for each in (other, one)]
                yield measured, values[0] / values[1] * gpus


def test_async_over_colocated_is_told_about_as_well_as_by_two_constants(rows):
    found = np.array([*pairs(rows)])
    assert len(found) >= 20
    assert np.median(np.abs(np.log(found[:, 1] / found[:, 0]))) < 0.15


def test_a_template_is_filled_in(planner, tmp_path):
    path, output = tmp_path / "steps.csv", tmp_path / "out.csv"
    assert planner("validate", "--template", "rl", "--output", path).exit_code == 0
    ran = planner("validate", path, "--output", output)
    assert ran.exit_code == 0, ran.err
    (row,) = csv.DictReader(output.read_text(encoding="utf-8").splitlines())
    assert float(row["predicted_step_time_s"]) > 0
