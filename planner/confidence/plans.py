"""How sure a prediction for a plan is: the errors of published runs of its kind."""

from __future__ import annotations

import math
from typing import Any

from planner.base.training_objectives import TrainingObjective
from planner.confidence.classes import (
    batching,
    gpu_class,
    has_experts,
    scale,
    training_task,
)
from planner.confidence.engines import rule_of_profile
from planner.confidence.fits import MemoryErrors, default_fit_confidence, memory_errors
from planner.confidence.frameworks import framework_rule
from planner.confidence.intervals import (
    INFERENCE_TABLES,
    TRAINING_TABLES,
    Confidence,
    basis_of,
    interval_of,
)

TRAINING, INFERENCE = "training", "inference"


def errors_of_memory(published: str, setting: Any, num_gpus: int) -> MemoryErrors:
    """How needed over predicted memory of a setting on so many GPUs is distributed."""
    if published == TRAINING:
        rule = framework_rule(setting.framework.name)
        kind = "moe" if has_experts(setting.model) else "dense"
        size = scale(num_gpus, setting.machine.cluster.gpus_per_node)
        return memory_errors(TRAINING_TABLES, rule.label, kind, size)
    engine = rule_of_profile(setting.engine, setting.machine.gpu.name)
    return memory_errors(INFERENCE_TABLES, engine.label, batching(setting.engine), "")


def sure_share(published: str, setting: Any, num_gpus: int, confidence: float | None) -> float:
    """The share of the usable memory that a prediction may reach to fit this surely.

    None: as surely as makes both wrong verdicts on published runs as rare.
    """
    tables = TRAINING_TABLES if published == TRAINING else INFERENCE_TABLES
    surely = default_fit_confidence(tables) if confidence is None else confidence
    return errors_of_memory(published, setting, num_gpus).share(surely)


def confidence(published: str, setting: Any, num_gpus: int) -> Confidence:
    """The confidence in predictions of a setting on so many GPUs.

    ``published`` is what runs of its kind are called: ``training``, or the mode of a run of
    inference (`planner.validation.inference.cases.Mode`).
    """
    if published == TRAINING:
        return _of_training(setting, num_gpus)
    return _of_inference(setting, published)


def _of_training(setting: Any, num_gpus: int) -> Confidence:
    """By framework, GPU, number of GPUs, task, dense or experts."""
    rule = framework_rule(setting.framework.name)
    silicon = gpu_class(setting.machine.gpu)
    kind = "moe" if has_experts(setting.model) else "dense"
    size = scale(num_gpus, setting.machine.cluster.gpus_per_node)
    work = setting.workload
    tunes = work.is_frozen or work.training_objective is not TrainingObjective.PRETRAIN
    keys = (rule.label, silicon, size, training_task(tunes=tunes), kind)
    quantities = ("step_time", "peak_memory")
    basis = basis_of(rule, silicon, kind, TRAINING_TABLES)
    return Confidence(
        factors={
            name: interval_of(name, keys, TRAINING_TABLES, basis, rule.profile)
            for name in quantities
        },
        layout=interval_of("layout", keys, TRAINING_TABLES)[1],
        basis=basis,
    )


def _of_inference(setting: Any, mode: str) -> Confidence:
    """By engine, GPU, mode, dense or experts; ``throughput`` is that of rates."""
    rule = rule_of_profile(setting.engine, setting.machine.gpu.name)
    silicon = gpu_class(setting.machine.gpu)
    kind = "moe" if has_experts(setting.model) else "dense"
    keys = (rule.label, silicon, mode, kind)
    quantities = ("time_to_first_token", "time_per_output_token", "peak_memory")
    basis = basis_of(rule, silicon, kind, INFERENCE_TABLES)
    factors = {
        name: interval_of(name, keys, INFERENCE_TABLES, basis, rule.profile) for name in quantities
    }
    slow = interval_of("throughput", keys, INFERENCE_TABLES, basis, rule.profile)
    factors["throughput"] = (1 / slow[1], 1 / slow[0] if slow[0] else math.inf)
    return Confidence(
        factors=factors,
        layout=interval_of("layout", keys, INFERENCE_TABLES)[1],
        basis=basis,
    )
