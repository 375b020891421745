"""What data parallelism exchanges: gradients, and weights that ZeRO shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.arrays import CodeArray, FloatArray, Numeric
from planner.configurations.training import TrainingConfigurations
from planner.enums import ZeroStage
from planner.estimators.frozen import gathered_bytes
from planner.estimators.gradients import Gradients
from planner.estimators.sharding import StageParameters
from planner.estimators.share import Setting


@dataclass(frozen=True, kw_only=True)
class DataParallelTime:
    """Seconds of communication, before overlap.

    ``layer_forward`` and ``layer_backward``: per group, one layer and micro-batch of
    ZeRO-2 and ZeRO-3. ``step``: per stage, at the end of a step.
    """

    layer_forward: tuple[FloatArray, ...]
    layer_backward: tuple[FloatArray, ...]
    end_forward: FloatArray
    end_backward: FloatArray
    step: tuple[FloatArray, ...]


def data_parallel_time(
    setting: Setting, c: TrainingConfigurations, parameters: StageParameters
) -> DataParallelTime:
    """Communication of every configuration over its data-parallel and expert groups."""
    states = setting.framework.states
    gradients = Gradients.of(setting, c.precision)
    exchange = _exchange(setting, parameters)
    zero = c.zero_stage
    forward, backward = [], []
    of_layer, of_end = gathered_bytes(setting, c.precision)
    for (dense, experts), trained, width in zip(
        _units(parameters),
        _units(parameters.trained),
        [*(of_layer for _ in parameters.layer_dense), of_end],
        strict=True,
    ):
        gather = exchange("all_gather", width, dense, experts)
        scatter = exchange("reduce_scatter", gradients.on_wire, *trained)
        forward.append(np.where(zero >= states.weights_sharded_from, gather, 0.0))
        backward.append(
            np.where(zero == ZeroStage.WEIGHTS, gather, 0.0)
            + np.where(zero >= ZeroStage.GRADIENTS, scatter, 0.0)
        )
    step = tuple(
        _step_exchange(setting, exchange, gradients, zero, dense, experts)
        for dense, experts in zip(parameters.trained.dense, parameters.trained.experts, strict=True)
    )
    return DataParallelTime(
        layer_forward=tuple(forward[:-1]),
        layer_backward=tuple(backward[:-1]),
        end_forward=forward[-1],
        end_backward=backward[-1],
        step=step,
    )


Exchange = Callable[[str, Numeric, FloatArray, FloatArray], FloatArray]


def _units(parameters: StageParameters) -> list[tuple[FloatArray, FloatArray]]:
    """Dense and expert parameters of what ZeRO gathers at once: a layer of each group, an end."""
    layers = zip(parameters.layer_dense, parameters.layer_experts, strict=True)
    return [*layers, (parameters.end, np.zeros(()))]


def _exchange(setting: Setting, parameters: StageParameters) -> Exchange:
    has_experts = setting.model.num_experts > 0

    def exchange(
        kind: str, bytes_per_parameter: Numeric, dense: FloatArray, experts: FloatArray
    ) -> FloatArray:
        if not np.any(dense):
            return np.zeros(())
        machine = setting.machine
        everyone = machine.collective(kind, bytes_per_parameter * dense, parameters.dense_group)
        if not has_experts:
            return everyone
        own = machine.collective(kind, bytes_per_parameter * experts, parameters.expert_group)
        return everyone + np.where(experts > 0, own, 0.0)

    return exchange


def _step_exchange(
    setting: Setting,
    exchange: Exchange,
    gradients: Gradients,
    zero: CodeArray,
    dense: FloatArray,
    experts: FloatArray,
) -> FloatArray:
    """All-reduce without ZeRO; ZeRO-1 scatters gradients and gathers weights, ZeRO-2 gathers.

    Some all-reduce gradients under ZeRO-1 too.
    Where weights are sharded between steps, the forward pass gathers them instead.
    """
    states = setting.framework.states
    reduce = exchange("all_reduce", gradients.on_wire, dense, experts)
    scatter = exchange("reduce_scatter", gradients.on_wire, dense, experts)
    gather = exchange("all_gather", states.weight_on_wire, dense, experts)
    summed = np.where(gradients.scattered, scatter, reduce)
    sharded = np.where(zero == ZeroStage.OPTIMIZER, summed + gather, 0.0)
    if states.weights_sharded_from > ZeroStage.GRADIENTS:
        sharded = np.where(zero == ZeroStage.GRADIENTS, gather, sharded)
    return np.where(zero == ZeroStage.NONE, reduce, sharded)
