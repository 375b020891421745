"""How sure a prediction for a plan is: the errors of published runs of its kind."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.estimators.inference.setting import ServingSetting
from planner.estimators.share import Setting
from planner.validation.hardware import gpu_class, scale
from planner.validation.inference.cases import Mode
from planner.validation.inference.tables import rule_of_profile
from planner.validation.intervals import (
    INFERENCE_TABLES,
    TRAINING_TABLES,
    basis_of,
    interval_of,
)
from planner.validation.models import has_experts
from planner.validation.tables import framework_rule


@dataclass(frozen=True, kw_only=True)
class Confidence:
    """Factors on predictions between which 90 % of published runs of this kind lie.

    Two layouts whose step times differ by less than the factor ``layout`` are a tie.
    ``basis``: measured, transferred or roofline, as in `planner.validation.intervals.basis_of`.
    """

    step_time: tuple[float, float]
    peak_memory: tuple[float, float]
    layout: float
    basis: str


@dataclass(frozen=True, kw_only=True)
class ServingConfidence:
    """Factors on predictions of serving between which 90 % of published runs lie.

    ``throughput`` is that of rates: tokens and requests per second. Two layouts whose speeds
    differ by less than the factor ``layout`` are a tie.
    """

    time_to_first_token: tuple[float, float]
    time_per_output_token: tuple[float, float]
    throughput: tuple[float, float]
    peak_memory: tuple[float, float]
    layout: float
    basis: str


def serving_confidence(setting: ServingSetting, mode: Mode = Mode.ONLINE) -> ServingConfidence:
    """The confidence in predictions of a serving setting: engine, GPU, dense or experts."""
    rule = rule_of_profile(setting.engine, setting.machine.gpu.name)
    silicon = gpu_class(setting.machine.gpu)
    kind = "moe" if has_experts(setting.model) else "dense"
    keys = (rule.label, silicon, mode.value, kind)

    def factors(quantity: str) -> tuple[float, float]:
        return interval_of(quantity, keys, INFERENCE_TABLES)

    slow = factors("throughput")
    return ServingConfidence(
        time_to_first_token=factors("time_to_first_token"),
        time_per_output_token=factors("time_per_output_token"),
        throughput=(1 / slow[1], 1 / slow[0] if slow[0] else math.inf),
        peak_memory=factors("peak_memory"),
        layout=factors("layout")[1],
        basis=basis_of(rule, silicon, kind, INFERENCE_TABLES),
    )


def confidence(setting: Setting, num_gpus: int) -> Confidence:
    """The confidence in predictions of a setting on a number of GPUs."""
    rule = framework_rule(setting.framework.name)
    silicon = gpu_class(setting.machine.gpu)
    kind = "moe" if has_experts(setting.model) else "dense"
    size = scale(num_gpus, setting.machine.cluster.gpus_per_node)
    keys = (rule.label, silicon, size, kind)
    return Confidence(
        step_time=interval_of("step_time", keys, TRAINING_TABLES),
        peak_memory=interval_of("peak_memory", keys, TRAINING_TABLES),
        layout=interval_of("layout", keys, TRAINING_TABLES)[1],
        basis=basis_of(rule, silicon, kind, TRAINING_TABLES),
    )
