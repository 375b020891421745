"""Published steps of reinforcement learning against what is predicted of them."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from planner.show.presenters.training_details import ASYNC_ACCURACY_NOTE
from planner.validation.accuracy import (
    RL_PHASES,
    RL_STEP,
    memory_verdicts,
)
from planner.validation.run_tables import SHIPPED_RL, TableKind, read_runs


@pytest.fixture(scope="module")
def rows(shipped_tables):
    runs = read_runs(SHIPPED_RL)
    assert runs.kind is TableKind.RL
    assert runs.not_understood == ()
    assert len(shipped_tables[3]) == len(runs.rows)
    return shipped_tables[3]


@pytest.mark.slow
def test_most_steps_are_predicted_about_right(rows):
    errors = [abs(ratio - 1) for row in rows if (ratio := row.ratio(RL_STEP)) is not None]
    assert len(errors) >= 65
    assert np.mean(errors) < 0.17


def test_steps_of_a_source_that_nothing_was_fitted_to(rows):
    errors = [
        abs(ratio - 1)
        for row in rows
        if row.run.text("publisher") in ("verl", "Relax")
        and (ratio := row.ratio(RL_STEP)) is not None
    ]
    assert len(errors) >= 8
    assert np.mean(errors) < 0.25


def test_phases_of_what_nothing_was_fitted_to(rows):
    """Generation and log-probabilities of both trainers, and what DTensor makes of 8B."""
    means = {
        phase.names[0]: np.mean(
            [abs(ratio - 1) for row in rows if (ratio := row.ratio(phase)) is not None]
        )
        for phase in RL_PHASES
    }
    assert means["generate_s"] < 0.2
    assert max(means.values()) < 0.3
    (update,) = [phase for phase in RL_PHASES if phase.names == ("update_s",)]
    of_dtensor = [
        row.ratio(update)
        for row in rows
        if row.run.text("framework") == "nemo-rl-dtensor"
        and row.run.text("model") == "llama-3.1-8b"
    ]
    assert of_dtensor == pytest.approx([1, 1], abs=0.1)


def test_what_ran_is_said_to_fit(rows):
    """No source tells a run out of memory that is predicted: those of engines' shares are not."""
    verdicts = memory_verdicts(rows)
    assert verdicts.ran >= 75
    assert verdicts.predicted_out_of_memory <= 1
    assert verdicts.ran_out >= 4


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


def test_the_memory_of_a_step(rows):
    (memory,) = [row for row in rows if row.run.number("measured_peak_memory_gib")]
    assert memory.prediction.device_memory / 2**30 == pytest.approx(
        memory.run.number("measured_peak_memory_gib"), rel=0.05
    )


def test_async_over_colocated_is_told_better_than_by_two_constants(rows):
    found = np.array([*pairs(rows)])
    assert len(found) >= 20
    off = np.abs(np.log(found[:, 1] / found[:, 0]))
    assert np.mean(off) < 0.15
    assert f"predicted within {np.mean(off):.0%} of".replace("%", " %") in ASYNC_ACCURACY_NOTE


def test_a_template_is_filled_in(planner, tmp_path):
    path, output = tmp_path / "steps.csv", tmp_path / "out.csv"
    assert planner("validate", "--template", "rl", "--output", path).exit_code == 0
    ran = planner("validate", path, "--output", output)
    assert ran.exit_code == 0, ran.err
    (row,) = csv.DictReader(output.read_text(encoding="utf-8").splitlines())
    assert float(row["predicted_step_time_s"]) > 0
