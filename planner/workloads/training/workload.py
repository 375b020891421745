"""The training workload, and the texts of its results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from planner.base.arrays import first
from planner.base.csv_cells import Row, Value
from planner.base.enums import AdapterKind, AdapterTargets, ComputePrecision
from planner.base.formatting import format_large
from planner.base.software_enums import AttentionKernel, ExpertCompute, LossKernel
from planner.configurations.configuration_tables import (
    DEGREES,
    SHOWN_COLUMNS,
    TrainingConfigurations,
    format_layout,
    format_value,
)
from planner.configurations.training_rules import unsupported
from planner.estimators.ideal_hardware import ideal_framework
from planner.estimators.training.flat_step import TENSOR_PARALLEL
from planner.estimators.training.flops import adapter_parameter_count
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.estimators.training.step_time import StepTime
from planner.estimators.training.training_estimate import Estimate
from planner.optimize.source import Candidates, Source
from planner.question.names import EXPERT_COMPUTE
from planner.question.terms import terms_about, terms_of
from planner.specs.framework import FrameworkProfile
from planner.specs.model import ModelSpec
from planner.specs.training_workload import TrainingWorkload
from planner.workloads.assumptions import (
    Assumption,
    EvaluatedChoice,
    make_assumption,
    open_network,
    open_parameters,
)
from planner.workloads.image_inputs import format_trained_images, image_answers
from planner.workloads.timed_steps import ALL_MODULES, TimedPart, TimedStep, merge_parts
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
from planner.workloads.training.results import TrainingRuns
from planner.workloads.training.space import (
    IN_CHUNKS,
    IN_ONE_TENSOR,
    LABELS_SHIFTED,
    LOGITS_SHIFTED,
    UNDER_PADDING,
    WIDE_EXPERTS,
    WITHOUT_PADDING,
    alternative_software,
    copies_of_logits_vary,
    has_wide_experts,
    may_pad,
    software_default_notes,
    source_defaults,
    training_inputs,
    training_sources,
    with_shifted_logits,
)
from planner.workloads.workload import ResultWording, Workload, evaluate_single


def question_lines(inputs: TrainingInputs) -> list[str]:
    """Lines on the trained LoRA adapters, passes of preference samples, and images."""
    work = inputs.workload
    lines = [*format_objective(work), *format_trained_images(inputs.model, work)]
    part = f" of the last {work.trained_layers} layers" if work.trained_layers else ""
    if work.trains_part:
        return [f"all weights{part} trained", *lines]
    if not work.is_frozen:
        return lines
    count = format_large(adapter_parameter_count(inputs))
    adapters = format_adapter(work) + part
    if inputs.model.num_experts and work.lora_targets is AdapterTargets.ALL_LINEAR:
        adapters += f", {format_expert_adapters(work)}" if work.adapter.is_low_rank else ""
    lines = [f"{adapters}: {count} parameters trained", *lines]
    if has_wide_experts(inputs):
        lines.append(WIDE_EXPERTS)
    return lines


def format_short(row: Row) -> str:
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


def training_steps(runs: Candidates) -> Mapping[str, TimedStep]:
    """The timed training step under the name ``step``; empty for other candidates."""
    if not isinstance(runs, TrainingRuns):
        return {}
    if runs.estimate.is_flat:
        parts = merge_parts(_flat_parts(runs.estimate))
        return {"step": TimedStep(seconds=first(runs.step_time), parts=parts)}
    return {"step": timed_training(runs.estimate.time)}


def _flat_parts(estimate: Estimate) -> Iterator[TimedPart]:
    """Yield the seconds of each module of a step if the user sets a FLOPS efficiency."""
    works = [
        work
        for operator, _ in estimate.time.operator_times()
        if operator.part == TENSOR_PARALLEL
        for work in operator.works
    ]
    for name, seconds in estimate.flat_modules.items():
        terms = {term: first(value) for term, value in seconds.items()}
        is_sent = name == TENSOR_PARALLEL
        part = TENSOR_PARALLEL if is_sent else "flops_efficiency"
        yield TimedPart.of(name, name, terms, works if is_sent else (), part=part)


def timed_training(time: StepTime, kind: str = "step") -> TimedStep:
    """An optimizer step part by part, as a step of a ``kind``."""
    parts = merge_parts((*_operators(time), *_remaining_parts(time, kind)))
    return TimedStep(seconds=first(time.total), parts=parts)


def _operators(time: StepTime) -> Iterator[TimedPart]:
    """Yield the seconds of each operator of a training step, by time term."""
    for operator, seconds in time.operator_times():
        terms = {name: first(value) for name, value in seconds.items()}
        if operator.part != "compute":
            terms = {operator.part: sum(terms.values())}
        yield TimedPart.of(
            operator.name, operator.module, terms, operator.works, part=operator.part
        )


def _remaining_parts(time: StepTime, kind: str) -> Iterator[TimedPart]:
    """Yield the seconds of each part of the step that belongs to no operator.

    Forward passes of a reference model run the kernels of the other forward passes.
    """
    in_operators: dict[str, float] = {}
    for part in _operators(time):
        for term, seconds in part.terms.items():
            in_operators[term] = in_operators.get(term, 0.0) + seconds
    for name, value in time.parts().items():
        rest = first(value) - in_operators.get(name, 0.0)
        if abs(rest) > 1e-9 * first(value):
            works = time.works.get(name, ())
            like = kind if name == "reference" and not works else ""
            yield TimedPart.of(name, ALL_MODULES, {name: rest}, works, part=name, like=like)


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
    if work.trained_layers:
        answers["trained_layers"] = work.trained_layers
    answers |= sample_answers(work) | objective_answers(work) | image_answers(inputs.model, work)
    if work.training_objective.is_preference and not work.is_frozen:
        return answers
    if not work.is_frozen:
        return answers | {"mtp_num_layers": inputs.model.mtp_num_layers}
    return answers | adapter_answers(work) | {"adapter": str(work.adapter)}


def open_training(chosen: EvaluatedChoice) -> list[Assumption]:
    """The assumptions of a plan: network, number format, recomputation, Unsloth's loss, padding.

    Defaults of the framework's program do not count as assumptions, unless its releases differ.
    """
    inputs: Any = chosen.source.inputs
    defaults = inputs.framework.defaults.values(inputs.workload.adapter)
    names = [name for name in ("precision", "recompute") if name not in defaults]
    assumptions = [*open_network(chosen), *open_parameters(chosen, names)]
    if inputs.framework.memory.loss_room and chosen.is_open("loss_kernel"):
        before = {"fused, before": chosen.with_value("loss_kernel", LossKernel.FUSED)}
        assumptions.append(make_assumption("loss_kernel", IN_CHUNKS, before, of_release=True))
    if copies_of_logits_vary(inputs) and chosen.is_open("loss_kernel"):
        copied = {LOGITS_SHIFTED: chosen.with_setting(with_shifted_logits)}
        assumptions.append(make_assumption("loss", LABELS_SHIFTED, copied))
    if has_wide_experts(inputs) and chosen.is_open(EXPERT_COMPUTE):
        loop = {"loop, before": chosen.with_value(EXPERT_COMPUTE, ExpertCompute.LOOP)}
        assumptions.append(make_assumption(EXPERT_COMPUTE, IN_ONE_TENSOR, loop, of_release=True))
    if chosen.is_open("attention_kernel") and may_pad(inputs):
        masked = {UNDER_PADDING: chosen.with_value("attention_kernel", AttentionKernel.MASKED)}
        assumptions.append(make_assumption("attention_kernel", WITHOUT_PADDING, masked))
    return assumptions


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
        format_short=format_short,
        shown_columns=SHOWN_COLUMNS,
        format_brief=format_layout,
        degrees=DEGREES,
        broken_rule_text=format_broken_options,
        unusual=lambda inputs: position_warnings(inputs.model, inputs.workload.sequence_length),
        question_lines=question_lines,
        results=results,
        of_objective={"throughput": "step_time_s", "memory_headroom": "peak_memory_gib"},
        of_unlike={"throughput": "tokens_per_s"},
    ),
)
