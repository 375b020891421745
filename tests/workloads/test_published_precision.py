"""Which precision is assumed: that of a model's published run, where nothing else is asked."""

from typing import Any

import pytest

import planner
from planner.base.enums import (
    ComputePrecision,
)
from planner.show.output_blocks import Table
from planner.show.presenters.sizes import note_lines
from planner.show.presenters.uncertainty import other_formats
from planner.ui.pages.result_tables import facts_section
from planner.workloads.build_request import make_request
from planner.workloads.make_plan import Plan, make_plan, make_single_plan


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
    assert precisions(make_single_plan(request)) == ["fp8"]
    found = {fact.name: fact for fact in planner.estimate(base=request).open_facts}
    assert found["precision"].assumed == "fp8"


LAYOUT = {
    "tensor_parallel": 4,
    "pipeline_parallel": 8,
    "virtual_pipeline": 4,
    "expert_parallel": 16,
    "zero_stage": 1,
    "sequence_parallel": True,
    "recompute": "selective",
}
LINE = "in bf16 5.02 million GPU-hours, +18 %"


def one(**more: Any) -> Any:
    """DeepSeek-V3 on 2,048 H800, in one layout."""
    asked = {"model": "deepseek-v3", "gpu": "h800", "num_gpus": 2048}
    return planner.estimate(**asked, framework="megatron-bridge", settings={**LAYOUT, **more})


def hours(found: Any) -> float:
    return float(found.table()["gpu_hours"][0])


def test_the_other_precision_stands_beside_it_with_its_gpu_hours() -> None:
    """As the same layout takes in it: 5.02 of 4.25 million hours."""
    found, other = one(), one(precision="bf16")
    (fact,) = [fact for fact in found.open_facts if fact.name == "precision"]
    assert fact.each["fp8"]["gpu_hours"] == pytest.approx(hours(found))
    assert fact.each["bf16"]["gpu_hours"] == pytest.approx(hours(other))
    assert hours(other) / hours(found) == pytest.approx(1.18, abs=0.005)
    assert other_formats(fact) == [LINE]
    assert type(fact).from_dict(fact.to_dict()) == fact


def test_a_page_tells_it_too() -> None:
    found = one()
    section = facts_section(found.plan.workload.wording, found.open_facts)
    table = section.blocks[0]
    assert isinstance(table, Table)
    assert any(LINE in cell.text for row in table.rows for cell in row)


def test_explanations_compare_precisions_by_time_and_not_by_shares_of_two_peaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What is assumed of specs is predicted number by number, of which none is looked at.
    monkeypatch.setattr(
        "planner.decide.explain.explanation._evaluate_spec_number", lambda *asked: None
    )
    explained = planner.explain(
        model="deepseek-v3",
        gpu="h800",
        num_gpus=2048,
        framework="megatron-bridge",
        settings=LAYOUT,
    )
    (found,) = [one for one in explained.assumptions if one.name == "precision"]
    assert found.column == "step_time_s"


@pytest.mark.parametrize(
    ("settings", "more", "words"),
    [
        # Of a budget the fastest plan is told, which is fuller than the simplest.
        ({}, {"cost": 1e9}, "does not fit in bf16: --precision bf16 sizes that"),
        ({}, {}, "in bf16 "),
        (LAYOUT, {}, "in bf16 "),
    ],
)
def test_a_size_tells_the_other_precision(
    settings: dict[str, Any], more: dict[str, float], words: str
) -> None:
    limits = {"time_to_train": 80 * 86400.0, **more}
    asked = {"model": "deepseek-v3", "gpu": "h800", "framework": "megatron-bridge", "price": 2.0}
    sized = planner.size(
        **asked, num_gpus=[2048], settings=settings, constraints=limits, confidence=0.5
    )
    notes = note_lines(sized)
    (line,) = [line for line in notes if line.startswith("Precision fp8 assumed")]
    assert words in line


def test_a_size_of_a_given_precision_tells_none() -> None:
    asked = {"model": "deepseek-v3", "gpu": "h800", "framework": "megatron-bridge"}
    limits = {"time_to_train": 80 * 86400.0}
    sized = planner.size(**asked, num_gpus=[2048], precision="fp8", constraints=limits)
    assert not [line for line in note_lines(sized) if line.startswith("Precision")]


def test_gpu_hours_of_deepseek_v3_are_near_those_published() -> None:
    """arXiv:2412.19437, table 1: 2.664 million H800 hours of pre-training; bf16 takes 3.4."""
    asked = {"model": "deepseek-v3", "gpu": "h800", "num_gpus": 2048, "reliability": "ideal"}
    result = planner.search(**asked, framework="megatron-bridge", price=2.0)
    hours = result.table["gpu_hours"][0]
    assert hours == pytest.approx(2.664e6, rel=0.15)
