"""``planner max-batch`` and ``planner max-length``."""

from __future__ import annotations

import csv
import json

import pytest

TRAINING = (
    *("--model", "llama-65b", "--gpus", "2048", "--framework", "megatron-bridge"),
    *("--global-batch-size", "8192"),
)
LAYOUT = ("--set", "tp=8", "--set", "sp=true", "--set", "zero=1")
SMALL = ("--model", "llama-7b", "--gpus", "8", "--space", "small")
SERVED = (
    *("--workload", "serve", "--model", "llama-3.1-70b", "--gpu", "h200", "--gpus", "8"),
    *("--input-tokens", "4000", "--output-tokens", "1000", "--set", "tp=4"),
)


def test_the_largest_micro_batch_is_told_with_the_next(planner):
    done = planner("max-batch", *TRAINING, *LAYOUT)
    assert done.exit_code == 0
    assert done.out.startswith("May fit up to micro batch size 8 (the plan has 1): peak ")
    assert "% likely); 90 % likely up to 4." in " ".join(done.out.split())
    assert "micro batch size 16: the fullest GPU needs more memory" in done.out
    assert "8*" in done.out


def test_the_largest_likely_length_is_told_where_the_largest_is_not_sure(planner):
    lengths = ("max-length", "--model", "llama-3.1-8b", "--gpus", "8", "--gpu", "h100", "--json")
    (fit,) = json.loads(planner(*lengths, "-", "--quiet").out)["largest"]
    chances = {row["sequence_length"]: row["fit_probability"] for row in fit["rows"]}
    assert chances[fit["largest"]] < 0.9 <= chances[fit["largest_likely"]] < 0.91


def test_limits_count(planner):
    out = planner("max-batch", *SERVED, "--tpot", "30ms").out
    assert "misses the limit time_per_output_token" in out


def test_both_lengths_of_a_request_are_told(planner):
    out = planner("max-length", *SERVED, "--set", "concurrency=64").out
    assert "Fits up to input tokens" in out
    assert "Fits up to output tokens" in out


def test_json_has_rows(planner):
    told = json.loads(planner("max-batch", *TRAINING, *LAYOUT, "--json", "-", "--quiet").out)
    (one,) = told["largest"]
    assert one["largest"] == 8
    assert [row["micro_batch_size"] for row in one["rows"]] == [1, 2, 4, 8]
    assert one["sentences"][0].startswith("largest micro batch size 8")
    assert told["manifest"]["command"].startswith("planner max-batch")


@pytest.mark.slow
def test_of_a_plan_file_with_a_limit(planner, tmp_path):
    path = tmp_path / "plan.toml"
    planner("search", *SMALL, "--save-plan", path, "--quiet")
    free = planner("max-length", "--plan", path)
    spare = planner("max-batch", "--plan", path, "--memory-headroom", "4GiB")
    assert free.exit_code == spare.exit_code == 0
    assert "beyond the 2,048 positions" in free.out.replace("\n  ", " ")
    assert " up to micro batch size" in spare.out


def test_without_a_layout_it_is_that_of_the_recommended_plan(planner):
    done = planner("max-batch", "--model", "llama-7b", "--gpus", "8")
    assert done.exit_code == 0
    assert " up to micro batch size" in done.out


@pytest.mark.parametrize("width", ["40", "200"])
def test_it_fits_the_terminal(planner, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    out = planner("max-length", *SERVED, "--set", "concurrency=64").out
    assert max(map(len, out.splitlines())) <= int(width)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--set", "mbs=1,2"), "micro_batch_size is what grows"),
        (("--set", "tp=8", "--csv", "-"), "--csv has a row for each of several methods"),
        (("--set", "tp=8", "--ttft", "1s"), "--ttft"),
        (("--set", "tp=8", "--json", "no/folder.json"), "there is no folder"),
        (("--row", "1"), "--row needs --from"),
    ],
)
def test_errors_say_what_and_where(planner, options, said):
    done = planner("max-batch", *TRAINING, *options)
    assert done.exit_code != 0
    assert said in done.err.replace("\n", " ")


METHODS = (
    *("--model", "llama-7b", "--gpus", "8", "--framework", "deepspeed"),
    *("--set", "zero_stage=0,3", "--set", "recompute=none,full"),
)


@pytest.mark.parametrize("width", ["40", "80"])
def test_lists_give_a_row_for_each_method(planner, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    done = planner("max-batch", *METHODS)
    assert done.exit_code == 0
    assert max(map(len, done.out.splitlines())) <= int(width)
    assert done.out.startswith("Fits with 4 of 4 methods")
    assert "(1) the fullest GPU needs more memory" in done.out.replace("\n  ", " ")


def test_methods_as_files_have_the_same_rows(planner, tmp_path):
    path = tmp_path / "methods.json"
    done = planner("max-batch", *METHODS, "--csv", "-", "--json", path, "--quiet")
    told = json.loads(path.read_text())
    read = list(csv.DictReader(done.out.splitlines()))
    assert [row["zero_stage"] for row in told["rows"]] == [0, 0, 3, 3]
    for row, cells in zip(told["rows"], read, strict=True):
        assert cells["micro_batch_size"] == str(row["micro_batch_size"] or "")
        assert cells["ended_by"] == row["ended_by"]
    assert told["manifest"]["command"].startswith("planner max-batch")


def test_methods_to_serve_have_their_throughput(planner, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    out = planner("max-batch", *SERVED[:-2], "--set", "tp=4,8", "--tpot", "30ms").out
    assert "the table has the largest concurrency of each" in out
    assert "tok/s/GPU" in out
    assert "(1) it misses the limit time_per_output_token" in out


def test_methods_vary_the_plan_of_a_file(planner, tmp_path):
    path = tmp_path / "plan.toml"
    planner("search", *SMALL, "--save-plan", path, "--quiet")
    done = planner("max-batch", "--plan", path, "--set", "recompute=none,full")
    assert done.exit_code == 0
    assert done.out.startswith("Fits with 2 of 2 methods")


def test_where_no_method_fits_the_exit_code_says_so(planner):
    done = planner("max-batch", *TRAINING, "--set", "tp=1", "--set", "recompute=none,selective")
    assert done.exit_code == 4
    assert "with any method" in done.err.replace("\n", " ")


def test_where_nothing_fits_the_exit_code_says_so(planner):
    done = planner("max-batch", *TRAINING, "--set", "tp=1", "--quiet")
    assert done.exit_code == 4
    assert "Does not fit: no micro batch size is feasible" in done.err
