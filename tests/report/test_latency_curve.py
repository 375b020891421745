"""Latencies as a distribution: the same function as the percentiles of results."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from planner import Request, estimate
from planner.optimize.source import first_row
from planner.show.presenters.serving_details import latency_blocks, latency_distribution
from planner.show.terminal import print_blocks


@pytest.fixture(scope="module")
def found():
    return estimate(base=Request(
        workload="serve", model="llama-2-7b", gpu="a100-sxm-80gb", num_gpus=1, engine="vllm",
        settings={"concurrency": 16},
    ))  # fmt: skip


def test_curves_go_through_the_percentiles_of_the_row(found) -> None:
    curves, row = latency_distribution(found.candidates), first_row(found.table())
    assert curves["percent"] == tuple(range(1, 100))
    for name in ("time_to_first_token", "time_per_output_token", "request_latency"):
        curve = curves[f"{name}_s"]
        assert curve == sorted(curve)
        for percent in (50, 90, 95, 99):
            assert curve[percent - 1] == row[f"{name}_p{percent}_s"]


def test_the_table_has_nine_shares(found) -> None:
    console = Console(file=io.StringIO(), width=60)
    print_blocks(console, latency_blocks(found.candidates))
    lines = console.file.getvalue().splitlines()
    assert sum("% within" in line for line in lines) == 9
    assert all(len(line) <= 60 for line in lines)


def test_a_load_that_is_too_much_has_no_end() -> None:
    too_much = Request(
        workload="serve", model="llama-2-7b", gpu="a100-sxm-80gb", num_gpus=1, engine="vllm",
        settings={"concurrency": 16}, request_rate=1000.0,
    )  # fmt: skip
    curves = latency_distribution(estimate(base=too_much).candidates)
    json.dumps(curves, allow_nan=False)
