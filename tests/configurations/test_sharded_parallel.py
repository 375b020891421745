"""Axes that frameworks have only beside how they shard weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from rows import each

import planner
from planner.base.enums import (
    OptimizerKind,
)
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.configurations.training_rules import unsupported
from planner.specs.catalogue import Catalogue

_FOUR = {"num_gpus": 4, "global_batch_size": 4}
_TENSORS, _SEQUENCES, _EXPERTS = (
    {**_FOUR, name: 2} for name in ("tensor_parallel", "context_parallel", "expert_parallel")
)


@each(
    ("framework", "layout", "stages"),
    [
        # Megatron-FSDP, with Adam and SGD alone and in no pipeline.
        ("megatron-lm", _FOUR, [0, 1, 2, 3]),
        ("megatron-bridge", _FOUR, [0, 1, 2, 3]),
        ("megatron-lm", {**_FOUR, "optimizer": int(OptimizerKind.MUON)}, [0, 1]),
        ("megatron-lm", {**_FOUR, "pipeline_parallel": 2}, [0, 1]),
        ("hai-llm", _FOUR, [0, 1]),
        # FSDP2 goes together with other axes; copies on every rank do not.
        ("hf-fsdp", _TENSORS, [2, 3]),
        ("hf-fsdp", _SEQUENCES, [2, 3]),
        ("hf-fsdp", {**_TENSORS, "context_parallel": 2, "num_gpus": 8}, [2, 3]),
        ("hf-fsdp", {**_TENSORS, "num_gpus": 2}, [0, 2, 3]),
        ("hf-fsdp", _EXPERTS, [2, 3]),
        ("hf-fsdp", {**_FOUR, "expert_parallel": 4}, [0, 2, 3]),
        ("hf-fsdp", {**_EXPERTS, "tensor_parallel": 2}, []),
        ("hf-trainer", _SEQUENCES, [2, 3]),
        ("hf-trainer", _TENSORS, []),
        ("fsdp", _TENSORS, []),
    ],
)
def test_stages_of_zero_that_a_framework_has_beside_a_layout(
    framework: str, layout: dict[str, Any], stages: list[int]
) -> None:
    """Megatron-LM 0.19.2, Accelerate 1.15.0 and axolotl 0.21.0: their checks of arguments."""
    profile = Catalogue().load_framework(framework).spec
    found = []
    for stage in range(4):
        c = TrainingConfigurations.of(**{**layout, "zero_stage": stage})
        if not any(np.any(lacking) for lacking in unsupported(c, profile).values()):
            found.append(stage)
    assert found == stages


def test_a_refusal_names_the_release_that_was_checked() -> None:
    found = planner.estimate(
        model="llama-3.1-8b",
        num_gpus=8,
        gpu="h100",
        framework="hf-fsdp",
        global_batch_size=64,
        settings={"tensor_parallel": 2, "zero_stage": 0},
    )
    told = found.plan.workload.wording.broken_rule_text(found.candidates, "framework")
    assert told == "tensor_parallel=2 (Accelerate 1.15.0, axolotl 0.21.0 was checked)"
