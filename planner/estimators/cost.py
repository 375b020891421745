"""What a whole run takes: time, GPU-hours, money."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.estimators.estimate import Estimate
from planner.estimators.goodput import Goodput, goodput
from planner.formulas.goodput import calendar_time
from planner.formulas.money import gpu_seconds, time_to_train
from planner.specs.site import Site


@record(kw_only=True)
class RunCost:
    """A run of ``total_tokens``: seconds, GPU-seconds and USD.

    ``time_to_train`` is without interruptions, ``calendar_time`` with all that `Goodput` has;
    GPU-seconds and cost are those of the calendar time, spare GPUs included. ``cost`` is NaN where
    the price is unknown.
    """

    time_to_train: FloatArray
    goodput: Goodput
    gpu_seconds: FloatArray
    cost: FloatArray

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
    duration = time_to_train(
        step_time=estimate.step_time,
        total_tokens=estimate.setting.workload.total_tokens,
        tokens_per_step=estimate.tokens_per_step,
    )
    lasting = goodput(estimate.setting, site, estimate.configurations.num_gpus)
    seconds = gpu_seconds(duration=duration, num_gpus=lasting.paid_gpus)
    return RunCost(
        time_to_train=duration,
        goodput=lasting,
        gpu_seconds=seconds,
        cost=seconds * site.price,
    )
