"""Time, GPU-hours and cost of a full run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.enums import Contract
from planner.base.records import record
from planner.base.training_aliases import TrainingObjective
from planner.estimators.ownership_cost import Charge, charge
from planner.estimators.training.flops import adapter_parameter_count
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.estimators.training.training_estimate import Estimate
from planner.formulas import goodput as formulas
from planner.formulas.cost import time_to_train
from planner.formulas.goodput import calendar_time
from planner.formulas.power import range_of_product
from planner.layers.model import count_parameters
from planner.specs.operating_terms import (
    NO_CAMPAIGN,
    Campaign,
    Checkpoints,
    OperatingTerms,
    ReliabilitySpec,
)

LOSSES = ("checkpoints", "work_again", "recoveries", "stragglers", "campaign")
"""What takes calendar time from training; the campaign is what is more than one undisturbed run."""


@record(kw_only=True)
class Goodput:
    """Times in seconds, sizes in bytes; arrays have the shape of the numbers of GPUs.

    Fields are single numbers if all configurations share them. ``rate``: interruptions per second;
    ``left``: share of the time that remains after each of ``LOSSES``.
    """

    num_gpus: FloatArray
    num_spare_gpus: FloatArray
    rate: FloatArray
    checkpoint_size: float
    checkpoint_time: FloatArray
    blocking_time: FloatArray
    checkpoint_interval: FloatArray
    recovery_time: FloatArray
    left: Mapping[str, FloatArray]

    @property
    def ratio(self) -> FloatArray:
        """Time to train over calendar time, in (0, 1]."""
        return formulas.effective_training_time_ratio(*self.left.values())

    def lost(self) -> Mapping[str, FloatArray]:
        """Return the share of calendar time lost to each cause in ``LOSSES``.

        Their joint loss is split in proportion to the logarithms of the remaining shares.
        """
        log_ratio = np.log(self.ratio)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = {name: np.log(np.maximum(share, 1e-300)) for name, share in self.left.items()}
            log_sum = sum(logs.values())
            scale = np.where(log_ratio < 0, (1 - self.ratio) / np.abs(log_sum), 0.0)
        return {name: np.asarray(scale * np.abs(log)) for name, log in logs.items()}


def goodput(
    inputs: TrainingInputs, site: OperatingTerms, num_gpus: FloatArray, end: str = "typical"
) -> Goodput:
    """Return the goodput (useful share of calendar time) of training runs on ``num_gpus`` GPUs.

    ``end`` chooses among published frequencies of interruptions: ``low`` GPU-time between them,
    ``typical`` or ``high``.
    """
    n = np.asarray(num_gpus, dtype=np.float64)
    first = n.flat[0] if n.size else np.nan
    n = np.asarray(first) if np.all(n == first) else n
    size, node = checkpoint_size(inputs), inputs.machine.cluster.gpus_per_node
    is_spot, campaign = site.contract == Contract.SPOT, campaign_of(inputs, site).typical
    return _goodput(site.reliability, is_spot, size, node, n, end, campaign)


def campaign_of(inputs: TrainingInputs, site: OperatingTerms) -> Campaign:
    """Time of a pretraining run beyond its steps and failures; none for other objectives."""
    work, campaign = inputs.workload, site.reliability.campaign
    is_pretraining = work.training_objective is TrainingObjective.PRETRAIN and not work.is_frozen
    return campaign if campaign is not None and is_pretraining else NO_CAMPAIGN


def _goodput(
    spec: ReliabilitySpec,
    is_spot: bool,
    size: float,
    node: int,
    n: FloatArray,
    end: str,
    campaign: float = 1.0,
) -> Goodput:
    """Return the goodput of n GPUs, ``node`` GPUs per node, checkpoints of ``size`` [byte]."""
    rate = formulas.interruption_rate(
        num_gpus=n,
        gpu_time_per_interruption=spec.gpu_time("interruption", end),
        gpu_time_per_preemption=spec.gpu_time("preemption", end) if is_spot else np.inf,
    )
    write, blocking, interval = _checkpoints(spec.checkpoints, size, np.ceil(n / node), rate)
    recovery = spec.recovery.total + write  # it is read as fast as it is written
    parts = formulas.training_time_parts(
        interval=interval,
        blocking_time=blocking,
        write_time=write,
        recovery_time=recovery,
        rate=rate,
    )
    return Goodput(
        num_gpus=n,
        num_spare_gpus=formulas.spare_gpus(
            num_gpus=n, gpus_per_node=node, spare_share=spec.spare_share
        ),
        rate=rate,
        checkpoint_size=size,
        checkpoint_time=write,
        blocking_time=blocking,
        checkpoint_interval=interval,
        recovery_time=recovery,
        left=dict(
            zip(
                LOSSES,
                (*parts, _at_pace_of_slowest(spec, n), np.asarray(1 / campaign)),
                strict=True,
            )
        ),
    )


def _checkpoints(
    spec: Checkpoints, size: float, num_nodes: FloatArray, rate: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return seconds to write a checkpoint, seconds that block training, and the interval."""
    write = formulas.checkpoint_time(
        checkpoint_size=size,
        num_nodes=num_nodes,
        bandwidth_per_node=spec.bandwidth_per_node or np.inf,
        total_bandwidth=spec.total_bandwidth or np.inf,
    )
    blocking = spec.blocking_share * write
    interval = formulas.optimal_interval(blocking_time=blocking, write_time=write, rate=rate)
    if spec.interval:
        interval = np.maximum(spec.interval, write - blocking)
    return write, blocking, interval


