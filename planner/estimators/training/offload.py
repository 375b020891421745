"""What a training step keeps in host memory, and what copying and updating it there takes."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray, Numeric, add, largest
from planner.base.enums import (
    AdapterKind,
    Offload,
    ZeroStage,
)
from planner.base.records import record
from planner.configurations.training import TrainingConfigurations
from planner.estimators.training.model_states import ModelStates
from planner.estimators.training.number_bytes import widened
from planner.estimators.training.saved_activations import (
    layer_bytes,
    layer_input_bytes,
    offloaded_bytes,
)
from planner.estimators.training.sharding import StageParameters, gathered_bytes
from planner.estimators.training.share import Setting, Share
from planner.specs.model import LayerGroup

HOST_GRADIENT_BYTES = 4.0
"""Bytes per parameter of the gradients that a host sums up and updates with."""

_LAYERS_ON_GPU = 2.0
_OF_STATES, _OF_WEIGHTS, _OF_ACTIVATIONS, _TO_DRIVES = (
    np.array([getattr(code, name) for code in Offload])
    for name in ("of_states", "of_weights", "of_activations", "to_drives")
)


@record(kw_only=True)
class HostCopies:
    """Seconds of copies between a GPU and its host, before overlap.

    ``layer_forward`` and ``layer_backward``: per group, one layer and micro-batch; ``end_forward``
    and ``end_backward``: embedding or logits.
    """

    layer_forward: tuple[FloatArray, ...]
    layer_backward: tuple[FloatArray, ...]
    end_forward: FloatArray
    end_backward: FloatArray


def keeps_states(offload: CodeArray) -> BoolArray:
    """Where the host keeps the optimizer states."""
    return np.asarray(_OF_STATES[offload])


def host_updates(setting: Setting, offload: CodeArray) -> BoolArray:
    """Where the host updates the weights that a rank owns."""
    return np.asarray(keeps_states(offload) & setting.framework.offloading.host_update)


def keeps_gradients(setting: Setting, c: TrainingConfigurations) -> BoolArray:
    """Where gradients leave for the host as they are made, and none stay on the GPU.

    Only sharded ones do (ZeRO-Offload, arXiv:2101.06840, section 4.1), and all of a lone rank.
    Below stage 2 the GPU adds up whole ones over the micro-batches, as Megatron-LM's buffer of
    main gradients does, and the host gets its share at the end.
    """
    can_shard = ZeroStage.GRADIENTS in setting.framework.zero_stages
    alone = (c.data_parallel * c.context_parallel == 1) & can_shard
    leave = (c.zero_stage >= ZeroStage.GRADIENTS) | alone
    return np.asarray(host_updates(setting, c.offload) & leave)


def keeps_weights(offload: CodeArray) -> BoolArray:
    """Where the host keeps the weights."""
    return np.asarray(_OF_WEIGHTS[offload])


def moved_activations(share: Share, group: LayerGroup, c: TrainingConfigurations) -> FloatArray:
    """Bytes that one layer of a group moves to the host of those it keeps."""
    if not c.any_offload:
        return np.zeros(())
    moves = _OF_ACTIVATIONS[c.offload]
    kept = layer_bytes(share, group)
    if share.setting.framework.offloading.layer_inputs_alone:
        kept = np.minimum(kept, layer_input_bytes(share))
    return np.where(moves, kept, offloaded_bytes(share, group))


def moved_away(moved: FloatArray, largest_layer: FloatArray) -> FloatArray:
    """Bytes that are not on a GPU of those its layers move: all but the layers being copied."""
    return np.asarray(np.maximum(moved - _LAYERS_ON_GPU * largest_layer, 0.0))


def host_copies(
    setting: Setting,
    c: TrainingConfigurations,
    parameters: StageParameters,
    moved: list[FloatArray],
) -> HostCopies:
    """Copies of every configuration; ``moved`` are the activations each group's layer moves.

    Forward and backward pass each fetch the weights that a rank owns, and the backward pass
    brings away the gradients it owns of every micro-batch, where they are sharded.
    """
    nothing = np.zeros(())
    if not c.any_offload:
        none = (nothing,) * len(moved)
        return HostCopies(
            layer_forward=none, layer_backward=none, end_forward=nothing, end_backward=nothing
        )
    of_layer, of_end = gathered_bytes(setting, c.precision)
    trained = parameters.trained
    forward, backward = [], []
    on_wire = widened(setting.framework.states.gradient_on_wire, c.precision)
    widths = [*(of_layer for _ in moved), of_end]
    for index, (activations, width) in enumerate(zip((*moved, nothing), widths, strict=True)):
        weights = _owned_of(parameters, c, index) * width
        fetched = np.where(keeps_weights(c.offload), weights, 0.0)
        gradients = _owned_of(trained, c, index) * on_wire
        away = np.where(keeps_gradients(setting, c), gradients, 0.0)
        read = _drive_time(setting, c.offload, fetched)
        forward.append(np.maximum(_copy_time(setting, fetched + activations), read))
        backward.append(np.maximum(_copy_time(setting, fetched + away + activations), read))
    return HostCopies(
        layer_forward=tuple(forward[:-1]),
        layer_backward=tuple(backward[:-1]),
        end_forward=forward[-1],
        end_backward=backward[-1],
    )


def host_update_time(
    setting: Setting, c: TrainingConfigurations, owned: FloatArray, own: ModelStates
) -> FloatArray:
    """Seconds of the optimizer on the host, and of bringing its ``owned`` weights back.

    Gradients that were added up on the GPU come over first. States on drives are read and
    written while others are updated.
    """
    states, offloading = setting.framework.states, setting.framework.offloading
    update = setting.machine.host_memory_time(owned * own.traffic, offloading.host_memory_fraction)
    passing = _drive_time(setting, c.offload, 2 * owned * own.optimizer)
    weights = owned * widened(states.weight_on_wire, c.precision)
    back = np.where(keeps_weights(c.offload), 0.0, weights)
    on_wire = widened(states.gradient_on_wire, c.precision)
    over = np.where(keeps_gradients(setting, c), 0.0, owned * on_wire)
    return np.maximum(update, passing) + _copy_time(setting, over) + _copy_time(setting, back)


def streamed_states_time(
    setting: Setting, c: TrainingConfigurations, owned: FloatArray, own: ModelStates
) -> FloatArray:
    """Seconds to bring optimizer states to the GPU, while others go back."""
    num_bytes = owned * own.optimizer
    passing = _drive_time(setting, c.offload, 2 * num_bytes)
    return np.maximum(_copy_time(setting, num_bytes), passing)


def paging_time(setting: Setting, paged: FloatArray) -> FloatArray:
    """Seconds in which pages of optimizer states go to the host and come back, behind nothing."""
    return _copy_time(setting, 2 * paged)


def host_bytes(
    setting: Setting,
    offload: CodeArray,
    *,
    weights: FloatArray,
    states: FloatArray,
    gradients: FloatArray,
    activations: FloatArray,
) -> FloatArray:
    """Bytes in host memory, of those that a GPU has of each; ``activations`` are moved ones."""
    in_memory = ~_TO_DRIVES[offload]
    of_model = add(
        (
            np.where(keeps_states(offload) & in_memory, states, 0.0),
            np.where(host_updates(setting, offload), gradients, 0.0),
            np.where(keeps_weights(offload) & in_memory, weights, 0.0),
        )
    )
    return activations + setting.framework.offloading.host_buffers * of_model


def loading_bytes(
    setting: Setting, c: TrainingConfigurations, parameters: StageParameters
) -> FloatArray:
    """Bytes of the whole model in the host memory of a process that loads it.

    Weights that are sharded are so as they load, if ``zero3_init``. Those in 4 bits go to the GPU
    piece by piece.
    """
    states, workload = setting.framework.states, setting.workload
    each = setting.framework.offloading.loaded_per_process
    if not each or workload.adapter is AdapterKind.QLORA:
        return np.zeros(())
    stages = range(len(parameters.dense))
    whole = largest(parameters.dense[stage] + parameters.experts[stage] for stage in stages)
    is_sharded = (c.zero_stage >= states.weights_sharded_from) & c.zero3_init
    return np.where(is_sharded, 0.0, each * whole)


def _drive_time(setting: Setting, offload: CodeArray, num_bytes: FloatArray) -> FloatArray:
    """Seconds in which the drives of a host read or write what lies there."""
    time = num_bytes / setting.machine.drive_bandwidth
    return np.where(_TO_DRIVES[offload], time, 0.0)


def _copy_time(setting: Setting, num_bytes: Numeric) -> FloatArray:
    fraction = setting.framework.offloading.host_link_fraction
    copied = setting.machine.host_copy_time(num_bytes, fraction)
    return np.where(np.asarray(num_bytes) > 0, copied, 0.0)


def _owned_of(parameters: StageParameters, c: TrainingConfigurations, index: int) -> FloatArray:
    """Parameters a rank owns of a layer of group ``index``, or of an end after the last group."""
    ranks = c.zero_stage >= ZeroStage.OPTIMIZER
    dense_ranks = np.where(ranks, parameters.dense_group.size, 1.0)
    if index == len(parameters.layer_dense):
        return np.asarray(parameters.end / dense_ranks)
    expert_ranks = np.where(ranks, parameters.expert_group.size, 1.0)
    dense, experts = parameters.layer_dense[index], parameters.layer_experts[index]
    return np.asarray(dense / dense_ranks + experts / expert_ranks)
