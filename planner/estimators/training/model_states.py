"""Bytes per parameter of weights and optimizer states, and offload to host memory."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray, Numeric, add, largest
from planner.base.enums import (
    AdapterKind,
    ComputePrecision,
    Fp8Recipe,
    MainPrecision,
    Offload,
    OptimizerKind,
    StatePrecision,
    ZeroStage,
)
from planner.base.records import record
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.estimators.training.bytes_per_element import (
    WIDE_BYTES,
    GradientBytes,
    compute_bytes,
    is_narrow,
    is_wide,
    widen,
)
from planner.estimators.training.micro_batch_share import MicroBatchShare, TrainingInputs, recipe_of
from planner.estimators.training.saved_activations import (
    layer_bytes,
    layer_input_bytes,
    offloaded_bytes,
)
from planner.estimators.training.sharding import StageParameters, gathered_bytes
from planner.formulas.memory import block_scaled_bytes, newton_schulz_flops
from planner.layers.model import Layer, layer_of
from planner.layers.operators import Experts, MatrixProduct, MatrixSplit
from planner.specs.framework import States
from planner.specs.model import LayerGroup

# Blocks of bitsandbytes and of torchao.
_BLOCK = 256
_STATE_BYTES = {
    StatePrecision.FP32: 4.0,
    StatePrecision.BF16: 2.0,
    StatePrecision.FP8: 1.0,
    StatePrecision.INT8: block_scaled_bytes(element_bytes=1, block=_BLOCK),
}
# Adafactor's second moment is a row and a column of each matrix. Muon's matrices have a momentum;
# their embedding and logits use Adam.
_IN_LAYERS = {
    OptimizerKind.ADAM: 2,
    OptimizerKind.SGD: 0,
    OptimizerKind.MOMENTUM: 1,
    OptimizerKind.LION: 1,
    OptimizerKind.ADAFACTOR: 0,
    OptimizerKind.MUON: 1,
}
_LAYER_STATES = np.array([float(_IN_LAYERS[kind]) for kind in OptimizerKind])
_END_STATES = np.where([kind is OptimizerKind.MUON for kind in OptimizerKind], 2.0, _LAYER_STATES)


@record(kw_only=True)
class ModelStates:
    """Bytes per parameter of layers and of embedding and logits; ``traffic`` of one update.

    ``moments`` are those of the optimizer's states that are no copy of the weights.
    """

    weight: Numeric
    end_weight: Numeric
    optimizer: Numeric
    end_optimizer: Numeric
    moments: Numeric
    end_moments: Numeric
    traffic: Numeric

    @classmethod
    def of(cls, inputs: TrainingInputs, c: TrainingConfigurations) -> ModelStates:
        """Return bytes per parameter of weights, optimizer and moments, of every configuration."""
        states = inputs.framework.states
        wide = is_wide(c.precision)
        if not (c.has_custom_optimizer or np.any(wide)):
            default = states.optimizer
            return cls(
                weight=_stored_bytes(inputs, c, states.weight),
                end_weight=states.weight,
                optimizer=default,
                end_optimizer=default,
                moments=default - states.main_weight,
                end_moments=default - states.main_weight,
                traffic=states.optimizer_traffic,
            )
        # Weights that the optimizer updates, where they are not the weights themselves.
        in_32_bits = 0.0 if states.weight >= MAIN_BYTES[MainPrecision.FP32] else 4.0
        widths = np.array([states.main_weight, in_32_bits, 0.0])
        copy = np.where(is_wide(c.precision), 0.0, widths[c.main_params_precision])
        moment = _moment_bytes(states, c)
        moments, of_end = (each[c.optimizer] * moment for each in (_LAYER_STATES, _END_STATES))
        optimizer = copy + moments
        gradients = GradientBytes.of(
            inputs.framework, c.precision, c.main_grads_precision, c.main_params_precision
        )
        default_gradients = GradientBytes.of(inputs.framework, c.precision)
        # Bytes beyond the framework's default states are read and written, gradients only read.
        extra_traffic = (
            2 * (optimizer - states.optimizer)
            + gradients.stored_bytes
            - default_gradients.stored_bytes
        )
        # Without main weights, the stored weights have the precision of the updated ones.
        narrow = c.main_params_precision == MainPrecision.BF16
        stored_width = np.where(narrow, min(states.weight, 2.0), states.weight)
        weight = np.where(wide, WIDE_BYTES, stored_width)
        if np.any(wide):
            in_sixteen = GradientBytes.of(inputs.framework, inputs.machine.sixteen_bit).stored_bytes
            of_gradients = np.asarray(default_gradients.stored_bytes) - in_sixteen
            # Of weights of 32 bits that are updated themselves no copy in 16 bits is written.
            updated = 0.0 if states.main_weight else states.weight
            copied = states.weight if states.main_weight else 0.0
            of_weights = 2 * (WIDE_BYTES - updated) - copied
            extra_traffic = np.where(wide, extra_traffic + of_gradients + of_weights, extra_traffic)
        return cls(
            weight=_stored_bytes(inputs, c, weight),
            end_weight=weight,
            optimizer=optimizer,
            end_optimizer=copy + of_end,
            moments=moments,
            end_moments=of_end,
            traffic=states.optimizer_traffic + extra_traffic,
        )


def _moment_bytes(states: States, c: TrainingConfigurations) -> FloatArray:
    """Return bytes per parameter of one optimizer moment under each configuration.

    Without a copy of the weights, moments have the type of the weights that are updated
    (pytorch/pytorch, torch/optim/adamw.py: ``torch.zeros_like`` of the parameter).
    """
    default_width = (states.optimizer - states.main_weight) / 2
    narrow = (c.main_params_precision == MainPrecision.BF16) & (states.main_weight == 0)
    like_weights = np.where(
        narrow, min(default_width, MAIN_BYTES[MainPrecision.BF16]), default_width
    )
    unspecified = np.where(is_wide(c.precision), max(default_width, WIDE_BYTES), like_weights)
    widths = np.array([_STATE_BYTES.get(code, default_width) for code in StatePrecision])
    is_unspecified = c.optimizer_state_precision == StatePrecision.FRAMEWORK
    return np.where(is_unspecified, unspecified, widths[c.optimizer_state_precision])


def _stored_bytes(inputs: TrainingInputs, c: TrainingConfigurations, default: Numeric) -> Numeric:
    """Return bytes per parameter of the layers' weights that stay in memory between steps.

    In 4 bits they are stored in both orientations, as the products of both passes read them. In 8
    bits with one scale for a matrix one is enough where products take either; Hopper and scales of
    groups need both, which are as many bytes as 16 bits. Transformer Engine caches these in
    addition to the 16-bit weights unless they are the weights themselves (2.x,
    ``pytorch/module/linear.py``, ``base.py`` ``get_weight_workspace``; Megatron-LM keeps the cache
    over micro-batches).
    """
    states = inputs.framework.states
    if inputs.workload.is_frozen:
        return default
    if states.cached_weights:
        narrow = is_narrow(c.precision)
        return default + np.where(narrow, _read_bytes(inputs, c), 0.0)
    if not states.quantized_weights:
        return default
    is_four = c.precision == ComputePrecision.FP4
    is_single = (c.precision == ComputePrecision.FP8) & _has_one_copy(inputs, c)
    return np.where(is_four | is_single, _read_bytes(inputs, c), default)


def _read_bytes(inputs: TrainingInputs, c: TrainingConfigurations) -> FloatArray:
    """Bytes per weight that products of both passes read below 16 bits."""
    copies = np.where(_has_one_copy(inputs, c), 1.0, 2.0)
    return np.asarray(copies * compute_bytes(c.precision))


def _has_one_copy(inputs: TrainingInputs, c: TrainingConfigurations) -> BoolArray:
    """Return a mask: True if FP8 products read one orientation of each weight."""
    if not inputs.machine.gpu.scales_groups:
        return np.zeros(np.shape(c.precision), dtype=bool)
    recipe = recipe_of(inputs, c)
    one_scale = (recipe == Fp8Recipe.TENSORWISE) | (recipe == Fp8Recipe.DELAYED)
    return np.asarray((c.precision == ComputePrecision.FP8) & one_scale)


MAIN_BYTES = {MainPrecision.FP32: 4.0, MainPrecision.BF16: 2.0}
"""Bytes of a weight or a gradient in each precision."""


def muon_time(
    inputs: TrainingInputs, c: TrainingConfigurations, parameters: StageParameters
) -> FloatArray:
    """Return seconds per step of Muon's Newton-Schulz products on the stage with most of them.

    Each rank processes full matrices (after tensor parallelism); without sharding all of them.
    """
    if not np.any(c.optimizer == OptimizerKind.MUON):
        return np.zeros(())
    sharded = c.zero_stage >= ZeroStage.OPTIMIZER
    model = inputs.model
    per_layer = []
    for group in model.layer_groups:
        dense, experts = _newton_schulz(layer_of(model, group), c)
        shares = (
            flops / np.where(sharded, ranks.size, 1.0)
            for flops, ranks in (
                (dense, parameters.dense_group),
                (experts, parameters.expert_group),
            )
        )
        per_layer.append(add(shares))
    counts = parameters.layers.counts
    stages = range(len(parameters.dense))
    most = largest(
        add(count * flops for count, flops in zip(counts[stage], per_layer, strict=True))
        for stage in stages
    )
    precision: CodeArray = inputs.machine.sixteen_bit
    width = float(model.hidden_size)
    per_flop = inputs.machine.gemm_time(width, width, width, precision) / (2 * width**3)
    return np.where(c.optimizer == OptimizerKind.MUON, most * per_flop, 0.0)


def _newton_schulz(layer: Layer, c: TrainingConfigurations) -> tuple[FloatArray, FloatArray]:
    """Return Newton-Schulz FLOPs of one layer on one rank: (dense matrices, routed experts)."""
    t = c.tensor_parallel
    dense = [np.zeros(())]
    for product in layer.of(MatrixProduct):
        split = product.split if product.sharded else MatrixSplit.NONE
        rows = product.depth / np.where(split is MatrixSplit.ROWS, t, 1.0)
        columns = product.columns.total / np.where(split is MatrixSplit.COLUMNS, t, 1.0)
        dense.append(newton_schulz_flops(rows=rows, columns=columns))
    experts = [np.zeros(())]
    for routed in layer.of(Experts):
        width = routed.width / c.expert_tensor_parallel
        each = newton_schulz_flops(rows=np.asarray(routed.depth), columns=width)
        experts.append(routed.matrices * routed.num_experts / c.expert_parallel * each)
    return add(dense), add(experts)


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
    """Mask of configurations whose optimizer states are on the host."""
    return np.asarray(_OF_STATES[offload])


def host_updates(inputs: TrainingInputs, offload: CodeArray) -> BoolArray:
    """Return a mask: True if the host CPU runs the optimizer step."""
    return np.asarray(keeps_states(offload) & inputs.framework.offloading.host_update)


def keeps_gradients(inputs: TrainingInputs, c: TrainingConfigurations) -> BoolArray:
    """Return a mask: True if gradients move to the host at once and need no GPU memory.

    Only sharded gradients do (ZeRO-Offload, arXiv:2101.06840, section 4.1), and all of a single
    rank. Below stage 2 the GPU accumulates unsharded gradients over the micro-batches, as
    Megatron-LM's buffer of main gradients does, and the host gets its share at the end.
    """
    can_shard = ZeroStage.GRADIENTS in inputs.framework.zero_stages
    is_single_rank = (c.data_parallel * c.context_parallel == 1) & can_shard
    leave = (c.zero_stage >= ZeroStage.GRADIENTS) | is_single_rank
    return np.asarray(host_updates(inputs, c.offload) & leave)


def keeps_weights(offload: CodeArray) -> BoolArray:
    """Return a mask: True if the weights stay in host memory."""
    return np.asarray(_OF_WEIGHTS[offload])


def moved_activations(
    share: MicroBatchShare, group: LayerGroup, c: TrainingConfigurations
) -> FloatArray:
    """Return activation bytes per micro-batch that one layer of a group offloads to the host."""
    if not c.any_offload:
        return np.zeros(())
    moves = _OF_ACTIVATIONS[c.offload]
    saved = layer_bytes(share, group)
    if share.inputs.framework.offloading.only_layer_inputs:
        saved = np.minimum(saved, layer_input_bytes(share))
    return np.where(moves, saved, offloaded_bytes(share, group))


def bytes_moved_away(moved: FloatArray, largest_layer: FloatArray) -> FloatArray:
    """Offloaded activation bytes off the GPU: all but those of layers being copied."""
    return np.asarray(np.maximum(moved - _LAYERS_ON_GPU * largest_layer, 0.0))


def host_copies(
    inputs: TrainingInputs,
    c: TrainingConfigurations,
    parameters: StageParameters,
    moved: list[FloatArray],
) -> HostCopies:
    """Return seconds of host copies per layer; ``moved``: activation bytes per layer group.

    Forward and backward pass each fetch the weights that a rank owns, and the backward pass
    brings away the gradients it owns of every micro-batch, where they are sharded.
    """
    nothing = np.zeros(())
    if not c.any_offload:
        none = (nothing,) * len(moved)
        return HostCopies(
            layer_forward=none, layer_backward=none, end_forward=nothing, end_backward=nothing
        )
    of_layer, of_end = gathered_bytes(inputs, c)
    trained = parameters.trained
    forward, backward = [], []
    on_wire = widen(inputs.framework.states.gradient_on_wire, c.precision)
    widths = [*(of_layer for _ in moved), of_end]
    for index, (activations, width) in enumerate(zip((*moved, nothing), widths, strict=True)):
        weights = _owned_of(parameters, c, index) * width
        fetched = np.where(keeps_weights(c.offload), weights, 0.0)
        gradients = _owned_of(trained, c, index) * on_wire
        outgoing = np.where(keeps_gradients(inputs, c), gradients, 0.0)
        read = _drive_time(inputs, c.offload, fetched)
        forward.append(np.maximum(_copy_time(inputs, fetched + activations), read))
        backward.append(np.maximum(_copy_time(inputs, fetched + outgoing + activations), read))
    return HostCopies(
        layer_forward=tuple(forward[:-1]),
        layer_backward=tuple(backward[:-1]),
        end_forward=forward[-1],
        end_backward=backward[-1],
    )


def host_update_time(
    inputs: TrainingInputs, c: TrainingConfigurations, owned: FloatArray, model_states: ModelStates
) -> FloatArray:
    """Return seconds per step to update ``owned`` parameters on the host and copy them back.

    Gradients that were added up on the GPU come over first. States on drives are read and
    written while others are updated.
    """
    states, offloading = inputs.framework.states, inputs.framework.offloading
    update = inputs.machine.host_memory_time(
        owned * model_states.traffic, offloading.host_memory_fraction
    )
    passing = _drive_time(inputs, c.offload, 2 * owned * model_states.optimizer)
    weights = owned * widen(states.weight_on_wire, c.precision)
    back = np.where(keeps_weights(c.offload), 0.0, weights)
    on_wire = widen(states.gradient_on_wire, c.precision)
    over = np.where(keeps_gradients(inputs, c), 0.0, owned * on_wire)
    return np.maximum(update, passing) + _copy_time(inputs, over) + _copy_time(inputs, back)


def streamed_states_time(
    inputs: TrainingInputs, c: TrainingConfigurations, owned: FloatArray, model_states: ModelStates
) -> FloatArray:
    """Return seconds per step to stream optimizer states to the GPU and back."""
    num_bytes = owned * model_states.optimizer
    passing = _drive_time(inputs, c.offload, 2 * num_bytes)
    return np.maximum(_copy_time(inputs, num_bytes), passing)


def paging_time(inputs: TrainingInputs, paged: FloatArray) -> FloatArray:
    """Seconds to move pages of optimizer states to the host and back, not overlapped."""
    return _copy_time(inputs, 2 * paged)


def host_bytes(
    inputs: TrainingInputs,
    offload: CodeArray,
    *,
    weights: FloatArray,
    states: FloatArray,
    gradients: FloatArray,
    activations: FloatArray,
) -> FloatArray:
    """Return bytes in host memory for one GPU; ``activations``: bytes of the offloaded ones."""
    in_memory = ~_TO_DRIVES[offload]
    of_model = add(
        (
            np.where(keeps_states(offload) & in_memory, states, 0.0),
            np.where(host_updates(inputs, offload), gradients, 0.0),
            np.where(keeps_weights(offload) & in_memory, weights, 0.0),
        )
    )
    return activations + inputs.framework.offloading.host_buffers * of_model


def loading_bytes(
    inputs: TrainingInputs, c: TrainingConfigurations, parameters: StageParameters
) -> FloatArray:
    """Return bytes of host memory per GPU to load the unsharded model.

    Weights that are sharded are so as they load, if ``zero3_init``; where one process of a node
    loads them, it keeps all in 16 bits until it sends the shards, those of QLoRA too. Others in 4
    bits go to the GPU piece by piece.
    """
    states, profile = inputs.framework.states, inputs.framework.offloading
    in_process, in_node = profile.loaded_per_process, profile.loaded_per_node
    is_quantized = inputs.workload.adapter is AdapterKind.QLORA
    if not (in_node or (in_process and not is_quantized)):
        return np.zeros(())
    stages = range(len(parameters.dense))
    num_parameters = largest(
        parameters.dense[stage] + parameters.experts[stage] for stage in stages
    )
    is_sharded = c.zero_stage >= states.weights_sharded_from
    if in_node:
        processes = np.minimum(c.num_gpus, inputs.machine.cluster.gpus_per_node)
        unsharded = 0.0 if is_quantized else in_node
        return np.where(is_sharded, in_node / processes, unsharded) * num_parameters
    return np.where(is_sharded & c.zero3_init, 0.0, in_process * num_parameters)


def _drive_time(inputs: TrainingInputs, offload: CodeArray, num_bytes: FloatArray) -> FloatArray:
    """Seconds in which the drives of a host read or write what lies there."""
    time = num_bytes / inputs.machine.drive_bandwidth
    return np.where(_TO_DRIVES[offload], time, 0.0)


def _copy_time(inputs: TrainingInputs, num_bytes: Numeric) -> FloatArray:
    fraction = inputs.framework.offloading.host_link_fraction
    copied = inputs.machine.host_copy_time(num_bytes, fraction)
    return np.where(np.asarray(num_bytes) > 0, copied, 0.0)


def _owned_of(parameters: StageParameters, c: TrainingConfigurations, index: int) -> FloatArray:
    """Count parameters that a rank owns of a layer of group ``index``, or of an end after them."""
    ranks = c.zero_stage >= ZeroStage.OPTIMIZER
    dense_ranks = np.where(ranks, parameters.dense_group.size, 1.0)
    if index == len(parameters.layer_dense):
        return np.asarray(parameters.end / dense_ranks)
    expert_ranks = np.where(ranks, parameters.expert_group.size, 1.0)
    dense, experts = parameters.layer_dense[index], parameters.layer_experts[index]
    return np.asarray(dense / dense_ranks + experts / expert_ranks)
