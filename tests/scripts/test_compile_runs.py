"""The tables of runs that ship are what the script makes of them."""

import csv

import pytest
from compile_runs import AS_PUBLISHED, compiled, original

from planner.validation.run_tables import SHIPPED, SHIPPED_INFERENCE, Run
from planner.validation.spec_library import Library

SERVING = SHIPPED_INFERENCE[1]


@pytest.fixture(scope="module")
def library():
    return Library()


@pytest.mark.few(1)
@pytest.mark.parametrize("path", [SHIPPED, *SHIPPED_INFERENCE], ids=lambda path: path.stem)
def test_running_it_again_changes_nothing(library, path):
    same = compiled(path, library) == path.read_text(encoding="utf-8")
    assert same, "run scripts/compile_runs.py"


def test_cells_that_were_changed_are_made_again(library, tmp_path):
    with SERVING.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    place = header.index(AS_PUBLISHED)
    row = next(row for row in rows if "tensor_parallel=64.0" in row[place])
    column = header.index("tensor_parallel")
    wrong = [*row[:column], "3", *row[column + 1 : place + 1], *[""] * (len(row) - place - 1)]
    path = tmp_path / "runs.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, wrong])
    path.write_text(text := compiled(path, library), encoding="utf-8")
    (made,) = csv.DictReader(text.splitlines())
    assert made == {name: cell for name, cell in zip(header, row, strict=True) if name in made}
    assert made["tensor_parallel"] == "8"
    assert compiled(path, library) == text


def _drafted():
    """Drafts of the runs on GB300 of one setup that has a file with drafts and one without."""
    with SERVING.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    same = {
        "framework": "trtllm", "gpu": "gb300-nvl72", "input_tokens": "1024",
        "output_tokens": "1024", "mode": "disagg",
    }  # fmt: skip
    return [row for row in rows if all(row[name] == word for name, word in same.items())]


@pytest.mark.parametrize(
    ("precision", "concurrency", "drafts"), [("fp4", "12.0", "3"), ("fp4", "5.0", "0")]
)
def test_the_database_alone_tells_which_of_two_runs_drafts(precision, concurrency, drafts):
    """It has none of the second pair, of which none is taken to draft."""
    found = {
        (row["draft_tokens"], row["measured_time_per_output_token_s"][:6])
        for row in _drafted()
        if row["weight_precision"] == precision
        and row["concurrency"] == concurrency
        and row["decode_tensor_parallel"] == "8.0"
    }
    times = {"12.0": ("0.0035", "0.0064"), "5.0": ("0.0030", "0.0056")}
    assert found == {(drafts, times[concurrency][0]), ("0", times[concurrency][1])}


def test_runs_of_the_database_do_not_draft():
    rows = [row for row in _drafted() if row["source"].startswith("db-dump")]
    assert {row["draft_tokens"] for row in rows} <= {"", "0"}
    assert rows


def test_what_a_source_gives_is_kept():
    cells = {"id": "1", "mode": "disagg", "note": "", AS_PUBLISHED: "mode=online; note=a=b"}
    found = original(Run(line=3, cells=cells), ("id", "mode", "note"))
    assert found.cells == {"id": "1", "mode": "online", "note": "a=b"}
