"""Scaling efficiency of a search and of a sweep: throughput per GPU over that of the fewest."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from planner import Request, search
from planner.optimize.result import FewestGpus


def test_rows_are_told_beside_the_fewest_gpus_of_the_same_answers() -> None:
    rows = [
        ("a", {"num_gpus": 16, "tokens_per_s_per_gpu": 90.0, "step_time_s": 1.0}),
        ("a", {"num_gpus": 8, "tokens_per_s_per_gpu": 100.0, "step_time_s": 2.0}),
        ("b", {"num_gpus": 32, "tokens_per_s_per_gpu": 50.0, "step_time_s": 3.0}),
        ("b", {"num_gpus": 8, "feasible": False}),
    ]
    fewest = FewestGpus(rows)
    found = [fewest.scaled(key, row)["scaling_efficiency"] for key, row in rows]
    assert found == [0.9, 1.0, 1.0, None]


@pytest.fixture(scope="module")
def several():
    return search(base=Request(
        workload="train", model="llama-7b", gpu="a100-sxm-80gb", num_gpus=(8, 64),
        framework="fsdp",
    ))  # fmt: skip


def test_a_search_of_several_counts_has_the_column(several) -> None:
    rows = several.comparisons["num_gpus"].table
    per_gpu = dict(zip(rows["num_gpus"], rows["tokens_per_s_per_gpu"], strict=True))
    frame = several.to_frame()
    expected = frame["tokens_per_s_per_gpu"] / per_gpu[8]
    assert frame["scaling_efficiency"].to_numpy() == pytest.approx(expected.to_numpy())
    scaled = several.scaled(rows)
    found = dict(zip(scaled["num_gpus"], scaled["scaling_efficiency"], strict=True))
    assert found[8] == 1
    assert 0.9 < found[64] < 1


def test_one_count_and_several_gpus_have_no_column() -> None:
    request = Request(workload="train", model="llama-7b", framework="fsdp", num_gpus=8)
    alone = search(base=request, gpu="a100-sxm-80gb")
    mixed = search(base=request, gpu=("a100-sxm-80gb", "h100-sxm-80gb"), num_gpus=(8, 16))
    assert "scaling_efficiency" not in alone.to_frame()
    assert "scaling_efficiency" not in mixed.to_frame()


def test_files_of_a_search_and_of_a_sweep_have_the_column(planner, tmp_path: Path) -> None:
    asked = ["--model", "llama-7b", "--framework", "fsdp", "--gpus", "8,64", "--quiet"]
    gpus = ["--gpu", "a100-sxm-80gb"]
    files = ["--csv", str(tmp_path / "rows.csv"), "--json", str(tmp_path / "rows.json")]
    assert planner("search", *asked, *gpus, *files).exit_code == 0
    document = json.loads((tmp_path / "rows.json").read_text())
    by_count = {
        row["num_gpus"]: row["scaling_efficiency"]
        for row in document["comparisons"]["num_gpus"]["rows"]
    }
    assert by_count[8] == 1
    folder = tmp_path / "sweep"
    assert planner("sweep", *asked, *gpus, "--output", folder).exit_code == 0
    with (folder / "scenarios.csv").open() as lines:
        rows = [*csv.DictReader(lines)]
    swept = {int(row["num_gpus"]): float(row["scaling_efficiency"]) for row in rows}
    assert swept[8] == 1
    assert swept[64] == pytest.approx(by_count[64])
