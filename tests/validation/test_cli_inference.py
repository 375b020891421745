"""The command on tables of inference: recognized by their columns, tables, faults."""

import csv

import pytest
from sample_inference import DISAGGREGATED, row

from planner.__main__ import run


@pytest.fixture
def validate(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def command(*arguments):
        capsys.readouterr()
        exit_code = run(["validate", *map(str, arguments)])
        return exit_code, capsys.readouterr()

    return command


def test_tables_of_a_small_file(validate, write_runs):
    measured = {"measured_time_per_output_token_s": "0.01", "measured_output_tokens_per_s": "700",
                "measured_peak_memory_gib": "70", "measured_out_of_memory": "0"}  # fmt: skip
    path = write_runs(row(**measured), row(gpu="abacus", **measured))
    exit_code, printed = validate(path)
    assert exit_code == 0
    for text in ("Time per output token by source", "by engine", "by GPU", "by mode",
                 "Throughput by engine", "Peak memory", "MAPE", "unknown GPU abacus",
                 "Predicted: 1 of 2", "ran, said to run out"):  # fmt: skip
        assert text in printed.out
    assert max(map(len, printed.out.splitlines())) <= 80
    assert printed.err == ""


def test_a_table_of_serving(validate, write_runs, tmp_path):
    empty = {**dict.fromkeys(DISAGGREGATED, ""), "measured_time_to_first_token_s": ""}
    together = {"mode": "agg", "model": "llama-3-8b", "framework": "vllm", "concurrency": "8"}
    together |= {"gpu": "h100-sxm-80gb", "input_tokens": "512"}
    rows = (row(**empty | DISAGGREGATED), row(**empty | together))
    rows[1]["measured_time_to_first_token_s"] = "0.1"
    output = tmp_path / "predictions.csv"
    exit_code, printed = validate(write_runs(*rows), "--output", output, "--quiet")
    assert (exit_code, printed.out) == (0, "")
    with output.open(newline="") as file:
        first, second = csv.DictReader(file)
    for cells in (first, second):
        assert float(cells["predicted_time_to_first_token_s"]) > 0
        assert cells["not_predicted_reason"] == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"concurrency": "many"}, "concurrency 'many' is not a number"),
        ({"tensor_parallel": "1.5"}, "tensor_parallel 1.5 is not a whole number"),
        ({"input_tokens": "-1"}, "input_tokens -1 is negative"),
        ({"num_gpus": "0"}, "num_gpus 0 must be above 0"),
    ],
)
def test_faults_are_told_with_line_and_column(validate, write_runs, changes, said):
    exit_code, printed = validate(write_runs(row(**changes)))
    assert exit_code == 2
    assert f"2: {said}" in printed.err


def test_a_missing_column_is_named(validate, write_runs):
    cells = row()
    cells["modle"] = cells.pop("model")
    exit_code, printed = validate(write_runs(cells))
    assert exit_code == 2
    assert "the column model is missing. Did you mean modle?" in printed.err


def test_choices_for_a_run_are_told(validate, write_runs, tmp_path):
    cells = row(framework="vlmm", framework_version="", weight_precision="", output_tokens="")
    cells["measured_time_per_output_token_s"] = "0.01"
    cells["conurrency"] = cells.pop("concurrency")
    output = tmp_path / "predictions.csv"
    exit_code, printed = validate(write_runs(cells), "--output", output)
    assert exit_code == 0
    with output.open(newline="") as file:
        (only,) = csv.DictReader(file)
    told = only["assumed"].split("; ")
    assert told[0] == "framework 'vlmm' is not known: planner uses transformers. Did you mean vllm?"
    expected = {"weight_precision: w16a16", "concurrency 1", "output_tokens 128"}
    expected |= {"kv_cache_precision: bf16", "framework_version of transformers"}
    assert expected <= set(told)
    assert "framework 'vlmm' is not known" in printed.out
    assert "The column conurrency is not understood. Did you mean concurrency?" in printed.err


def test_nothing_to_compare_is_exit_5(validate, write_runs):
    exit_code, printed = validate(write_runs(row(measured_time_per_output_token_ms="10")))
    assert exit_code == 5
    assert "Did you mean measured_time_per_output_token_s" in printed.err
    assert "of 1 row 0 have a measurement and 1 can be predicted" in printed.err
