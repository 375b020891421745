"""Errors, coverage and regret of a small table, by hand."""

import pytest
from rich.console import Console
from sample_runs import row, run_of, runs_of

from planner.show.presenters.validation import reasons_blocks
from planner.show.terminal import print_blocks
from planner.validation.accuracy import (
    STEP_TIME,
    TRAINING_KIND,
    TRAINING_MEMORY,
    errors,
    joined,
    memory_verdicts,
    predict,
    ranges,
    regrets,
)
from planner.validation.run_tables import MEMORY, Prediction
from planner.validation.training.cases import training_case


def table(*changes):
    """Rows whose measurements are multiples of what is predicted for them."""
    plain = predict(runs_of(*(row(**change.get("cells", {})) for change in changes)))
    cells = []
    for change, found in zip(changes, plain, strict=True):
        measured = {
            "measured_step_time_s": _times(
                found.values.get("step_time_s", 0.0), change.get("time")
            ),
            "measured_tokens_per_s_per_gpu": _times(
                found.values.get("tokens_per_s", 0.0) / 8, change.get("speed")
            ),
            "measured_peak_memory_gib": _times(
                found.values.get("peak_memory_gib", 0.0), change.get("memory")
            ),
            "measured_out_of_memory": change.get("out", ""),
        }
        cells.append(row(**change.get("cells", {})) | measured)
    runs = runs_of(*cells)
    return joined(runs, predict(runs))


def _times(value, factor):
    return "" if factor is None else repr(value * factor)


def test_errors_of_step_time():
    rows = table({"time": 1 / 1.1}, {"time": 1 / 0.9}, {"speed": 1.3}, {"cells": {"gpu": "x"}})
    (found,) = (e for e in errors(rows, STEP_TIME, "source") if e.name == "a source")
    assert (found.rows, found.predicted) == (3, 3)
    assert found.mape == pytest.approx((0.1 + 0.1 + 0.3) / 3)
    assert found.median == pytest.approx(0.1)
    assert found.bias == pytest.approx(0.1)


def test_rows_without_prediction_are_counted():
    rows = table({"time": 1.0})
    lost = runs_of(row(gpu="abacus", measured_step_time_s="1"), rows[0].run.cells)
    (found,) = errors(joined(lost, predict(lost)), STEP_TIME, "source")
    assert (found.rows, found.predicted) == (2, 1)


def test_share_within_the_interval():
    rows = table({"time": 1.0}, {"time": 1.0}, {"time": 1.0}, {"time": 1000.0})
    assert errors(rows, STEP_TIME, "source")[0].within == pytest.approx(0.75)


def test_groups_end_with_all_rows():
    rows = table({"time": 1.0}, {"time": 2.0, "cells": {"source": "another"}})
    names = [found.name for found in errors(rows, STEP_TIME, "source")]
    assert names == ["a source", "another", "all"]


def test_regret_is_of_the_layout_we_would_pick():
    quick, slow = {"recompute": "none"}, {"recompute": "full"}
    right = table({"cells": quick, "time": 1.0}, {"cells": slow, "time": 1.0})
    assert regrets(right, STEP_TIME) == [0.0]
    times = [row.prediction.values["step_time_s"] for row in right]
    wrong = table({"cells": quick, "time": 2.0}, {"cells": slow, "time": 1.0})
    assert regrets(wrong, STEP_TIME) == [
        pytest.approx(2 * times[0] / min(times[1], 2 * times[0]) - 1)
    ]
    assert regrets(wrong, STEP_TIME)[0] > 0.3


def test_regret_needs_two_layouts_of_one_problem():
    other = {"cells": {"recompute": "full", "num_gpus": "16"}, "time": 1.0}
    assert regrets(table({"time": 1.0}, other), STEP_TIME) == []
    assert regrets(table({"time": 1.0}, {"time": 1.1}), STEP_TIME) == []


def test_errors_of_memory_and_verdicts():
    large = {"micro_batch_size": "512", "global_batch_size": "2048"}
    rows = table(
        {"memory": 0.5, "time": 1.0},
        {"out": "1"},
        {"out": "0", "time": 1.0, "cells": large},
        {"out": "1", "cells": large},
    )
    assert errors(rows, TRAINING_MEMORY, "source")[0].mape == pytest.approx(1.0)
    verdicts = memory_verdicts(rows)
    assert (verdicts.ran_out, verdicts.predicted_fit) == (2, 1)
    assert (verdicts.ran, verdicts.predicted_out_of_memory) == (2, 1)


def test_the_interval_of_a_rate_is_that_of_its_time_turned_over(library):
    (found,) = predict(runs_of(row()), library)
    values = ranges(found, TRAINING_KIND)
    time, rate = values["step_time_s"], values["tokens_per_s"]
    assert time.low / time.value != pytest.approx(time.value / time.high)
    assert rate.low / rate.value == pytest.approx(time.value / time.high)
    assert rate.high / rate.value == pytest.approx(time.value / time.low)


@pytest.mark.parametrize(
    ("probability", "fits", "expected"),
    [
        (0.99, True, (0, 0, 0)),
        (0.6, False, (0, 1, 1)),
        (0.01, False, (1, 1, 1)),
        (0.7, True, (0, 0, 1)),
    ],
)
def test_an_interval_holds_the_verdict_on_memory(library, probability, fits, expected):
    case = training_case(run_of(), library)
    found = Prediction(case=case, values={MEMORY: 1.0}, fit_probability=probability, fits=fits)
    out = ranges(found, TRAINING_KIND)["out_of_memory"]
    assert (out.low, out.value, out.high) == expected


def test_speeds_that_are_noise_by_their_sources_word_count_for_memory_alone(capsys):
    quick, slow = {"recompute": "none", "noisy": "1"}, {"recompute": "full", "noisy": "1"}
    sound = {"recompute": "full", "noisy": ""}
    rows = table(
        {"cells": quick, "time": 2.0, "memory": 1.25},
        {"cells": slow, "time": 1.0, "out": "1"},
        {"cells": sound, "time": 1 / 1.1},
    )
    (speed,) = errors(rows, STEP_TIME, "source")
    assert (speed.rows, speed.mape) == (1, pytest.approx(0.1))
    assert rows[0].held(STEP_TIME) is None
    assert regrets(rows, STEP_TIME) == []
    (memory,) = errors(rows, TRAINING_MEMORY, "source")
    assert (memory.rows, memory.mape) == (1, pytest.approx(0.2))
    assert memory_verdicts(rows).ran_out == 1
    print_blocks(Console(), reasons_blocks(rows))
    assert "2 rows are noisy according to the source" in capsys.readouterr().out
