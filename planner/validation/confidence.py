"""How sure a prediction for a plan is: the errors of published runs of its kind."""

from __future__ import annotations

from dataclasses import dataclass

from planner.estimators.share import Setting
from planner.validation.hardware import gpu_class, scale
from planner.validation.intervals import basis_of, interval_of
from planner.validation.models import has_experts
from planner.validation.tables import framework_rule


@dataclass(frozen=True, kw_only=True)
class Confidence:
    """Factors on predictions between which 90 % of published runs of this kind lie.

    Two layouts whose step times differ by less than the factor ``layout`` are a tie.
    ``basis``: measured, transferred or roofline, as in `planner.validation.intervals.basis`.
    """

    step_time: tuple[float, float]
    peak_memory: tuple[float, float]
    layout: float
    basis: str


def confidence(setting: Setting, num_gpus: int) -> Confidence:
    """The confidence in predictions of a setting on a number of GPUs."""
    rule = framework_rule(setting.framework.name)
    silicon = gpu_class(setting.machine.gpu)
    kind = "moe" if has_experts(setting.model) else "dense"
    size = scale(num_gpus, setting.machine.cluster.gpus_per_node)
    keys = (rule.label, silicon, size, kind)
    return Confidence(
        step_time=interval_of("step_time", keys),
        peak_memory=interval_of("peak_memory", keys),
        layout=interval_of("layout", keys)[1],
        basis=basis_of(rule, silicon, kind),
    )
