"""The texts of training results: the question, configurations and broken options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from planner.base.enums import (
    AdapterTargets,
    ComputePrecision,
)
from planner.base.formatting import format_large
from planner.configurations.configuration_tables import (
    TrainingConfigurations,
    format_value,
)
from planner.configurations.training_rules import unsupported
from planner.estimators.training.flops import adapter_parameter_count
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.optimize.source import Candidates
from planner.question.terms import terms_of
from planner.specs.model import ModelSpec
from planner.workloads.image_inputs import format_trained_images
from planner.workloads.training.question import (
    format_adapter,
    format_expert_adapters,
    format_objective,
)
from planner.workloads.training.space import training_inputs


def question_lines(inputs: TrainingInputs) -> list[str]:
    """Lines on the trained LoRA adapters, passes of preference samples, and images."""
    work = inputs.workload
    lines = [*format_objective(work), *format_trained_images(inputs.model, work)]
    if not work.is_frozen:
        return lines
    count = format_large(adapter_parameter_count(inputs))
    adapters = format_adapter(work)
    if inputs.model.num_experts and work.lora_targets is AdapterTargets.ALL_LINEAR:
        adapters += f", {format_expert_adapters(work)}" if work.adapter.is_low_rank else ""
    return [f"{adapters}: {count} parameters trained", *lines]


def format_short(row: Mapping[str, object]) -> str:
    """The values of a row that differ from the simplest, as ``--set`` takes them."""
    return " ".join(
        f"{name}={str(row[name]).lower()}"
        for name, term in terms_of("train", "parameter").items()
        if not term.option and row[name] != term.default_value
    )


def format_broken_options(candidates: Candidates, rule: str) -> str:
    """The options of a configuration that the framework does not support, as text."""
    c, inputs = candidates.configurations, training_inputs(candidates.source)
    if not isinstance(c, TrainingConfigurations):
        raise TypeError(f"{candidates!r} is not training.")
    if rule == "attention_kernel":
        kernel = format_value(rule, np.ravel(c.attention_kernel)[0])
        return f"{kernel} on {inputs.machine.gpu.name}"
    if rule == "precision":
        gpu = inputs.machine.gpu
        supported = ", ".join(code for code in ComputePrecision.words() if code in gpu.peak_flops)
        return f"{format_value(rule, np.ravel(c.precision)[0])}; {gpu.name} has {supported}"
    if rule != "framework":
        return ""
    violations = unsupported(c, inputs.framework)
    options = ", ".join(
        f"{option}={format_value(option, np.ravel(getattr(c, option))[0])}"
        for option, is_unsupported in violations.items()
        if np.any(is_unsupported)
    )
    version = inputs.framework.checked_version
    return f"{options} ({version} was checked)" if version and options else options


def results(counts: Sequence[int]) -> tuple[str, ...]:
    """The further columns of the front, for these numbers of GPUs."""
    several = ("tokens_per_s",) if len(counts) > 1 else ()
    names = ("step_time_s", "model_flops_utilization", "peak_memory_gib")
    return (*names, *several, "tokens_per_s_per_gpu")


def position_warnings(model: ModelSpec, sequence_length: int) -> list[str]:
    """A warning if sequences are longer than the model's trained positions; else empty."""
    max_positions = model.max_position_embeddings
    if max_positions is None or sequence_length <= max_positions:
        return []
    return [
        f"Sequences of {sequence_length:,} tokens are beyond the {max_positions:,} positions that "
        f"{model.name} was trained with."
    ]
