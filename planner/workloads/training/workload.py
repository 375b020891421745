"""Training as a workload."""

from __future__ import annotations

from typing import Any

from planner.base.csv_cells import Value
from planner.base.enums import (
    AdapterKind,
)
from planner.base.software_enums import AttentionKernel, LossKernel
from planner.configurations.configuration_tables import (
    DEGREES,
    SHOWN_COLUMNS,
    format_layout,
)
from planner.estimators.ideal_hardware import ideal_framework
from planner.optimize.source import Source
from planner.question.terms import terms_about
from planner.specs.framework import FrameworkProfile
from planner.specs.training_workload import TrainingWorkload
from planner.workloads.assumptions import (
    Assumption,
    EvaluatedChoice,
    make_assumption,
    open_network,
    open_parameters,
)
from planner.workloads.image_inputs import image_answers
from planner.workloads.training.question import (
    SINGLE,
    adapter_answers,
    make_training_question,
    objective_answers,
    sample_answers,
)
from planner.workloads.training.space import (
    IN_CHUNKS,
    UNDER_PADDING,
    WITHOUT_PADDING,
    alternative_software,
    may_pad,
    software_default_notes,
    source_defaults,
    training_inputs,
    training_sources,
)
from planner.workloads.training.wording import (
    format_broken_options,
    format_short,
    position_warnings,
    question_lines,
    results,
    training_steps,
)
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
