"""Confidence of predictions for a plan: the errors of published runs of its classes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from planner.base.training_aliases import TrainingObjective
from planner.confidence.error_classes import (
    batching_kind,
    gpu_class,
    has_experts,
    scale_class,
    training_task,
)
from planner.confidence.evidence import (
    BURST,
    CLOSED,
    OPEN_LOOP,
    STATIC,
    Conditions,
    evidence_of,
    group_of_code,
    layer_kinds,
    unmeasured_release,
    with_missing,
)
from planner.confidence.intervals import (
    INFERENCE_TABLES,
    MEASURED,
    TRAINING_TABLES,
    Confidence,
    MemoryErrors,
    default_fit_confidence,
    interval_of,
    layout_tie_factor,
    memory_errors,
)
from planner.confidence.profile_rules import (
    first_run_slowdown,
    framework_rule,
    is_first_run,
    rule_of_profile,
    usual_first_run_slowdown,
)
from planner.errors import PlannerError
from planner.estimators.machine import Machine
from planner.estimators.power_draw import power_range
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.formulas.power import range_of_product
from planner.question.names import PEAK_MEMORY
from planner.question.terms import terms_about
from planner.specs.gpu import is_assumed
from planner.specs.model import ModelSpec
from planner.specs.operating_terms import OperatingTerms
from planner.specs.power import RangedValue

if TYPE_CHECKING:
    from planner.estimators.inference.batch_share import ServingInputs


# Profiles that were fitted to runs whose tensor parallelism goes over nodes.
_MEASURED_OVER_NODES = ("fastertransformer",)

# Largest measured over predicted time of servers without kernels of their own, or its inverse, of
# gpt-oss-20b and gpt-oss-120b in SGLang 0.5.3 and 0.5.4 on H100 and A100: times to first token, per
# output token and per request (GPUStack's performance lab).
_WITHOUT_KERNELS = 3.0

# Predicted over measured time of the one published system with attention and FFN on separate GPUs,
# of the engine's kernels in place of its own (planner/validation/measurements/attention_ffn.csv).
_ENGINE_KERNELS = 1.7


def training_memory_errors(inputs: TrainingInputs, num_gpus: int) -> MemoryErrors:
    """The distribution of needed over predicted memory of training runs."""
    rule, size = framework_rule(inputs.framework.name), _cluster_scale(inputs.machine, num_gpus)
    kind, task = _model_kind(inputs.model), _task(inputs)
    return memory_errors(TRAINING_TABLES, rule.label, kind, size, task)


def _task(inputs: TrainingInputs) -> str:
    """The task of a training run in the tables of errors."""
    work = inputs.workload
    tunes = work.is_frozen or work.training_objective is not TrainingObjective.PRETRAIN
    return training_task(tunes=tunes)


def serving_memory_errors(inputs: ServingInputs) -> MemoryErrors:
    """The distribution of needed over predicted memory of an engine."""
    rule = rule_of_profile(inputs.engine, inputs.machine.gpu.name)
    return memory_errors(INFERENCE_TABLES, rule.label, batching_kind(inputs.engine))


def training_share(inputs: TrainingInputs, num_gpus: int, confidence: float | None) -> float:
    """The share of usable memory up to which a predicted peak counts as fitting.

    The share follows from the ``confidence``. None: the confidence at which false "fits" and
    false "does not fit" on published runs are equally rare.
    """
    surely = default_fit_confidence(TRAINING_TABLES) if confidence is None else confidence
    return training_memory_errors(inputs, num_gpus).usable_share(surely)


def serving_share(inputs: ServingInputs, confidence: float | None) -> float:
    """The share of usable memory up to which a predicted peak counts as fitting."""
    surely = default_fit_confidence(INFERENCE_TABLES) if confidence is None else confidence
    return serving_memory_errors(inputs).usable_share(surely)


def training_confidence(inputs: TrainingInputs, num_gpus: int, group: int = 0) -> Confidence | None:
    """The 90 % intervals of training predictions; None at a roofline or a set efficiency.

    ``group``: layout and number format (`planner.confidence.evidence.training_groups`).
    """
    machine, work = inputs.machine, inputs.workload
    if has_set_efficiency(machine):
        return None
    rule, silicon = framework_rule(inputs.framework.name), gpu_class(machine.gpu)
    task = _task(inputs)
    keys = (
        rule.label, silicon, _cluster_scale(machine, num_gpus), task, _model_kind(inputs.model)
    )  # fmt: skip
    layout, number_format, _ = group_of_code(group)
    conditions = Conditions(
        gpu_class=silicon,
        work=task,
        layout=layout,
        number_format=number_format,
        layer_kinds=layer_kinds(inputs.model),
    )
    evidence = evidence_of(
        rule, machine.gpu.name, conditions, TRAINING_TABLES, is_assumed=_is_assumed(machine)
    )
    if work.training_objective.needs_rollouts:  # no published run is an update of this kind
        evidence = replace(with_missing(evidence, "updates from rollouts"), runs=0)
    factors = {
        name: training_memory_errors(inputs, num_gpus).interval
        if name == PEAK_MEMORY
        else interval_of(name, keys, TRAINING_TABLES, evidence.basis)
        for name in terms_about("measured", "train")
    }
    basis, slower = evidence.basis, first_run_slowdown(rule.label)
    is_first = is_first_run(work.tuned, work.training_objective)
    if work.tuned is None and has_experts(inputs.model) and basis != MEASURED and not is_first:
        # No tuned run of experts like it is published: it may be as slow as first runs usually are.
        is_first, slower = True, usual_first_run_slowdown(rule.label)
    if slower > 1 and is_first:
        low, high = factors["step_time"]
        factors["step_time"] = low / inputs.slowdown, high * slower / inputs.slowdown
        basis += ", first run" + (" (--tuned otherwise)" if work.tuned is None else "")
    return Confidence(
        factors=factors,
        layout_tie_factor=layout_tie_factor(keys, TRAINING_TABLES),
        basis=basis,
        runs=evidence.runs,
        missing=evidence.missing,
    )


def serving_confidence(
    inputs: ServingInputs, mode: str, group: int = 0, *, spans_nodes: bool = False
) -> Confidence | None:
    """The 90 % intervals of serving predictions; None at a roofline or a set efficiency.

    ``mode``: mode of an inference run (`planner.validation.inference.cases.Mode`). ``group``:
    layout, number format and load (`planner.confidence.evidence.serving_groups`).
    ``spans_nodes``: tensor parallelism crosses nodes; few such runs are published.
    """
    machine, work = inputs.machine, inputs.workload
    if has_set_efficiency(machine):
        return None
    rule, silicon = rule_of_profile(inputs.engine, machine.gpu.name), gpu_class(machine.gpu)
    layout, number_format, load = group_of_code(group)
    is_offline = mode == "static_batch"
    arrivals = OPEN_LOOP if load == OPEN_LOOP else BURST if work.num_requests else CLOSED
    conditions = Conditions(
        gpu_class=silicon,
        work=STATIC if is_offline else arrivals,
        layout=layout,
        number_format=number_format,
        layer_kinds=layer_kinds(inputs.model),
    )
    setup = "" if is_offline else "tuned" if inputs.slowdown == 1.0 else "own"
    keys = (
        rule.label, silicon, mode, setup, "" if is_offline else load, _model_kind(inputs.model)
    )  # fmt: skip
    evidence = evidence_of(
        rule, machine.gpu.name, conditions, INFERENCE_TABLES, is_assumed=_is_assumed(machine)
    )
    has_no_kernels = _lacks_expert_kernels(inputs)
    over_nodes = spans_nodes and rule.profile not in _MEASURED_OVER_NODES
    evidence = with_missing(
        evidence,
        "tensor parallelism over nodes" if over_nodes else "",
        "decode context parallelism" if work.decode_context_parallel > 1 else "",
        unmeasured_release(rule, inputs.engine_version),
        "fast kernels of these experts" if has_no_kernels else "",
    )
    factors = {
        name: serving_memory_errors(inputs).interval
        if name == PEAK_MEMORY
        else interval_of(name, keys, INFERENCE_TABLES, evidence.basis)
        for name in (*terms_about("measured", "serve"), "throughput")
    }
    if has_no_kernels or "attention_ffn" in layout:
        margin = _WITHOUT_KERNELS if has_no_kernels else _ENGINE_KERNELS
        for name in factors.keys() - {PEAK_MEMORY}:
            low, high = factors[name]
            factors[name] = low / margin, high * margin
    low, high = factors["throughput"]
    factors["throughput"] = 1 / high, 1 / low if low else math.inf
    return Confidence(
        factors=factors,
        layout_tie_factor=layout_tie_factor(keys, INFERENCE_TABLES),
        basis=evidence.basis,
        runs=evidence.runs,
        missing=evidence.missing,
    )


def _lacks_expert_kernels(inputs: ServingInputs) -> bool:
    """Whether the engine has no kernels for the published experts on this GPU generation.

    Those of Marlin, which others of these types take, add no biases.
    """
    stored = inputs.model.expert_quantization or inputs.model.quantization
    return inputs.kernels.biased_experts and stored in inputs.kernels.slow_experts


def with_energy(
    confidence: Confidence | None,
    machine: Machine,
    site: OperatingTerms,
    num_gpus: float,
    boards: RangedValue,
) -> Confidence | None:
    """The intervals with those of ``power`` and ``energy``; unchanged without power data.

    The interval of energy combines those of power and time.
    """
    if confidence is None or site.power is None:
        return confidence
    power = power_range(machine, site.power, num_gpus, boards)
    energy = range_of_product(_time_factors(confidence.factors), power)
    return replace(confidence, factors={**confidence.factors, "power": power, "energy": energy})


def _time_factors(factors: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """Lower and upper factor on the time of a run, or of a number of tokens."""
    for name in ("calendar_time", "step_time"):
        if name in factors:
            return factors[name]
    low, high = factors["throughput"]
    return 1 / high, 1 / low if low else math.inf


def _model_kind(model: ModelSpec) -> str:
    return "moe" if has_experts(model) else "dense"


def _cluster_scale(machine: Machine, num_gpus: int) -> str:
    return scale_class(num_gpus, machine.cluster.gpus_per_node)


def has_set_efficiency(machine: Machine) -> bool:
    """Whether the request replaces predictions by bounds or by a share of the bandwidth."""
    return machine.ideal or machine.memory_efficiency is not None


def _is_assumed(machine: Machine) -> bool:
    """True if the matrix efficiency of the machine's GPU is assumed, not published."""
    try:
        provenance = machine.catalogue.load_gpu(machine.gpu.name).provenance
    except PlannerError:
        return False
    return is_assumed(provenance, "gemm.bf16.compute_fraction")
