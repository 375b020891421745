"""Reinforcement learning from the command line and from Python, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import planner
from planner.errors import SpecError
from planner.optimize.source import in_parts
from planner.question.terms import terms_of
from planner.workloads.plan import make_plan
from planner.workloads.rl_runs import RlRuns

ASKED = {
    "workload": "rl",
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "num_gpus": 16,
    "output_tokens": 1000,
    "output_cap": 4096,
    "input_tokens": 128,
}
SMALL = {
    "tensor_parallel": [1, 2],
    "pipeline_parallel": [1, 2],
    "recompute": ["none", "full"],
    "rollout_tensor_parallel": [1, 2],
}


def words(command, *more):
    plain = ("--workload", "rl", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "16")
    return (command, *plain, "--output-tokens", "1000", "--output-cap", "4096", *more)


def test_every_objective_and_limit_is_an_attribute():
    for name in terms_of("rl", "objective", "limit"):
        assert hasattr(RlRuns, name), name


def test_the_search_finds_the_best_of_all():
    found = planner.search(**ASKED, settings=SMALL, objectives=("step_time",))
    seen = []
    planner.search(
        **ASKED,
        settings=SMALL,
        objectives=("step_time",),
        sink=lambda table: seen.append(pd.DataFrame(table)),
    )
    rows = pd.concat(seen)
    assert found.table["step_time_s"][0] == pytest.approx(rows["step_time_s"].min())
    assert {*rows["placement"]} == {"colocated", "async"}
    apart = rows[rows["placement"] != "colocated"]
    assert (apart["train_gpus"] + apart["rollout_gpus"] == 16).all()


def test_a_mesh_is_judged_as_its_rows_are():
    (source,) = make_plan(planner.Request(**ASKED, settings=SMALL)).problem.sources
    (part, _), *_ = in_parts(source.mesh.table(), None, 2**20)
    whole, rows = source.judged(part), np.arange(0, part.size, 37)
    alone = source.judged(part.rows(rows))
    for name in ("step_time", "peak_memory", "cost"):
        expected = whole.at(whole.value(name), rows)
        feasible = whole.at(np.broadcast_to(whole.rejected_by, whole.shape), rows) == 0
        assert np.ravel(alone.value(name) + np.zeros(alone.shape))[feasible] == pytest.approx(
            expected[feasible]
        )


def test_optuna_finds_about_the_same():
    whole = planner.search(**ASKED, settings=SMALL, objectives=("step_time",))
    sampled = planner.search(
        **ASKED, settings=SMALL, objectives=("step_time",), driver="optuna", trials=300
    )
    best, other = (one.table["step_time_s"][0] for one in (whole, sampled))
    assert other <= 1.2 * best


def test_a_plan_is_estimated_again(planner, tmp_path):
    plan, again = tmp_path / "plan.toml", tmp_path / "again.json"
    ran = planner(*words("search", "--save-plan", plan))
    assert ran.exit_code == 0, ran.err
    assert "Recommended: " in ran.out
    whole = planner("estimate", "--plan", plan, "--json", again)
    assert whole.exit_code == 0, whole.err
    assert "is the bottleneck by" in whole.out
    (row,) = json.loads(again.read_text())["rows"]
    assert row["step_time_s"] > 0
    assert row["bottleneck"] in ("trainer", "rollout")


def test_steps_are_sized_by_a_deadline(planner):
    ran = planner(
        "size", "--workload", "rl", "--model", "llama-3.1-8b", "--gpu", "h100",
        "--output-tokens", "1000", "--output-cap", "4096", "--steps", "500", "--deadline", "1d",
    )  # fmt: skip
    assert ran.exit_code == 0, ran.err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--set", "staleness=2"), "older weights need placement async"),
        (("--micro-batch-tokens", "1000"), "--micro-batch-tokens 5120 or more"),
        (("--output-cap", "500"), "--output-cap of 1,000 or more"),
        (("--global-batch-size", "500"), "nearest: 512"),
        (("--set", "placement=async", "--set", "train_gpus=4", "--set",
          "rollout_tensor_parallel=8"), "nearest: 6"),
        (("--framework", "trl", "--set", "placement=async"), "TRL has colocated, separate"),
        (("--framework", "megatron-lm"), "generates no answers"),
        (("--engine", "tensorrt-llm"), "it has vllm and sglang"),
        (("--algorithm", "reinforce"), "Known: grpo, dapo, rloo, ppo"),
    ],
)  # fmt: skip
def test_what_is_impossible_is_said_with_the_nearest(planner, more, told):
    ran = planner(*words("estimate", *more))
    assert ran.exit_code != 0
    assert told in " ".join(ran.err.split()), ran.err


def test_a_host_that_is_full_is_a_rule():
    found = planner.search(**{**ASKED, "node_host_memory": "100GiB"}, settings=SMALL)
    assert found.rejected_by["out_of_host_memory"] > 0


def test_algorithms_have_their_models():
    def work(**more):
        (source,) = make_plan(planner.Request(**ASKED, **more)).problem.sources
        return source.setting.workload

    assert work().reference_model
    assert not work(algorithm="dapo").reference_model
    assert work(algorithm="ppo").critic
    with pytest.raises(SpecError, match="algorithm"):
        work(algorithm="none")


def test_an_explanation_tells_the_phases_and_what_they_are_made_of(planner):
    ran = planner(*words("explain", "--set", "recompute=full"))
    assert ran.exit_code == 0, ran.err
    for told in ("generate", "Time of a training step", "Time of a decode step", "What if"):
        assert told in ran.out, told


def test_a_page_shows_a_search(planner, tmp_path):
    found, page = tmp_path / "found.json", tmp_path / "page.html"
    assert planner(*words("search", "--json", found)).exit_code == 0
    assert planner("report", found, "--output", page).exit_code == 0
    assert "colocated" in page.read_text(encoding="utf-8")


def test_both_lanes_are_drawn(planner, tmp_path):
    picture = tmp_path / "step.svg"
    more = ("--set", "placement=async", "--set", "recompute=full", "--timeline", picture)
    ran = planner(*words("estimate", *more))
    assert ran.exit_code == 0, ran.err
    assert "rollout, 8 GPUs" in picture.read_text(encoding="utf-8")
