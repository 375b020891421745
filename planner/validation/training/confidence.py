"""How sure predictions of training are."""

from __future__ import annotations

from planner.estimators.share import Setting
from planner.validation.hardware import gpu_class, scale
from planner.validation.intervals import TRAINING_TABLES, Confidence, basis_of, interval_of
from planner.validation.models import has_experts
from planner.validation.tables import framework_rule


def training_confidence(setting: Setting, num_gpus: int) -> Confidence:
    """By framework, GPU, number of GPUs, dense or experts."""
    rule = framework_rule(setting.framework.name)
    silicon = gpu_class(setting.machine.gpu)
    kind = "moe" if has_experts(setting.model) else "dense"
    size = scale(num_gpus, setting.machine.cluster.gpus_per_node)
    keys = (rule.label, silicon, size, kind)
    quantities = ("step_time", "peak_memory")
    return Confidence(
        factors={name: interval_of(name, keys, TRAINING_TABLES) for name in quantities},
        layout=interval_of("layout", keys, TRAINING_TABLES)[1],
        basis=basis_of(rule, silicon, kind, TRAINING_TABLES),
    )
