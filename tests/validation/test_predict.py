"""Predictions: nothing measured is read, and no row depends on another."""

import csv
import math

import numpy as np
import pytest
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_runs import row, run_of, runs_of

from planner.show.presenters.validation import write_predictions
from planner.validation.accuracy import TRAINING_KIND, joined, predict, ranges
from planner.validation.run_tables import TRAINING, Run, Runs, read_runs
from planner.validation.training.cases import PREFERENCE


def only(**changes):
    return predict(runs_of(row(**changes)))[0]


def numbers(prediction):
    names = ("step_time_s", "tokens_per_s", "peak_memory_gib")
    return [prediction.values.get(name, math.nan) for name in names]


def step_time(prediction):
    return prediction.values["step_time_s"]


@pytest.fixture(scope="module")
def sample(shipped):
    """Every 60th shipped run: some of every kind."""
    return Runs(columns=shipped.columns, rows=shipped.rows[::60])


@pytest.fixture(scope="module")
def predictions(sample):
    return predict(sample)


def test_throughput_and_step_time_agree():
    found = only()
    values = ranges(found, TRAINING_KIND)
    per_gpu = values["tokens_per_s_per_gpu"].value
    assert per_gpu * 8 == pytest.approx(values["tokens_per_s"].value)
    assert per_gpu * 8 * step_time(found) == pytest.approx(64 * 2048)


@pytest.mark.slow
def test_measurements_are_never_read(sample, predictions):
    hidden = [
        {
            name: "" if name.startswith(("measured_", "reported_")) else cell
            for name, cell in run.cells.items()
        }
        for run in sample.rows
    ]
    absurd = [
        {name: "1" if name.startswith(("measured_", "reported_")) else cell
         for name, cell in run.cells.items()}
        for run in sample.rows
    ]  # fmt: skip
    rows = tuple(Run(line=0, cells=cells) for cells in (*hidden, *absurd))
    again = predict(Runs(columns=sample.columns, rows=rows))
    for one, other in zip(predictions * 2, again, strict=True):
        assert one.reason == other.reason
        np.testing.assert_array_equal(numbers(one), numbers(other))


@pytest.mark.slow
@settings(max_examples=examples(4, 3))
@given(seed=st.integers(0, 2**32 - 1))
def test_order_and_other_rows_change_nothing(sample, predictions, seed):
    chosen = np.random.default_rng(seed).permutation(len(sample.rows))[:25]
    part = Runs(columns=sample.columns, rows=tuple(sample.rows[index] for index in chosen))
    for index, found in zip(chosen, predict(part), strict=True):
        assert found.reason == predictions[index].reason
        np.testing.assert_allclose(numbers(found), numbers(predictions[index]), rtol=1e-12)


def test_an_open_field_lies_between_its_values():
    apart = [only(recompute=word) for word in ("none", "selective")]
    together = only(recompute="")
    speeds = np.array([found.values["tokens_per_s"] for found in apart])
    weights = speeds**PREFERENCE / np.sum(speeds**PREFERENCE)
    expected = np.exp(np.sum(weights * np.log([*map(step_time, apart)])))
    assert step_time(together) == pytest.approx(expected)
    assert min(map(step_time, apart)) <= step_time(together)
    assert step_time(together) <= max(map(step_time, apart))
    assert step_time(together) < step_time(only(recompute="full"))


def test_layouts_that_do_not_fit_do_not_count_where_others_do():
    large = {"micro_batch_size": "128", "global_batch_size": "512"}
    alone = {word: only(**large, recompute=word) for word in ("none", "full")}
    assert [alone["none"].fits, alone["full"].fits] == [False, True]
    assert step_time(only(**large, recompute="")) == pytest.approx(step_time(alone["full"]))


def test_kinds_of_memory_are_ordered():
    kinds = [numbers(only(memory_kind=kind))[2] for kind in ("allocated", "reserved", "device")]
    assert kinds == sorted(kinds)
    assert only(memory_kind="allocated").device_memory == kinds[-1] * 2**30


def test_columns_written(tmp_path):
    measured = {"measured_step_time_s": "2", "measured_peak_memory_gib": "", "measured_joy": "3",
                "measured_out_of_memory": "0", "colour": "red"}  # fmt: skip
    runs = runs_of(row(**measured), row(**{**measured, "gpu": "abacus"}))
    path = tmp_path / "predictions.csv"
    write_predictions(path, [(runs, joined(runs, predict(runs)))])
    with path.open(newline="") as file:
        good, bad = csv.DictReader(file)
    assert list(good)[: len(runs.columns)] == list(runs.columns)
    for quantity in ("step_time_s", "peak_memory_gib"):
        low, value, high = (
            float(good[f"predicted_{quantity}{end}"]) for end in ("_low", "", "_high")
        )
        assert low < value < high
    assert good["predicted_joy"] == ""
    assert good["predicted_out_of_memory"] == "0"
    assert (good["predicted_fits"], good["not_predicted_reason"]) == ("1", "")
    assert good["basis"] in ("measured", "transferred", "roofline")
    assert good["colour"] == "red"
    assert bad["not_predicted_reason"] == "unknown GPU abacus"
    assert {bad["predicted_step_time_s"], bad["predicted_fits"], bad["basis"]} == {""}


def test_predictions_can_be_validated_again(tmp_path):
    runs = runs_of(row(measured_step_time_s="2"))
    path = tmp_path / "predictions.csv"
    write_predictions(path, [(runs, joined(runs, predict(runs)))])
    again = read_runs(path)
    assert again.quantities == runs.quantities
    assert step_time(predict(again)[0]) == step_time(only())


def test_numbers_beyond_computing_have_a_reason():
    found = only(global_batch_size="1e300", num_hidden_layers="9999")
    assert found.reason or math.isfinite(step_time(found))
    assert only(num_gpus="1" + "0" * 300).reason.startswith("no layout")
    assert only(workload="lora", lora_rank="1000000").reason == (
        "impossible lora_rank: must be at most 100000"
    )


ODD = ["", "0", "1", "7", "0.5", "1e-9", "1e6", "1e18", "1e300", "none", "fp8", "nvfp4", "t5",
       "full", "a/b", "../x.toml", "h100-sxm-80gb", "tpu-v5e", "NeMo", "llama-7b", "-"]  # fmt: skip


PLACES = st.integers(0, 9_999)


@settings(max_examples=examples(60, 6))
@given(place=PLACES, odd=st.lists(st.tuples(PLACES, st.sampled_from(ODD)), min_size=1, max_size=4))
def test_odd_cells_are_predicted_or_have_a_reason(sample, library, place, odd):
    cells = dict(sample.rows[place % len(sample.rows)].cells)
    names = sorted(cells)
    for number, cell in odd:
        name = names[number % len(names)]
        cells[name] = cells[name] if TRAINING.cell_error(name, cell) else cell
    run = Run(line=2, cells=cells)
    (found,) = predict(Runs(columns=sample.columns, rows=(run,)), library)
    assert found.reason or all(0 < number < math.inf for number in numbers(found))


def test_a_row_knows_how_near_the_calibration_is():
    assert only(framework="megatron-deepspeed").basis == "measured"
    assert only(framework="Megatron-LM", context_parallel="2").basis == "transferred"
    assert only(gpu="mi300x-192gb", framework="something new").basis == "roofline"


def test_empty_tables_are_predicted():
    assert predict(Runs(columns=("gpu",), rows=())) == []
    assert run_of().line == 2
