"""Reading tables of runs: every fault at once, with line and column."""

from pathlib import Path

import pytest
from sample_runs import row

from planner.errors import SpecError
from planner.validation.run_tables import SHIPPED, SHIPPED_INFERENCE, read_runs


def faults(path):
    with pytest.raises(SpecError) as caught:
        read_runs(path)
    return str(caught.value).replace(f"{path}:", "").splitlines()


def test_cells_are_kept_and_read(write_runs):
    runs = read_runs(write_runs(row(cooling="water", measured_step_time_s="1.5")))
    only = runs.rows[0]
    assert only.text("cooling") == "water"
    assert only.number("measured_step_time_s") == 1.5
    assert only.count("num_gpus") == 8
    assert only.flag("gated_mlp") is False
    assert (only.number("virtual_pipeline"), only.text("nothing")) == (None, "")
    assert runs.quantities == ("step_time_s",)


def test_whole_numbers_may_be_written_as_floats(write_runs):
    assert read_runs(write_runs(row(num_gpus="8.0"))).rows[0].count("num_gpus") == 8


def test_all_faults_are_told_together(write_runs):
    path = write_runs(
        row(num_gpus="eight", hidden_size="-4", measured_step_time_s="1"),
        row(zero_stage="7", sequence_parallel="2", measured_step_time_s="0.x"),
        row(num_gpus="2.5", sequence_length="0", year="inf", measured_step_time_s="1"),
    )
    told = faults(path)
    assert told[:2] == ["2: hidden_size -4 is negative.", "2: num_gpus 'eight' is not a number."]
    assert "3: measured_step_time_s '0.x' is not a number." in told
    assert "3: zero_stage 7 must be 0, 1, 2 or 3." in told
    assert "3: sequence_parallel 2 must be 0 or 1." in told
    assert "4: num_gpus 2.5 is not a whole number." in told
    assert "4: sequence_length 0 must be above 0." in told
    assert "4: year 'inf' is not a finite number." in told


def test_a_missing_column_is_named_with_a_close_one(write_runs):
    cells = row()
    cells["number_gpus"] = cells.pop("num_gpus")
    assert faults(write_runs(cells)) == [
        "1: the column num_gpus is missing. Did you mean number_gpus?"
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("framework,gpu,num_gpus,sequence_length\nx,y\n", "has 2 cells, not 4"),
        ("framework,gpu,gpu,num_gpus,sequence_length\n", "'gpu' is a duplicate"),
        ('framework,"gpu', "is not valid CSV"),
        ("\udcff\udcfe", "is not UTF-8 text"),
    ],
)
def test_broken_files_are_refused(tmp_path, content, said):
    path = tmp_path / "runs.csv"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(SpecError, match=said):
        read_runs(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(SpecError, match="cannot be read"):
        read_runs(tmp_path / "none.csv")


def test_a_table_without_rows_is_a_table(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("framework,gpu,num_gpus,sequence_length\n\n")
    assert read_runs(path).rows == ()


def test_every_shipped_run_has_a_citation_and_a_measurement(shipped):
    assert SHIPPED.is_file()
    names = [run.text("id") for run in shipped.rows]
    assert len(names) == len(set(names)) > 2000
    for run in shipped.rows:
        assert run.text("source")
        assert run.text("source_url").startswith("http")
        assert run.flag("calibration") is not None


def test_calibration_rows_are_those_of_few_sources(shipped):
    sources = {run.text("source") for run in shipped.rows if run.flag("calibration")}
    known = (
        "VIA-Research/vTrain",
        "llm-foundry",
        "NeMo 24.07",
        "MLPerf",
        "Qwen README",
        "fms-acceleration",
        "ms-swift",
    )
    assert all(source.startswith(known) for source in sources)
    assert all(any(source.startswith(name) for source in sources) for name in known)


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("gpu", "/etc/passwd"),
        ("gpu", "a/b"),
        ("gpu", "h100.toml"),
        ("gpu", "..\\h100"),
        ("model", "/etc/passwd"),
        ("model", "~/model"),
        ("model", "org/../../model"),
        ("framework", "./mine.toml"),
    ],
)
def test_a_path_in_a_cell_is_refused_with_row_and_column(write_runs, column, cell):
    (told,) = faults(write_runs(row(), row(**{column: cell})))
    assert told.startswith(f"3: {column} {cell!r} is a path; use a name of `planner specs list ")


def test_names_with_a_slash_are_no_paths(write_runs):
    rows = read_runs(write_runs(row(model="Qwen/Qwen3-32B", framework="HF Trainer/PEFT"))).rows
    assert rows[0].text("model") == "Qwen/Qwen3-32B"


def test_the_library_opens_no_file_for_a_gpu(tmp_path, library):
    path = tmp_path / "h100.toml"
    path.write_text("not a GPU")
    assert library.gpu(str(path)) is None


@pytest.mark.slow
def test_what_is_no_file_or_too_large_is_refused(tmp_path):
    with pytest.raises(SpecError, match="is not a regular file"):
        read_runs(tmp_path)
    with pytest.raises(SpecError, match="/dev/zero: is not a regular file"):
        read_runs(Path("/dev/zero"))
    large = tmp_path / "large.csv"
    with large.open("wb") as file:
        file.truncate(257 * 2**20)
    with pytest.raises(SpecError, match=r"large\.csv: is larger than 256 MiB"):
        read_runs(large)


def test_rows_that_begin_with_a_hash_explain(write_runs):
    runs = read_runs(write_runs(row(source="# where from"), row()))
    assert [run.line for run in runs.rows] == [3]


@pytest.mark.slow
def test_every_shipped_column_is_understood():
    for path in (SHIPPED, *SHIPPED_INFERENCE):
        assert read_runs(path).not_understood == ()
