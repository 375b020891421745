"""What a whole run takes: time, GPU-hours, money."""

from __future__ import annotations

from dataclasses import dataclass

from planner.arrays import FloatArray
from planner.estimators.estimate import Estimate
from planner.formulas.money import gpu_seconds, time_to_train
from planner.specs.site import Site


@dataclass(frozen=True, kw_only=True)
class RunCost:
    """A run of ``total_tokens``: seconds, GPU-seconds and USD.

    ``cost`` is NaN where the price is unknown.
    """

    time_to_train: FloatArray
    gpu_seconds: FloatArray
    cost: FloatArray


def run_cost(estimate: Estimate, site: Site) -> RunCost:
    """Cost of the run under every configuration of an estimate, on the terms of a site."""
    num_gpus = estimate.configurations.num_gpus
    duration = time_to_train(
        step_time=estimate.step_time,
        total_tokens=estimate.setting.workload.total_tokens,
        tokens_per_step=estimate.tokens_per_step,
    )
    seconds = gpu_seconds(duration=duration, num_gpus=num_gpus)
    return RunCost(
        time_to_train=duration,
        gpu_seconds=seconds,
        cost=seconds * site.price,
    )