def checkpoint_size(inputs: TrainingInputs) -> float:
    """Return bytes of a checkpoint of the trained weights: the model or the adapters."""
    states = inputs.framework.states
    if inputs.workload.is_frozen:
        trained = adapter_parameter_count(inputs)
    else:
        trained = count_parameters(inputs.model).total
    return float(
        formulas.checkpoint_bytes(
            trained_parameters=float(trained),
            weight_bytes=states.weight,
            optimizer_bytes=states.optimizer,
        )
    )


def calendar_factors(
    inputs: TrainingInputs, site: OperatingTerms, num_gpus: float
) -> tuple[float, float]:
    """Return lowest and highest factor on calendar time, by published failure rates."""
    is_spot, size = site.contract == Contract.SPOT, checkpoint_size(inputs)
    node = inputs.machine.cluster.gpus_per_node
    failures = _calendar_factors(site.reliability, is_spot, size, node, float(num_gpus))
    campaign = campaign_of(inputs, site)
    ends = campaign.low / campaign.typical, campaign.high / campaign.typical
    return range_of_product(failures, ends)


@lru_cache(maxsize=1024)
def _calendar_factors(
    spec: ReliabilitySpec, is_spot: bool, size: float, node: int, num_gpus: float
) -> tuple[float, float]:
    """Return factors on calendar time with rare and with frequent failures (cached)."""
    often, typical, rare = (
        float(_goodput(spec, is_spot, size, node, np.asarray(num_gpus), end).ratio)
        for end in ("low", "typical", "high")
    )
    return typical / rare, typical / often


def _at_pace_of_slowest(spec: ReliabilitySpec, num_gpus: FloatArray) -> FloatArray:
    """Return the share of full speed of ``num_gpus`` GPUs with stragglers; 1 without data."""
    slow = spec.stragglers
    if slow is None:
        return np.ones(())
    return formulas.straggler_ratio(
        num_gpus=num_gpus,
        gpu_time_per_slowdown=slow.gpu_hours_per_slowdown,
        slowdown_duration=slow.duration,
        lost_share=slow.lost_share,
    )


@record(kw_only=True)
class RunCost:
    """A run of ``total_tokens``: seconds, GPU-seconds and USD.

    ``time_to_train`` is without interruptions, ``calendar_time`` with all that `Goodput` has;
    GPU-seconds are those of the calendar time, of all GPUs that are paid for, including spares and
    unused GPUs of a rack or node. ``cost`` is the contract price of these, as
    `planner.estimators.ownership_cost` charges it; NaN where the price is unknown.
    """

    time_to_train: FloatArray
    goodput: Goodput
    charge: Charge

    @property
    def gpu_seconds(self) -> FloatArray:
        """GPU-seconds of the run."""
        return self.charge.used

    @property
    def cost(self) -> FloatArray:
        """USD."""
        return self.charge.cost

    @property
    def signed_gpu_hours(self) -> FloatArray | None:
        """GPU-hours of the contract; None without a term."""
        outlay = self.charge.outlay
        return None if outlay is None else np.where(np.isnan(outlay), np.nan, self.charge.signed)

    @property
    def unused_gpu_hours(self) -> FloatArray | None:
        """GPU-hours of the contract that the run does not use."""
        outlay = self.charge.outlay
        return None if outlay is None else np.where(np.isnan(outlay), np.nan, self.charge.unused)

    @property
    def outlay(self) -> FloatArray | None:
        """USD for all that is signed."""
        return self.charge.outlay

    @property
    def contract_break_even(self) -> FloatArray | None:
        """The share of the term with work from which on it is cheaper than on demand."""
        return self.charge.break_even

    @property
    def calendar_time(self) -> FloatArray:
        """Seconds from start to end."""
        return calendar_time(duration=self.time_to_train, goodput=self.goodput.ratio)

    @property
    def interruptions(self) -> FloatArray:
        """Expected number of interruptions from start to end."""
        return np.asarray(self.calendar_time * self.goodput.rate)


def run_cost(
    inputs: TrainingInputs,
    site: OperatingTerms,
    *,
    duration: FloatArray,
    num_gpus: FloatArray,
    on_other_terms: tuple[OperatingTerms, FloatArray] | None = None,
) -> RunCost:
    """Return the cost [USD] of runs that train for ``duration`` [s] on ``num_gpus`` GPUs.

    Some of the GPUs can be paid ``on_other_terms``; spare GPUs are paid as the others are.
    """
    run_goodput = goodput(inputs, site, num_gpus)
    calendar = calendar_time(duration=duration, goodput=run_goodput.ratio)
    paid = run_goodput.num_gpus + run_goodput.num_spare_gpus
    if on_other_terms is None:
        charged = charge(site, duration=calendar, num_gpus=paid)
    else:
        other_site, others = on_other_terms
        charged = charge(site, duration=calendar, num_gpus=paid - others).plus(
            charge(other_site, duration=calendar, num_gpus=others)
        )
    return RunCost(time_to_train=duration, goodput=run_goodput, charge=charged)


def training_cost(estimate: Estimate, site: OperatingTerms, total_tokens: float) -> RunCost:
    """Return the cost [USD] of a run of ``total_tokens`` with each configuration of an estimate."""
    duration = time_to_train(
        step_time=estimate.step_time,
        total_tokens=total_tokens,
        tokens_per_step=estimate.tokens_per_step,
    )
    return run_cost(
        estimate.inputs, site, duration=duration, num_gpus=estimate.configurations.num_gpus
    )
