"""Several GPUs, frameworks and numbers of GPUs: each row has its own source, price and interval."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import planner
from planner.optimize.exhaustive import exhaustive_search
from planner.optimize.result_columns import full_columns
from planner.plan import make_plan
from planner.request import Request

GPUS = ("h100-sxm-80gb", "a100-sxm-80gb")
QUESTION: dict[str, Any] = {"model": "llama-2-13b", "num_gpus": 16, "space": "small"}


def test_gpus_of_training_are_compared_by_their_best_layout() -> None:
    found = planner.search(**QUESTION, gpu=GPUS, objectives=("throughput",))
    assert found.table["gpu"] == list(GPUS)
    for gpu, rate in zip(GPUS, found.table["tokens_per_s"], strict=True):
        alone = planner.search(**QUESTION, gpu=gpu, objectives=("throughput",))
        assert rate == pytest.approx(alone.table["tokens_per_s"][0])
    assert float(found.best.throughput[0]) == pytest.approx(found.table["tokens_per_s"][0])


def test_gpus_share_a_front_where_not_the_best_of_each_is_asked_for() -> None:
    searched = make_plan(Request(**QUESTION, gpu=GPUS, objectives=("num_gpus",))).problem
    each = exhaustive_search(searched)
    together = exhaustive_search(replace(searched, best_per_gpu=False))
    assert (len(each.table["gpu"]), len(together.table["gpu"])) == (2, 1)
    assert together.configurations_evaluated == each.configurations_evaluated


def test_frameworks_share_a_front() -> None:
    together = planner.search(**QUESTION, framework=("megatron-lm", "fsdp"))
    alone = [
        planner.search(**QUESTION, framework=name).to_frame() for name in ("megatron-lm", "fsdp")
    ]
    best = pd.concat(alone)["tokens_per_s"].max()
    assert together.table["tokens_per_s"][0] == pytest.approx(best)
    assert set(together.table["framework"]) <= {"Megatron-LM", "PyTorch FSDP"}
    assert together.configurations_evaluated == 2 * 320


@pytest.mark.parametrize(
    "request_",
    [
        {**QUESTION, "gpu": GPUS, "num_gpus": (8, 64), "framework": ("megatron-lm", "deepspeed")},
        {
            "workload": "serve",
            "model": "llama-3.1-8b",
            "gpu": GPUS,
            "num_gpus": 8,
            "engine": ("vllm", "sglang"),
        },
    ],
    ids=["train", "serve"],
)
def test_intervals_are_those_of_each_row(request_: dict[str, Any]) -> None:
    plan = make_plan(Request(**request_))
    tables = []
    for source in plan.problem.sources:
        if source.mesh is None:
            continue
        table = source.mesh.table()
        tables.append(pd.DataFrame(source.judged(table.rows([0, table.size - 1])).columns()))
    rows = pd.concat(tables, ignore_index=True).sample(frac=1, random_state=1)
    columns = {name: rows[name].tolist() for name in rows}
    sources = [source for source in plan.problem.sources if source.mesh is not None]
    found = pd.DataFrame(full_columns(columns, sources))
    quantity = "step_time" if "step_time_s" in columns else "time_to_first_token"
    factors = set()
    for _, row in found.iterrows():
        sure = plan.source_of(row).confidence(row["num_gpus"])
        low, high = sure.factors[quantity]
        factors.add((low, high))
        value = row[f"{quantity}_s"]
        assert row[f"{quantity}_low_s"] == pytest.approx(value * low, nan_ok=True)
        assert row[f"{quantity}_high_s"] == pytest.approx(value * high, nan_ok=True)
        assert row["peak_memory_low_gib"] < row["peak_memory_gib"] < row["peak_memory_high_gib"]
    assert len(factors) > 1


def test_a_flat_share_of_the_peak_has_no_interval() -> None:
    (source,) = make_plan(Request(**QUESTION, flops_efficiency=0.5)).problem.sources
    assert source.confidence(16) is None
    (ideal,) = make_plan(Request(**QUESTION, ideal=True)).problem.sources
    assert ideal.confidence(16) is None


def test_the_price_of_a_gpu_without_one_is_told(planner: Any) -> None:
    words = ("search", "--model", "llama-7b", "--gpus", "8", "--space", "small")
    ran = planner(*words, "--gpu", "h100,h800", "--objective", "cost")
    assert ran.exit_code == 0
    assert "Without a plan: 1 GPU" in ran.out
    assert "1  an objective is unknown, such as cost: h800-sxm-80gb" in ran.out


def test_energy_is_that_of_all_gpus_for_the_whole_run() -> None:
    found = planner.search(**QUESTION, gpu=GPUS[0], objectives=("energy",))
    row = {name: values[0] for name, values in found.table.items()}
    assert row["energy_kwh"] == pytest.approx(row["gpu_hours"] * 0.7, rel=1e-3)
    slower = planner.search(**QUESTION, gpu=GPUS[0], objectives=("memory_headroom",))
    assert np.min(slower.table["energy_kwh"]) >= row["energy_kwh"]


def test_of_many_gpus_no_defaults_are_told() -> None:
    alone = make_plan(Request(**QUESTION, gpu=GPUS[0]))
    several = make_plan(Request(**QUESTION, gpu=GPUS))
    assert {"cluster", "price"} <= set(alone.defaults)
    assert not {"cluster", "price"} & set(several.defaults)
    assert {f"gpu {name}" for name in GPUS} <= set(several.digests)
    assert alone.assumed
