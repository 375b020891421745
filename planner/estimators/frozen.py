"""Bytes of weights that are not trained: on a GPU, and on the wire."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric
from planner.base.enums import AdapterKind, ZeroStage
from planner.configurations.training import TrainingConfigurations
from planner.estimators.number_bytes import compute_bytes, widened
from planner.estimators.sharding import StageParameters, sharded
from planner.estimators.share import Setting
from planner.formulas.adapters import nf4_bytes
from planner.specs.workload import TrainingWorkload

END_BYTES = 2.0
"""Bytes per parameter of embedding and logits, which nothing quantizes."""


def end_bytes(precision: CodeArray) -> Numeric:
    """Bytes per frozen parameter of embedding and logits."""
    return widened(END_BYTES, precision)


def layer_weight_bytes(workload: TrainingWorkload, precision: CodeArray) -> FloatArray:
    """Bytes per frozen parameter of a layer: as it is quantized, or multiplied."""
    if workload.adapter is AdapterKind.QLORA:
        return np.asarray(nf4_bytes(double_quantization=workload.double_quantization))
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
