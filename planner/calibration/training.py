"""What of framework profiles is fitted to measured runs of training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from planner.calibration.parameters import SECTIONS, Parameter
from planner.specs.framework import FrameworkProfile
from planner.validation.prediction import MEMORY
from planner.validation.runs import Run
from planner.validation.training.cases import TrainingCase


def framework_parameters(profile: FrameworkProfile) -> Iterator[Parameter]:
    """The numbers of a framework profile that can be fitted."""
    for owner, kind in SECTIONS.items():
        section = getattr(profile, owner)
        for field in fields(kind):
            value = getattr(section, field.name)
            if isinstance(value, float):
                yield Parameter(owner=owner, name=field.name, shipped=value)


def with_values(
    cases: Sequence[TrainingCase], values: Mapping[Parameter, float]
) -> list[TrainingCase]:
    """The cases under other values of parameters, but those that are not of its GPU or loss."""
    return [_with_values(case, values) for case in cases]


def _with_values(case: TrainingCase, values: Mapping[Parameter, float]) -> TrainingCase:
    framework, efficiency = case.framework, case.gpu.efficiency
    for parameter, value in values.items():
        if case.own_loss and parameter.label == "memory.per_logit":
            continue
        if parameter.owner in SECTIONS:
            section = replace(getattr(framework, parameter.owner), **{parameter.name: value})
            framework = replace(framework, **{parameter.owner: section})
        elif parameter.owner == case.gpu_class:
            changed: dict[str, Any] = {parameter.name: value}
            efficiency = replace(efficiency, **changed)
    return replace(case, framework=framework, gpu=replace(case.gpu, efficiency=efficiency))


def step_and_memory(run: Run, case: TrainingCase) -> Iterator[tuple[str, float, float]]:
    """The measured step time [s], from the throughput where only that is given, and memory."""
    step_time, memory = _step_time(run, case), run.number(f"measured_{MEMORY}")
    if step_time:
        yield "step_time_s", step_time, 1.0
    if memory:
        yield MEMORY, memory, 1.0


def _step_time(run: Run, case: TrainingCase) -> float | None:
    if run.number("measured_step_time_s"):
        return run.number("measured_step_time_s")
    batch = run.number("global_batch_size")
    per_gpu = run.number("measured_tokens_per_s_per_gpu")
    total = run.number("measured_tokens_per_s") or (per_gpu or 0.0) * case.num_gpus
    return batch * case.sequence_length / total if batch and total else None
