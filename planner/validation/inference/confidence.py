"""How sure predictions of inference are."""

from __future__ import annotations

import math

from planner.estimators.inference.setting import ServingSetting
from planner.validation.hardware import gpu_class
from planner.validation.inference.tables import rule_of_profile
from planner.validation.intervals import INFERENCE_TABLES, Confidence, basis_of, interval_of
from planner.validation.models import has_experts


def inference_confidence(setting: ServingSetting, mode: str) -> Confidence:
    """By engine, GPU, mode, dense or experts; ``throughput`` is that of rates."""
    rule = rule_of_profile(setting.engine, setting.machine.gpu.name)
    silicon = gpu_class(setting.machine.gpu)
    kind = "moe" if has_experts(setting.model) else "dense"
    keys = (rule.label, silicon, mode, kind)
    quantities = ("time_to_first_token", "time_per_output_token", "peak_memory")
    factors = {name: interval_of(name, keys, INFERENCE_TABLES) for name in quantities}
    slow = interval_of("throughput", keys, INFERENCE_TABLES)
    factors["throughput"] = (1 / slow[1], 1 / slow[0] if slow[0] else math.inf)
    return Confidence(
        factors=factors,
        layout=interval_of("layout", keys, INFERENCE_TABLES)[1],
        basis=basis_of(rule, silicon, kind, INFERENCE_TABLES),
    )
