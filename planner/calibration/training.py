"""What of framework profiles is fitted to measured runs of training."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from planner.calibration.parameters import SECTIONS, Parameter
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
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
    known: dict[tuple[int, bool], FrameworkProfile] = {}
    found = []
    for case in cases:
        key = (id(case.framework), case.own_loss)
        if key not in known:
            known[key] = _framework(case, values)
        found.append(replace(case, framework=known[key], gpu=_gpu(case, values)))
    return found


def _framework(case: TrainingCase, values: Mapping[Parameter, float]) -> FrameworkProfile:
    sections: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for parameter, value in values.items():
        is_own = case.own_loss and parameter.label == "memory.per_logit"
        if parameter.owner in SECTIONS and not is_own:
            sections[parameter.owner][parameter.name] = value
    changed: dict[str, Any] = {
        owner: replace(getattr(case.framework, owner), **own) for owner, own in sections.items()
    }
    return replace(case.framework, **changed)


def _gpu(case: TrainingCase, values: Mapping[Parameter, float]) -> GpuSpec:
    own: dict[str, Any] = {
        parameter.name: value
        for parameter, value in values.items()
        if parameter.owner not in SECTIONS and parameter.owner == case.gpu_class
    }
    return replace(case.gpu, efficiency=replace(case.gpu.efficiency, **own)) if own else case.gpu


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
