"""A plan beside another one."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import planner

LLAMA: dict[str, Any] = {
    "model": "llama-65b",
    "num_gpus": 2048,
    "framework": "megatron-bridge",
    "settings": {"tp": 8, "mbs": 4, "sp": True, "zero": 1},
}


@cache
def against(**changes: Any) -> Any:
    return planner.explain(**LLAMA, against=changes)


def test_the_terms_add_up_to_what_the_steps_differ_by():
    found = against(tp=4, pp=2, vp=20).difference
    steps = (seen.row["step_time_s"] for seen in (found.other, found.first))
    other, one = steps
    assert sum(term.gain for term in found.times["step"]) == pytest.approx(other - one, rel=1e-9)
    peaks = [seen.row["peak_memory_gib"] for seen in (found.other, found.first)]
    assert sum(term.gain for term in found.memory) == pytest.approx(peaks[0] - peaks[1], rel=1e-9)


def test_the_other_plan_is_the_estimate_of_its_settings():
    found = against(tp=4, pp=2, vp=20).difference
    settings = {**LLAMA["settings"], "tp": 4, "pp": 2, "vp": 20}
    again = planner.estimate(**{**LLAMA, "settings": settings}).table()
    assert found.other.row["step_time_s"] == again["step_time_s"][0]
    assert set(found.settings) == {"tensor_parallel", "pipeline_parallel", "virtual_pipeline"}


def test_an_answer_may_differ_too():
    found = against(gpu="h100").difference
    assert found.settings["gpu"] == ("a100-sxm-80gb", "h100-sxm-80gb")
    assert found.other.row["step_time_s"] < found.first.row["step_time_s"]
    assert not found.is_tie


@pytest.mark.slow
def test_near_plans_are_ties():
    assert against(tp=4, pp=2, vp=20).difference.is_tie
    assert "They are tied" in against(tp=4, pp=2, vp=20).summary()
    assert not against(mbs=1, recompute="full").difference.is_tie


@pytest.mark.slow
def test_a_broken_rule_is_told_in_words():
    found = against(tp=3)
    assert "divide the number of GPUs" in found.difference.other.reason
    assert "It is impossible: tensor x context x pipeline" in found.summary()
    told = found.difference.to_dict()
    assert told["impossible"]
    assert "results" not in told


def test_what_framework_cannot_do_is_named():
    found = planner.explain(
        model="llama-7b",
        num_gpus=8,
        framework="nemo",
        settings={"zero": 1},
        against={"zero_stage": 3},
    )
    assert "zero_stage=3" in found.difference.other.reason


@pytest.mark.slow
def test_the_same_plan_differs_in_nothing():
    found = against(tp=8).difference
    assert found.settings == {}
    assert all(term.gain == 0 for terms in found.times.values() for term in terms)
    assert against(tp=8).to_dict()["against"]["sentences"] == ["Changed: nothing."]


@pytest.mark.slow
def test_serving_is_compared_step_by_step():
    found = planner.explain(
        workload="serve",
        model="llama-3.1-70b",
        gpu="h200",
        num_gpus=8,
        input_tokens=4000,
        output_tokens=1000,
        settings={"tp": 4, "concurrency": 64},
        against={"quantization": "fp8"},
    )
    decode = found.difference.times["decode"]
    assert decode[0].name == "feed_forward"
    assert decode[0].gain < 0
    assert "Of the memory it gains weights" in found.summary()
    assert found.to_dict()["against"]["results"][0]["intervals"][1] is not None


def test_a_file_is_the_other_plan(tmp_path):
    path = tmp_path / "plan.toml"
    from planner.workloads.saved_plan import SavedPlan

    found = against(tp=4, pp=2, vp=20)
    path.write_text(SavedPlan.of(found.difference.other.plan, found.difference.other.row).to_toml())
    again = planner.explain(**LLAMA, against=path).difference
    assert again.other.row["step_time_s"] == found.difference.other.row["step_time_s"]
    from_file = planner.explain(path)
    assert from_file.row["step_time_s"] == again.other.row["step_time_s"]
