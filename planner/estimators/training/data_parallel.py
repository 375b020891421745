"""What data parallelism exchanges: gradients, and weights that ZeRO shards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric
from planner.base.enums import (
    AdapterKind,
    ZeroStage,
)
from planner.base.records import record
from planner.configurations.training import TrainingConfigurations
from planner.estimators.machine import Group
from planner.estimators.training.number_bytes import Gradients, compute_bytes, widened
from planner.estimators.training.sharding import StageParameters, sharded
from planner.estimators.training.share import Setting
from planner.formulas.memory import quantized_bytes
from planner.specs.workload import TrainingWorkload

END_BYTES = 2.0
"""Bytes per parameter of embedding and logits, which nothing quantizes."""


def end_bytes(precision: CodeArray) -> Numeric:
    """Bytes per frozen parameter of embedding and logits."""
    return widened(END_BYTES, precision)


def layer_weight_bytes(workload: TrainingWorkload, precision: CodeArray) -> FloatArray:
    """Bytes per frozen parameter of a layer: as it is quantized, or multiplied."""
    if workload.adapter is AdapterKind.QLORA:
        return np.asarray(
            quantized_bytes(
                bits=workload.quantization_bits, double_quantization=workload.double_quantization
            )
        )
    return compute_bytes(precision)


def gathered_bytes(setting: Setting, precision: CodeArray) -> tuple[Numeric, Numeric]:
    """Bytes per parameter that ZeRO gathers: of a layer, and of embedding or logits."""
    on_wire = widened(setting.framework.states.weight_on_wire, precision)
    if not setting.workload.is_frozen:
        return on_wire, on_wire
    return layer_weight_bytes(setting.workload, precision), end_bytes(precision)


def frozen_bytes(
    setting: Setting, c: TrainingConfigurations, parameters: StageParameters, stage: int
) -> FloatArray:
    """Bytes of the frozen weights on one GPU of a stage."""
    of_layer, of_end = layer_weight_bytes(setting.workload, c.precision), end_bytes(c.precision)
    in_layers = parameters.dense_in_layers[stage]
    ends = parameters.dense[stage] - in_layers
    held = (
        (in_layers, of_layer, parameters.dense_group),
        (ends, of_end, parameters.dense_group),
        (parameters.experts[stage], of_layer, parameters.expert_group),
    )
    return sharded(c, ZeroStage(setting.framework.states.weights_sharded_from), held)


def stage_gathered_bytes(
    setting: Setting, c: TrainingConfigurations, parameters: StageParameters, stage: int
) -> FloatArray:
    """Bytes of all weights of a stage, as ZeRO gathers them."""
    of_layer, of_end = gathered_bytes(setting, c.precision)
    total = parameters.dense[stage] + parameters.experts[stage]
    if not setting.workload.is_frozen:
        return np.asarray(total * of_end)
    in_layers = parameters.dense_in_layers[stage] + parameters.experts[stage]
    return np.asarray(in_layers * of_layer + (total - in_layers) * of_end)


@record(kw_only=True)
class DataParallelTime:
    """Seconds of communication, before overlap.

    ``layer_forward`` and ``layer_backward``: per group, one layer and micro-batch of
    ZeRO-2 and ZeRO-3. ``step``: of the stage where it lasts longest, at the end of a step.
    """

    layer_forward: tuple[FloatArray, ...]
    layer_backward: tuple[FloatArray, ...]
    end_forward: FloatArray
    end_backward: FloatArray
    step: FloatArray


def data_parallel_time(
    setting: Setting, c: TrainingConfigurations, parameters: StageParameters
) -> DataParallelTime:
    """Communication of every configuration over its data-parallel and expert groups."""
    states = setting.framework.states
    gradients = Gradients.of(setting.framework, c.precision, c.main_grads_precision)
    exchange = _Exchange(setting=setting, parameters=parameters)
    of_units = replace(exchange, most_nics=setting.framework.overlap.gather_nics)
    zero = c.zero_stage
    forward, backward = [], []
    of_layer, of_end = gathered_bytes(setting, c.precision)
    for (dense, experts), trained, width in zip(
        _units(parameters),
        _units(parameters.trained),
        [*(of_layer for _ in parameters.layer_dense), of_end],
        strict=True,
    ):
        gather = of_units.in_copy("all_gather", width, dense, experts)
        scatter = of_units.scattered_gradients(gradients.on_wire, *trained)
        forward.append(np.where(zero >= states.weights_sharded_from, gather, 0.0))
        backward.append(
            np.where(zero == ZeroStage.WEIGHTS, gather, 0.0)
            + np.where(zero >= ZeroStage.GRADIENTS, scatter, 0.0)
        )
    setting.machine.close("weight_gather")
    on_wire = widened(states.weight_on_wire, c.precision)
    on_stages = _step_exchange(setting, exchange, gradients, zero, on_wire)
    setting.machine.close("data_parallel")
    return DataParallelTime(
        layer_forward=tuple(forward[:-1]),
        layer_backward=tuple(backward[:-1]),
        end_forward=forward[-1],
        end_backward=backward[-1],
        step=on_stages.max(axis=0) if on_stages.ndim > zero.ndim else on_stages,
    )


def _units(parameters: StageParameters) -> list[tuple[FloatArray, FloatArray]]:
    """Dense and expert parameters of what ZeRO gathers at once: a layer of each group, an end."""
    layers = zip(parameters.layer_dense, parameters.layer_experts, strict=True)
    return [*layers, (parameters.end, np.zeros(()))]


@record(kw_only=True)
class _Exchange:
    """Collectives over the groups of a setting's parameters.

    ``most_nics``: network interfaces by which a ring leaves a node, 0 for all.
    """

    setting: Setting
    parameters: StageParameters
    most_nics: int = 0

    def in_copy(
        self, kind: str, bytes_per_parameter: Numeric, dense: FloatArray, experts: FloatArray
    ) -> FloatArray:
        """Seconds among the ranks that shard a copy."""
        groups = self.parameters.dense_group, self.parameters.expert_group
        return self._over(groups, kind, bytes_per_parameter * dense, bytes_per_parameter * experts)

    def scattered_gradients(
        self, bytes_per_parameter: Numeric, dense: FloatArray, experts: FloatArray
    ) -> FloatArray:
        """Seconds to scatter gradients within a copy, and to add up its shards over the copies."""
        within = self.in_copy("reduce_scatter", bytes_per_parameter, dense, experts)
        p = self.parameters
        if np.all(p.dense_replicas.size == 1):
            return within
        shards = (
            bytes_per_parameter * dense / p.dense_group.size,
            bytes_per_parameter * experts / p.expert_group.size,
        )
        return within + self._over((p.dense_replicas, p.expert_replicas), "all_reduce", *shards)

    def _over(
        self, groups: tuple[Group, Group], kind: str, dense: FloatArray, experts: FloatArray
    ) -> FloatArray:
        if not np.any(dense):
            return np.zeros(())
        machine, nics = self.setting.machine, self.most_nics
        everyone = machine.collective(kind, dense, groups[0], most_nics=nics)
        if self.setting.model.num_experts == 0:
            return everyone
        own = machine.collective(kind, experts, groups[1], most_nics=nics)
        return everyone + np.where(experts > 0, own, 0.0)


def _step_exchange(
    setting: Setting,
    exchange: _Exchange,
    gradients: Gradients,
    zero: CodeArray,
    weight_on_wire: Numeric,
) -> FloatArray:
    """Seconds on each stage: all-reduce without ZeRO, with ZeRO-1 a scatter and a gather.

    ZeRO-1 scatters gradients and gathers weights, ZeRO-2 gathers. Some frameworks all-reduce
    gradients under ZeRO-1 too. Where weights are sharded between steps, the forward pass gathers
    them instead.
    """
    states, trained = setting.framework.states, exchange.parameters.trained
    dense, experts = trained.dense, trained.experts
    reduce = exchange.in_copy("all_reduce", gradients.on_wire, dense, experts)
    machine = setting.machine
    scatters = (np.asarray(gradients.scattered) > 0) & (zero == ZeroStage.OPTIMIZER)
    machine.unused(scatters | (zero > ZeroStage.OPTIMIZER))
    begin = machine.mark
    scatter = exchange.scattered_gradients(gradients.on_wire, dense, experts)
    machine.unused(~scatters, since=begin)
    begin = machine.mark
    gather = exchange.in_copy("all_gather", weight_on_wire, dense, experts)
    machine.unused((zero == ZeroStage.NONE) | (zero == ZeroStage.WEIGHTS), since=begin)
    summed = np.where(gradients.scattered, scatter, reduce)
    sharded = np.where(zero == ZeroStage.OPTIMIZER, summed + gather, 0.0)
    if states.weights_sharded_from > ZeroStage.GRADIENTS:
        sharded = np.where(zero == ZeroStage.GRADIENTS, gather, sharded)
    return np.where(zero == ZeroStage.NONE, reduce, sharded)
