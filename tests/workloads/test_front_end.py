"""The front of serving ends where plans are of no use, unless the user says how far to look."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import planner
from planner.optimize.exhaustive import exhaustive_search
from planner.optimize.pareto import within_factor_of_best
from planner.question.request import Request
from planner.workloads.make_plan import make_plan

SIZED: dict[str, Any] = {
    "workload": "serve", "model": "llama-3.1-8b", "gpu": "h100", "request_rate": 200.0,
    "mode": "aggregated", "engine": "vllm",
}  # fmt: skip
BATCHES: dict[str, Any] = {
    "workload": "inference", "model": "llama-3.1-8b", "gpu": "h100", "num_gpus": 8,
    "engine": "vllm",
}  # fmt: skip
STREAMS = {**BATCHES, "workload": "serve", "mode": "aggregated"}


@pytest.mark.parametrize(
    ("first", "kept"),
    [
        ([2.0, 19.0, 20.0, 20.1], 3),
        ([-20.0, -3.0, -2.0, -1.9], 3),
        ([0.0, 5.0], 2),
        ([np.inf, np.inf], 2),
    ],
    ids=["low is better", "high is better", "around 0", "unknown"],
)
def test_the_useful_part_of_a_front(first: list[float], kept: int) -> None:
    ranked = np.stack([first, np.arange(len(first))[::-1]], axis=1)
    assert within_factor_of_best(ranked, 10.0).tolist() == [row < kept for row in range(len(first))]
    assert within_factor_of_best(ranked, np.inf).all()


@pytest.mark.parametrize(
    ("asked", "column", "worse"),
    [
        (SIZED, "num_gpus", lambda best: 10 * best),
        (BATCHES, "output_tokens_per_s_per_gpu", lambda best: best / 10),
        (STREAMS, "output_tokens_per_s_per_gpu", lambda best: best / 10),
    ],
    ids=["sizing", "batches", "streams"],
)
def test_the_front_ends_at_ten_times_the_best(asked: Any, column: str, worse: Any) -> None:
    problem = make_plan(Request(**asked)).problem
    ended = exhaustive_search(problem).to_frame()[column]
    whole = exhaustive_search(replace(problem, max_front_factor=np.inf)).to_frame()[column]
    sign = 1 if column == "num_gpus" else -1
    inside = sign * whole <= sign * worse(whole.iloc[0]) * (1 + sign * 1e-12)
    assert 1 < len(ended) == np.count_nonzero(inside) < len(whole)
    assert ended.tolist() == whole[inside].tolist()


@pytest.mark.parametrize(
    "more",
    [
        {"objectives": ("num_gpus", "request_latency")},
        {"constraints": {"max_gpus": 2000.0}},
        {"constraints": {"cost_per_million_tokens": 50.0}},
    ],
    ids=str,
)
def test_what_the_user_asks_for_is_not_cut(more: dict[str, Any]) -> None:
    assert make_plan(Request(**SIZED)).problem.max_front_factor == 10.0
    assert (
        make_plan(Request(**SIZED, constraints={"request_latency": 60.0})).problem.max_front_factor
        == 10
    )
    gpus = planner.search(**SIZED, **more).table["num_gpus"]
    assert max(gpus) > 10 * min(gpus)


@pytest.mark.slow
def test_all_rows_are_written_all_the_same(planner: Any, tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    words = (
        "--workload",
        "inference",
        "--model",
        "llama-3.1-8b",
        "--gpu",
        "h100",
        "--gpus",
        8,
        "--engine",
        "vllm",
    )
    assert planner("search", *words, "--all", "--csv", path).exit_code == 0
    every = pd.read_csv(path)["output_tokens_per_s_per_gpu"]
    assert every.min() < every.max() / 10
    problem = make_plan(Request(**BATCHES)).problem
    assert len(every) == exhaustive_search(problem).configurations_feasible


def test_training_has_the_whole_front() -> None:
    assert make_plan(Request(model="llama-7b", num_gpus=8)).problem.max_front_factor == np.inf
