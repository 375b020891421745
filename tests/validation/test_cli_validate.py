"""The command: tables, predictions file, errors."""

import csv

import pytest
from sample_runs import row

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
    path = write_runs(row(measured_step_time_s="1"), row(gpu="abacus", measured_step_time_s="1"))
    exit_code, printed = validate(path)
    assert exit_code == 0
    for text in ("Step time by source", "by framework", "by GPU", "by workload", "MAPE",
                 "Not predicted", "unknown GPU abacus", "Predicted: 1 of 2"):  # fmt: skip
        assert text in printed.out
    assert max(map(len, printed.out.splitlines())) <= 80
    assert printed.err == ""


def test_the_file_of_predictions(validate, write_runs, tmp_path):
    output = tmp_path / "predictions.csv"
    exit_code, printed = validate(
        write_runs(row(measured_step_time_s="1")), "--output", output, "--quiet"
    )
    assert (exit_code, printed.out) == (0, "")
    with output.open(newline="") as file:
        (only,) = csv.DictReader(file)
    assert float(only["predicted_step_time_s"]) > 0


def test_predictions_to_stdout_leave_the_tables_on_stderr(validate, write_runs):
    exit_code, printed = validate(write_runs(row(measured_step_time_s="1")), "--output", "-")
    assert exit_code == 0
    assert printed.out.startswith("source,")
    assert "Step time" not in printed.out
    assert "Step time" in printed.err


def test_a_faulty_file_is_refused_with_nothing_written(validate, write_runs, tmp_path):
    output = tmp_path / "predictions.csv"
    exit_code, printed = validate(write_runs(row(num_gpus="many")), "--output", output)
    assert exit_code == 2
    assert "num_gpus 'many' is not a number" in printed.err
    assert not output.exists()


def test_an_output_that_cannot_be_written(validate, write_runs, tmp_path):
    exit_code, printed = validate(write_runs(row()), "--output", tmp_path / "no" / "where.csv")
    assert exit_code == 8
    assert "no folder" in printed.err


def test_a_column_that_is_not_understood_is_no_measurement(validate, write_runs, tmp_path):
    output = tmp_path / "predictions.csv"
    path = write_runs(row(measured_step_time_ms="1000", cooling="water"))
    exit_code, printed = validate(path, "--output", output, "--quiet")
    assert exit_code == 5
    told = printed.err.splitlines()
    assert told[0].startswith(
        "The column measured_step_time_ms is not understood. Did you mean measured_step_time_s"
    )
    assert told[1] == "The column cooling is not understood."
    assert "of 1 row 0 have a measurement and 1 can be predicted" in printed.err
    assert output.is_file()


def test_measurements_that_are_not_predicted_are_exit_5(validate, write_runs):
    exit_code, printed = validate(write_runs(row(gpu="abacus", measured_step_time_s="1")))
    assert exit_code == 5
    assert "1 have a measurement and 0 can be predicted" in printed.err


def test_choices_for_a_run_are_told_on_screen_and_in_the_file(validate, write_runs, tmp_path):
    output = tmp_path / "predictions.csv"
    open_row = row(
        framework="megatorn", precision="", gpu="h100-sxm-80gb", measured_step_time_s="1"
    )
    path = write_runs(open_row, row(measured_step_time_s="1"))
    exit_code, printed = validate(path, "--output", output)
    assert exit_code == 0
    with output.open(newline="") as file:
        first, second = (cells["assumed"].split("; ") for cells in csv.DictReader(file))
    unknown = "framework 'megatorn' is not known: planner uses megatron-lm."
    assert first[0].startswith(f"{unknown} Did you mean megatron-lm")
    assert "precision bf16 or fp8" in first
    assert not any(text.startswith(("framework", "precision")) for text in second)
    assert "2  model 'tiny' is made of the row's columns" in printed.out
    assert "1  precision bf16 or fp8" in printed.out


@pytest.mark.parametrize(
    ("framework", "told"),
    [
        ("Primus", "framework Primus: megatron-lm is the closest profile"),
        ("llm-foundry", None),
        ("Composer", "framework 'Composer' is assumed to be llm-foundry"),
        ("", "framework is not specified: planner uses megatron-lm."),
    ],
)
def test_what_stands_in_for_a_framework_is_told(validate, write_runs, tmp_path, framework, told):
    output = tmp_path / "predictions.csv"
    path = write_runs(row(framework=framework, measured_step_time_s="1"))
    validate(path, "--output", output, "--quiet")
    with output.open(newline="") as file:
        (only,) = csv.DictReader(file)
    first = only["assumed"].split("; ")[0]
    assert (first if "framework" in first else None) == told


def test_a_file_of_predictions_is_read_again(validate, write_runs, tmp_path):
    output = tmp_path / "predictions.csv"
    validate(write_runs(row(measured_step_time_s="1")), "--output", output, "--quiet")
    assert validate(output, "--quiet") == (0, ("", ""))


@pytest.mark.security
def test_a_cell_is_no_formula_of_a_spreadsheet(validate, write_runs, tmp_path):
    output = tmp_path / "predictions.csv"
    odd = {"id": "=1+1", "source": "a, b\x1b[31m", "offset": "-5", "measured_step_time_s": "1"}
    validate(write_runs(row(**odd)), "--output", output, "--quiet")
    with output.open(newline="") as file:
        (only,) = csv.DictReader(file)
    assert (only["id"], only["offset"]) == ("'=1+1", "-5")
    assert only["source"].startswith("a, b")
    assert "\x1b" not in only["source"]
