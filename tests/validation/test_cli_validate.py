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
