"""Which precision is assumed: that of a model's published run, where nothing else is asked."""

from typing import Any

import pytest

import planner
from planner.base.enums import ComputePrecision
from planner.plan.given import make_request
from planner.plan.plan import Plan, make_plan, one_configuration


def plan(**request: Any) -> Plan:
    asked = {"model": "deepseek-v3", "gpu": "h800", "num_gpus": 2048, "framework": "nemo"}
    return make_plan(make_request({**asked, **request}))


def precisions(of: Plan) -> list[str]:
    (source,) = of.problem.sources
    return [ComputePrecision(int(code)).word for code in source.mesh.values("precision")]


def test_deepseek_v3_is_planned_in_the_precision_that_it_was_trained_in() -> None:
    """arXiv:2412.19437, section 3.3."""
    found = plan()
    assert precisions(found) == ["fp8"]
    assert "published run of DeepSeek-V3" in found.defaults["precision"]
    assert "--precision bf16" in found.defaults["precision"]


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({"gpu": "a100"}, id="the GPU lacks it"),
        pytest.param({"precision": "bf16"}, id="asked for"),
        pytest.param({"settings": {"precision": "bf16"}}, id="set"),
        pytest.param({"sequence_length": 8192}, id="another sequence"),
        pytest.param({"global_batch_size": 8192}, id="another batch"),
        pytest.param({"training_objective": "sft"}, id="another objective"),
        pytest.param({"model": "mixtral-8x7b"}, id="nothing is published"),
    ],
)
def test_another_run_is_planned_in_16_bit(request_) -> None:
    found = plan(**request_)
    assert precisions(found) == ["bf16"]
    assert "precision" not in found.defaults


def test_one_configuration_tells_what_16_bit_would_cost() -> None:
    asked = {"model": "deepseek-v3", "gpu": "h200", "num_gpus": 2048, "framework": "nemo"}
    layout = {"pipeline_parallel": 16, "expert_parallel": 16, "zero_stage": 1}
    request = make_request({**asked, "settings": {**layout, "recompute": "full"}})
    assert precisions(one_configuration(request)) == ["fp8"]
    found = {fact.name: fact for fact in planner.estimate(base=request).open_facts}
    assert found["precision"].assumed == "fp8"


def test_gpu_hours_of_deepseek_v3_are_near_those_published() -> None:
    """arXiv:2412.19437, table 1: 2.664 million H800 hours of pre-training; bf16 takes 3.4."""
    asked = {"model": "deepseek-v3", "gpu": "h800", "num_gpus": 2048, "reliability": "ideal"}
    result = planner.search(**asked, framework="megatron-bridge", price=2.0)
    hours = result.table["gpu_hours"][0]
    assert hours == pytest.approx(2.664e6, rel=0.15)
