"""What a whole run takes: time, GPU-hours, money, energy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.arrays import FloatArray
from planner.estimators.estimate import Estimate
from planner.estimators.goodput import Goodput, goodput
from planner.formulas.goodput import calendar_time
from planner.formulas.money import energy, gpu_seconds, time_to_train
from planner.specs.site import Site


@dataclass(frozen=True, kw_only=True)
class RunCost:
    """A run of ``total_tokens``: seconds, GPU-seconds, USD and joules.

    ``time_to_train`` is without interruptions, ``calendar_time`` with all that `Goodput` has;
    GPU-seconds, cost and energy are those of the calendar time, spare GPUs included. ``cost`` and
    ``energy`` are NaN where the price or the power is unknown. Energy is that of GPUs at their
    thermal design power, without hosts and cooling.
    """

    time_to_train: FloatArray
    goodput: Goodput
    gpu_seconds: FloatArray
    cost: FloatArray
    energy: FloatArray

    @property
    def calendar_time(self) -> FloatArray:
        """Seconds from start to end."""
        return calendar_time(duration=self.time_to_train, goodput=self.goodput.ratio)

    @property
    def interruptions(self) -> FloatArray:
        """How many are expected from start to end."""
        return np.asarray(self.calendar_time * self.goodput.rate)


def run_cost(estimate: Estimate, site: Site) -> RunCost:
    """Cost of the run under every configuration of an estimate, on the terms of a site."""
    gpu = estimate.setting.machine.gpu
    duration = time_to_train(
        step_time=estimate.step_time,
        total_tokens=estimate.setting.workload.total_tokens,
        tokens_per_step=estimate.tokens_per_step,
    )
    lasting = goodput(estimate.setting, site, estimate.configurations.num_gpus)
    paid = lasting.paid_gpus
    seconds = gpu_seconds(duration=duration, num_gpus=paid)
    power = np.nan if gpu.thermal_design_power is None else gpu.thermal_design_power
    return RunCost(
        time_to_train=duration,
        goodput=lasting,
        gpu_seconds=seconds,
        cost=seconds * site.price,
        energy=energy(duration=duration, num_gpus=paid, power_per_gpu=power),
    )
