"""``planner operators``."""

from __future__ import annotations

import json

import pytest

PRODUCTS = ("operators", "gemm", "--gpu", "a100,h100", "-m", "512,4096", "-n", "4096", "-k", "4Ki")


def test_a_table_has_times_rates_and_bounds(planner):
    done = planner(*PRODUCTS)
    assert done.exit_code == 0
    for words in ("TFLOP/s", "of", "peak", "bound", "a100-sxm-80gb", "h100-sxm-80gb", "compute"):
        assert words in done.out
    assert all(len(line) <= 80 for line in done.out.splitlines())


def test_csv_and_json_have_the_same_rows(planner, tmp_path):
    path = tmp_path / "rows.csv"
    out = planner(*PRODUCTS, "--csv", path, "--json", "-", "--quiet").out
    told = json.loads(out)
    head, *rows = path.read_text().splitlines()
    assert head.startswith("operator,gpu,num_gpus,precision,rows,columns,depth,time_s,tflops")
    assert len(rows) == len(told["rows"]) == len(told["works"]) == 4
    assert told["works"][0][0]["words"].startswith("512 x 4,096 x 4,096: measured")
    assert told["works"][0][0]["time_s"] == pytest.approx(told["rows"][0]["time_s"])
    assert told["manifest"]["command"].startswith("planner operators gemm")


def test_several_collectives_are_asked_at_once(planner):
    out = planner("operators", "all-reduce,all-gather", "send", "--bytes", "1GiB", "--csv", "-").out
    assert [line.split(",")[0] for line in out.splitlines()[1:]] == [
        "all-reduce",
        "all-gather",
        "send",
    ]


def test_the_gpus_of_a_node_are_assumed_and_told(planner):
    assert "gpus 8 (one node)" in planner("operators", "all-reduce", "--bytes", "1GiB").out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("gemm", "-m", "8"), "gemm needs --columns, --depth."),
        (("gemm", "-m", "0", "-n", "1", "-k", "1"), "--rows is a whole number of at least 1"),
        (("send", "--bytes", "5"), "--bytes 5: needs a unit"),
        (("send", "--bytes", "5GB", "--heads", "2"), "--heads says nothing about send"),
        (("sned", "--bytes", "5GB"), "Did you mean send"),
        (("gemm", "-m", "8", "-n", "8", "-k", "8", "--precision", "fp8", "--gpu", "a100"), "fp8"),
    ],
)
def test_what_is_wrong_is_said(planner, words, told):
    done = planner("operators", *words)
    assert done.exit_code == 3
    assert told in done.err
