"""The step of a specified efficiency by part: attention, feed forward, logits, communication."""

from __future__ import annotations

from typing import Any

import pytest

import planner
from planner.optimize.source import first_row
from planner.show.presenters.training_details import TRAINING

LAYOUT = {"tensor_parallel": 8, "pipeline_parallel": 8, "sequence_parallel": True}


def estimated(efficiency: float | None = 0.5, **more: Any) -> Any:
    question: dict[str, Any] = {
        "model": "llama-65b",
        "num_gpus": 2048,
        "gpu": "a100-sxm-80gb",
        "framework": "megatron-lm",
        **more,
    }
    settings = {"micro_batch_size": 1, **question.pop("settings", LAYOUT)}
    return planner.estimate(flops_efficiency=efficiency, settings=settings, **question)


def by_part(found: Any) -> dict[str, float]:
    return {str(row["operator"]): float(row["total_s"]) for row in TRAINING.operators(found)}


TUNED = {"adapter": "lora", "framework": "hf-trainer", "settings": {}, "num_gpus": 8}
CASES: dict[str, dict[str, Any]] = {
    "tensor parallel": {},
    "full recomputation": {"settings": {**LAYOUT, "recompute": "full"}},
    "feed forward again": {"settings": {**LAYOUT, "recompute": "feed_forward"}},
    "experts": {"model": "mixtral-8x7b", "settings": {"expert_parallel": 8}},
    "no communication": {"model": "llama-7b", "framework": "fsdp", "settings": {}},
    "adapters": {"model": "llama-7b", **TUNED},
    "preferences": {"model": "llama-7b", **TUNED, "training_objective": "dpo"},
    "images": {"model": "qwen2.5-vl-7b", **TUNED, "images_per_sample": 2},
}


@pytest.mark.parametrize("efficiency", [0.3, 1.0])
@pytest.mark.parametrize("case", CASES)
def test_the_parts_add_up_to_the_step(case: str, efficiency: float) -> None:
    found = estimated(efficiency, **CASES[case])
    row = first_row(found.table())
    assert sum(by_part(found).values()) == pytest.approx(row["step_time_s"], rel=1e-9)
    columns = [name for name in row if name.startswith("time_") and name.endswith("_s")]
    assert sum(row[name] for name in columns) == pytest.approx(row["step_time_s"], rel=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_hours_are_in_proportion_to_the_inverse_of_the_efficiency(case: str) -> None:
    half, whole = (first_row(estimated(e, **CASES[case]).table()) for e in (0.5, 1.0))
    for name in ("step_time_s", "gpu_hours"):
        assert half[name] == pytest.approx(2 * whole[name], rel=1e-12)


def test_attention_and_feed_forward_take_what_llm_analysis_says() -> None:
    """cli99/llm-analysis at d841e40, examples/llama/outputs_train_ideal, LLaMA 65B at efficiency 1:
    forward 39.65 ms of attention and 70.48 ms of MLP, of 8 sequences on a stage of 8; each of 256
    groups of 8 x 8 GPUs has 8 of 2,048 sequences, one batch of 8 on each of 8 stages."""
    rows = {str(row["operator"]): row for row in TRAINING.operators(estimated(1.0))}
    replicas, stages, together = 2048 // 64, 8, 8
    batches = 2048 / replicas / together / stages
    for name, milliseconds in (("attention", 39.65), ("feed_forward", 70.48)):
        forward = rows[name]["forward_s"] * 1e3
        assert forward == pytest.approx(milliseconds * batches * stages, rel=0.01)


def test_communication_takes_its_time_and_leaves_the_kernels_below_the_peak() -> None:
    """As the time model has it; an efficiency of 1 leaves time for it behind kernels alone."""
    modelled = first_row(estimated(None).table())["time_tensor_parallel_s"]
    assert modelled > 0
    assert by_part(estimated(0.5))["tensor_parallel"] == pytest.approx(modelled)
    assert by_part(estimated(1.0))["tensor_parallel"] == 0.0
    for efficiency in (0.5, 0.9, 1.0):
        parts = by_part(estimated(efficiency))
        step = sum(parts.values())
        assert step - parts["tensor_parallel"] >= efficiency * step * (1 - 1e-9)


def test_an_explanation_has_the_same_parts() -> None:
    found = estimated()
    (step,) = planner.explain(base=found.plan.request).steps
    parts = {part.part.name: part.part.seconds for part in step.parts}
    assert parts == {name: pytest.approx(s) for name, s in by_part(found).items() if s}
    assert step.seconds == pytest.approx(sum(parts.values()))
    bounds = {part.part.name: part.bound for part in step.parts}
    assert (bounds["attention"], bounds["tensor_parallel"]) == ("compute", "link")
