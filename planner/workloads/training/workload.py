"""Training as a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner.base.csv_cells import Value
from planner.base.enums import (
    AdapterKind,
    AdapterTargets,
    ComputePrecision,
)
from planner.base.formatting import format_large
from planner.configurations.configuration_tables import (
    DEGREES,
    SHOWN_COLUMNS,
    TrainingConfigurations,
    format_layout,
    format_value,
)
from planner.configurations.training_rules import unsupported
from planner.estimators.ideal_hardware import ideal_framework
from planner.estimators.training.flops import adapter_parameter_count
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.optimize.source import Candidates, Source
from planner.question.terms import terms_about, terms_of
from planner.specs.framework import FrameworkProfile
from planner.specs.model import ModelSpec
from planner.specs.training_workload import TrainingWorkload
from planner.workloads.assumptions import (
    Assumption,
    EvaluatedChoice,
    open_network,
    open_parameters,
)
from planner.workloads.image_inputs import format_trained_images, image_answers
from planner.workloads.training.question import (
    SINGLE,
    adapter_answers,
    format_adapter,
    format_expert_adapters,
    format_objective,
    make_training_question,
    objective_answers,
    sample_answers,
)
from planner.workloads.training.software_choices import alternative_software, software_default_notes
from planner.workloads.training.space import source_defaults, training_inputs, training_sources
from planner.workloads.training.timed_steps import training_steps
from planner.workloads.workload import (
    ResultWording,
    Workload,
    evaluate_single,
)

_FRONT = ("throughput", "memory_headroom")


def _can_train(work: TrainingWorkload, framework: FrameworkProfile) -> bool:
    """True if a framework can train the requested model."""
    if framework.rollouts is not None:
        return False
    if work.has_virtual_tokens:
        return framework.virtual_tokens
    return framework.adapters if work.is_frozen else framework.whole_models


def _reproducing_answers(source: Source) -> dict[str, Value]:
    """The answers, by question, with which a plan's open values are reproduced."""
    inputs = training_inputs(source)
    work = inputs.workload
    answers: dict[str, Value] = {"gpu": source.gpu, "framework": source.profile}
    answers |= {
        name: source.question_columns[name]
        for name in (*terms_about("training_amount"), "reliability")
    }
    answers |= sample_answers(work) | objective_answers(work) | image_answers(inputs.model, work)
    if work.training_objective.is_preference and not work.is_frozen:
        return answers
    if not work.is_frozen:
        return answers | {"mtp_num_layers": inputs.model.mtp_num_layers}
    return answers | adapter_answers(work) | {"adapter": str(work.adapter)}


def _question_lines(inputs: TrainingInputs) -> list[str]:
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


def _format_short(row: Mapping[str, object]) -> str:
    """The values of a row that differ from the simplest, as ``--set`` takes them."""
    return " ".join(
        f"{name}={str(row[name]).lower()}"
        for name, term in terms_of("train", "parameter").items()
        if not term.option and row[name] != term.default_value
    )


def _format_broken_options(candidates: Candidates, rule: str) -> str:
    """The options of a configuration that the framework does not support, as text."""
    c, inputs = candidates.configurations, training_inputs(candidates.source)
    if not isinstance(c, TrainingConfigurations):
        raise TypeError(f"{candidates!r} is no training.")
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


def _results(counts: Sequence[int]) -> tuple[str, ...]:
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


def open_training(chosen: EvaluatedChoice) -> list[Assumption]:
    """The assumptions of a training plan: network, number format, recomputation.

    Defaults of the framework's program do not count as assumptions.
    """
    inputs: Any = chosen.source.inputs
    defaults = inputs.framework.defaults.values(inputs.workload.adapter)
    names = [name for name in ("precision", "recompute") if name not in defaults]
    return [*open_network(chosen), *open_parameters(chosen, names)]


TRAIN = Workload(
    name="train",
    profile_kind="framework",
    single=SINGLE,
    ask=make_training_question,
    sources=training_sources,
    objectives=lambda _: _FRONT,
    ideal=ideal_framework,
    reproducing_answers=_reproducing_answers,
    evaluate_once=evaluate_single,
    advice_rows=30_000_000,
    adapters=(AdapterKind.NONE, AdapterKind.LORA, AdapterKind.QLORA),
    suits=lambda question, framework: _can_train(question.work, framework),
    usual=software_default_notes,
    unset_defaults=source_defaults,
    others=alternative_software,
    open_facts=open_training,
    comparison_columns=("calendar_time_days", "cost_usd", "num_gpus", "energy_kwh"),
    ties=terms_about("throughput", "train"),
    timed=training_steps,
    lengths=terms_about("length", "train"),
    batch="micro_batch_size",
    wording=ResultWording(
        noun="configuration",
        format_short=_format_short,
        shown_columns=SHOWN_COLUMNS,
        format_brief=format_layout,
        degrees=DEGREES,
        broken_rule_text=_format_broken_options,
        unusual=lambda inputs: position_warnings(inputs.model, inputs.workload.sequence_length),
        question_lines=_question_lines,
        results=_results,
        of_objective={"throughput": "step_time_s", "memory_headroom": "peak_memory_gib"},
        of_unlike={"throughput": "tokens_per_s"},
    ),
)
