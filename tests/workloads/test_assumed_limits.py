"""Serving without limits keeps those of the table, or says how far it had to go beyond them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import planner
from planner.optimize.exhaustive import exhaustive_search, without_assumed
from planner.question.request import Request
from planner.question.terms import glossary
from planner.workloads.build_request import make_request
from planner.workloads.make_plan import make_plan, with_assumption_notes

SMALL: dict[str, Any] = {
    "workload": "serve", "model": "llama-3.1-8b", "gpu": "h100", "num_gpus": 1,
    "mode": "aggregated", "engine": "vllm",
}  # fmt: skip
LONG = {**SMALL, "gpu": "l4", "input_tokens": 60_000, "output_tokens": 1_000}
BATCH = {name: value for name, value in SMALL.items() if name != "mode"} | {
    "workload": "inference", "gpu": "l4",
}  # fmt: skip
DEFAULTS = {"time_to_first_token": 2.0, "time_per_output_token": 0.05}


def bounds(found: Any) -> dict[str, float]:
    return {limit.name: limit.bound for limit in found.problem.constraints if limit.assumed}


def test_without_limits_those_of_the_table_hold() -> None:
    assert {name: float(glossary()[name].default) for name in DEFAULTS} == DEFAULTS
    plan = make_plan(Request(**SMALL, input_variation=0.0, output_variation=0.0))
    found = exhaustive_search(plan.problem)
    assert bounds(found) == DEFAULTS
    assert max(found.table["time_per_output_token_s"]) <= 0.05
    assert (
        with_assumption_notes(plan, found).defaults["time_per_output_token"]
        == "at most 50 ms (default)"
    )
    free = exhaustive_search(without_assumed(plan.problem))
    assert max(free.table["time_per_output_token_s"]) > 0.05


@pytest.mark.parametrize(
    "limit", ["time_to_first_token", "time_per_output_token", "request_latency"]
)
def test_a_limit_of_a_time_leaves_the_others_open(limit: str) -> None:
    plan = make_plan(Request(**SMALL, constraints={limit: 100.0}))
    assert {one.name: one.assumed for one in plan.problem.constraints} == {limit: False}
    assert not set(DEFAULTS) & set(plan.defaults)


@pytest.mark.parametrize(
    "more",
    [
        {"constraints": {"cost_per_million_tokens": 50.0}},
        {"constraints": {"memory_headroom": 1e9}},
        {"request_rate": 0.5},
    ],
    ids=str,
)
def test_limits_of_other_things_come_before_the_assumed_ones(more: dict[str, Any]) -> None:
    names = [one.name for one in make_plan(Request(**SMALL, **more)).problem.constraints]
    assert names[-2:] == list(DEFAULTS)
    assert len(names) == 3


@pytest.mark.parametrize(("output_tokens", "bound"), [(None, 53.15), (128, 8.35), (1, 2.0)])
def test_a_static_batch_ends_when_a_served_answer_would(
    output_tokens: int | None, bound: float
) -> None:
    plan = make_plan(Request(**BATCH, output_tokens=output_tokens))
    found = exhaustive_search(plan.problem)
    assert bounds(found) == {"request_latency": pytest.approx(bound)}
    assert max(found.table["request_latency_s"]) <= bound
    assert "(default)" in with_assumption_notes(plan, found).defaults["request_latency"]
    free = exhaustive_search(without_assumed(plan.problem))
    assert max(free.table["request_latency_s"]) > bound


@pytest.mark.parametrize("limit", ["request_latency", "prefill_latency", "decode_latency"])
def test_a_limit_of_a_time_leaves_a_batch_no_other(limit: str) -> None:
    plan = make_plan(Request(**BATCH, constraints={limit: 100.0}))
    assert {one.name: one.assumed for one in plan.problem.constraints} == {limit: False}
    dearer = make_plan(Request(**BATCH, constraints={"cost_per_million_tokens": 50.0}))
    assert [one.name for one in dearer.problem.constraints if one.assumed] == ["request_latency"]


def test_a_batch_that_cannot_end_in_time_has_a_wider_limit() -> None:
    plan = make_plan(Request(**BATCH, input_tokens=60_000, output_tokens=16))
    found = exhaustive_search(plan.problem)
    assert found.configurations_feasible
    assert bounds(found)["request_latency"] > 2.75
    assert "relaxed from 2.75 s" in with_assumption_notes(plan, found).defaults["request_latency"]


def test_a_sweep_of_batches_assumes_the_same(planner: Any, tmp_path: Path) -> None:
    asked = (f"--{name.replace('num_', '')}={value}" for name, value in BATCH.items())
    assert planner("sweep", *asked, "--output-tokens", 128, "--output", tmp_path).exit_code == 0
    (row,) = pd.read_csv(tmp_path / "scenarios.csv").to_dict("records")
    assert row["request_latency_s"] <= 8.35


def test_single_configurations_have_none() -> None:
    batch = planner.estimate(**BATCH, input_tokens=16_000, settings={"concurrency": 1})
    plan = make_plan(Request(**BATCH, input_tokens=16_000))
    assert [one.bound for one in plan.problem.constraints] == [pytest.approx(53.15)]
    assert float(batch.candidates.value("request_latency").ravel()[0]) > 53.15
    assert batch.rejected_by == ""
    alone = planner.estimate(**LONG, settings={"quantization": "fp8", "concurrency": 1})
    assert alone.rejected_by == ""
    assert float(alone.candidates.value("time_to_first_token").ravel()[0]) > 2.0


@pytest.mark.parametrize(("input_tokens", "bound"), [(16_000, 8.0), (20_000, 16.0), (60_000, 64.0)])
def test_where_nothing_keeps_them_they_are_widened_and_that_is_told(
    input_tokens: int, bound: float
) -> None:
    plan = make_plan(Request(**{**LONG, "input_tokens": input_tokens}))
    found = exhaustive_search(plan.problem)
    assert bounds(found)["time_to_first_token"] == bound
    told = with_assumption_notes(plan, found)
    assert "relaxed from 2.00 s" in told.defaults["time_to_first_token"]
    assert bounds(told) == bounds(found)
    assert max(found.table["time_to_first_token_s"]) <= bound
    # As few doublings as leave room beyond the plan that is nearest to the default.
    nearest = nearest_time(plan.problem)
    assert nearest > 2.0
    assert bound / 2 < 1.5 * nearest <= bound


def nearest_time(problem: Any) -> float:
    times: list[float] = []
    exhaustive_search(
        without_assumed(problem), sink=lambda rows: times.extend(rows["time_to_first_token_s"])
    )
    return min(times)


def test_what_the_user_asked_for_is_never_widened() -> None:
    asked = {"cost_per_million_tokens": 1e-6}
    found = planner.search(**SMALL, constraints=asked)
    assert not found.configurations_feasible
    assert bounds(found) == DEFAULTS
    (given,) = (one for one in found.problem.constraints if not one.assumed)
    assert given.bound == 1e-6
    # Wherever it stands among the limits.
    plan = make_plan(Request(**LONG, constraints=asked)).problem
    turned = replace(plan, constraints=plan.constraints[::-1])
    limits = exhaustive_search(turned).problem.constraints
    assert [one.bound for one in limits if not one.assumed] == [1e-6]


def test_a_sampled_search_widens_them_too() -> None:
    found = planner.search(**LONG, driver="optuna", trials=100)
    assert found.configurations_feasible
    assert bounds(found)["time_to_first_token"] > 2.0


@pytest.mark.slow
def test_the_command_says_what_it_assumed(planner: Any) -> None:
    ran = planner(
        "search", "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", 1,
        "--full",
    )  # fmt: skip
    told = " ".join(ran.out.split())
    assert told.index("token at most") < told.index("cluster")
    assert told.index("output_variation 1") < told.index("cluster")
    for words in ("at most 2.00 s", "quantization"):
        assert words in told


def test_python_says_what_it_assumed_and_what_it_widened() -> None:
    found = planner.search(**LONG)
    assert bounds(found.plan) == bounds(found)
    assert "relaxed from 2.00 s" in str(found.plan.defaults)


def test_types_that_were_set_or_published_are_not_told_as_chosen() -> None:
    settings = {"quantization": "bf16", "kv_cache": ["bf16"]}
    assert not {"quantization", "kv_cache"} & set(
        make_plan(Request(**SMALL, settings=settings)).defaults
    )
    published = make_plan(Request(**{**SMALL, "model": "gpt-oss-20b"})).defaults
    assert "published" in published["quantization"]
    assert published["kv_cache"] == "bf16 or fp8 (of the space)"


@pytest.mark.parametrize(
    ("more", "varied"),
    [
        ({}, (1.0, 1.0)),
        ({"equal_lengths": True}, (0.0, 0.0)),
        ({"output_tokens": 0}, (1.0, 0.0)),
        ({"input_variation": 0.0}, (0.0, 1.0)),
        ({"lengths": "azure-code"}, (0.964, 2.147)),
    ],
)
def test_lengths_that_nobody_told_vary_as_those_of_services(
    more: dict[str, Any], varied: tuple[float, float]
) -> None:
    plan = make_plan(make_request({**SMALL, **more}))
    (source, *_) = plan.problem.sources
    work = source.inputs.workload
    assert (work.input_variation, work.output_variation) == pytest.approx(varied, abs=1e-3)
    told = plan.defaults.get("output_variation", "")
    assert ("as measured of services" in told) == (varied[1] == 1)
    batch = make_plan(Request(**BATCH)).problem.sources[0].inputs.workload
    assert (batch.input_variation, batch.output_variation) == (0, 0)


SIZED = {
    "workload": "serve", "tuned": True,
    "model": "llama-3.1-70b", "gpu": ("h100", "a100"), "request_rate": 20,
    "input_tokens": 2000, "output_tokens": 300, "mode": "aggregated",
}  # fmt: skip


@pytest.mark.slow
def test_an_assumed_limit_does_not_decide_the_number_of_gpus_of_a_size() -> None:
    sizes = planner.size(**SIZED)
    h100, a100 = (next(s for s in sizes.sizes if s.gpu.startswith(gpu)) for gpu in ("h100", "a100"))
    wide = {"ttft": "512s", "tpot": "12.8s"}
    for size in (h100, a100):
        unlimited = planner.size(**{**SIZED, "gpu": size.gpu, "constraints": wide})
        assert size.fewest.num_gpus <= 1.5 * unlimited.best.fewest.num_gpus
    kept = a100.fewest_at_assumed
    assert kept is not None
    assert a100.is_relaxed
    assert a100.fewest.num_gpus < kept.num_gpus
    asked = planner.size(**{**SIZED, "gpu": "a100", "constraints": {"ttft": "8s", "tpot": "50ms"}})
    assert asked.best.fewest.num_gpus == kept.num_gpus  # what the user asks for stays
    assert asked.best.assumed == {}
    row = next(row for row in sizes.rows if row["gpu"] == a100.gpu)
    assert row["assumed_limits"] == "time_to_first_token, time_per_output_token"
    assert row["num_gpus_at_assumed"] == kept.num_gpus
    assert row["num_gpus_at_90"] == a100.fewest.num_gpus >= row["num_gpus_predicted"]
    shown = " ".join(planner.size(**{**SIZED, "gpu": "a100"}).summary().split())
    limits = shown.partition("Assumed limits: ")[2]
    assert limits.startswith("TTFT at most 2.00 s; TPOT at most 200 ms ")
    assert f"(50 ms: takes {kept.num_gpus} GPUs, " in limits
    assert "90 % likely to keep each: the rate; the assumed limits" in shown
    strict = planner.size(**{**SIZED, "gpu": "a100", "constraints": {"ttft": "2s", "tpot": "50ms"}})
    assert strict.best.fewest.num_gpus == kept.num_gpus


@pytest.mark.slow
def test_a_limit_of_the_user_is_no_assumption_of_a_size() -> None:
    sizes = planner.size(**{**SIZED, "gpu": "h100", "constraints": {"ttft": "2s"}})
    words = " ".join(sizes.summary().split())
    assert "90 % likely to keep each: the rate; TTFT at most 2.00 s" in words
    assert sizes.best.assumed.keys() <= {"time_per_output_token"}
