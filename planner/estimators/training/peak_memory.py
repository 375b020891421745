"""Peak memory of the fullest GPU, by part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cached_property
from itertools import chain

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Numeric, add, is_among, largest
from planner.base.enums import ComputePrecision, OptimizerKind, StatePrecision, ZeroStage
from planner.base.records import record
from planner.base.units import GIB
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.estimators.towers import TowerShare, frozen_tower_bytes
from planner.estimators.training.bytes_per_element import GradientBytes, is_wide
from planner.estimators.training.loss_kernels import (
    evaluated_logit_bytes,
    held_logits,
    peak_logit_bytes,
)
from planner.estimators.training.micro_batch_share import MicroBatchShare, TrainingInputs
from planner.estimators.training.model_states import (
    HOST_GRADIENT_BYTES,
    ModelStates,
    bytes_moved_away,
    host_bytes,
    host_updates,
    keeps_gradients,
    keeps_states,
    keeps_weights,
    loading_bytes,
    moved_activations,
)
from planner.estimators.training.saved_activations import (
    all_bytes,
    layer_bytes,
    layer_input_bytes,
    mask_bytes,
    rebuilt_bytes,
    ring_bytes,
)
from planner.estimators.training.sharding import (
    StageParameters,
    end_bytes,
    frozen_bytes,
    gathered_bytes,
    sharded,
    stage_gathered_bytes,
)
from planner.formulas.pipeline import micro_batches_in_flight


def untrained_bytes(
    inputs: TrainingInputs, c: TrainingConfigurations, parameters: StageParameters, stage: int
) -> FloatArray:
    """Return bytes of untrained weights on one GPU: frozen base weights or a reference model."""
    if inputs.workload.is_frozen:
        return frozen_bytes(inputs, c, parameters, stage)
    held = [parameters.untrained] * inputs.workload.trains_part
    held += [parameters] * inputs.workload.keeps_reference
    return add((np.zeros(()), *(reference_bytes(inputs, c, each, stage) for each in held)))


def reference_bytes(
    inputs: TrainingInputs, c: TrainingConfigurations, parameters: StageParameters, stage: int
) -> FloatArray:
    """Return bytes of a reference model's 16-bit weights on one GPU of a stage.

    They are sharded as those of the policy are, and have neither gradients nor optimizer states
    (trl 1.10, trl/trainer/dpo_trainer.py: ``prepare_deepspeed``, ``prepare_fsdp``).
    """
    sharded_from = ZeroStage(inputs.framework.states.weights_sharded_from)
    width = end_bytes(c.precision)
    held = (
        (parameters.dense[stage], width, parameters.dense_group),
        (parameters.experts[stage], width, parameters.expert_group),
    )
    return sharded(c, sharded_from, held)


# A CUDA context with the kernels of PyTorch is 0.4 to 0.6 GiB.
_CONTEXT = 0.5 * GIB
_LARGE_GPU = 80e9
_LOOKED_THROUGH, _FLAGGED = 11.0, 3.0


def reserved_bytes(inputs: TrainingInputs) -> FloatArray:
    """Return bytes on one GPU for CUDA context, libraries and unused allocator cache.

    The value of a profile is for GPUs of 80 GB. Bytes beyond the context are mostly cached blocks,
    which PyTorch frees before it fails [1]_, so they scale with the memory of smaller GPUs.

    References
    ----------
    .. [1] pytorch/pytorch, c10/cuda/CUDACachingAllocator.cpp: malloc frees what is cached and not
       used (release_cached_blocks), and tries again.
    """
    profile_bytes = inputs.framework.memory.reserved
    context = min(profile_bytes, _CONTEXT)
    of_large = min(inputs.machine.gpu.memory_capacity / _LARGE_GPU, 1.0)
    return np.asarray(context + (profile_bytes - context) * of_large)


def communication_bytes(
    inputs: TrainingInputs, c: TrainingConfigurations, parameters: StageParameters, stage: int
) -> FloatArray:
    """Return bytes of communication buffers (gradient and weight buckets) on one GPU.

    A bucket holds no more than there is. DeepSpeed, where the bucket size is an option, has two
    buckets in stages 1 and 2 to overlap their reduction, as is predicted [4]_; stage 3 scatters
    from a copy of one [1]_. Replicas under DistributedDataParallel have further buckets for all
    gradients, since gradient_as_bucket_view is not set [2]_ [3]_.

    References
    ----------
    .. [1] deepspeedai/DeepSpeed 0.19.6, runtime/zero/stage3.py: a bucket of reduce_bucket_size
       numbers is allocated once; runtime/comm/coalesced_collectives.py: reduce_scatter_coalesced
       puts what it reduces into a flat tensor.
    .. [2] PyTorch, torch.nn.parallel.DistributedDataParallel: gradients that are views of buckets
       spare as much as all gradients; torch/csrc/distributed/c10d/reducer.cpp, initialize_buckets.
    .. [3] huggingface/accelerate 1.15.0, utils/dataclasses.py: DistributedDataParallelKwargs.
    .. [4] DeepSpeed as in [1]_, runtime/zero/stage_1_and_2.py, backward_prologue: a second buffer
       with overlap_comm and contiguous_gradients.
    """
    memory = inputs.framework.memory
    num_bytes = np.asarray(memory.communication_buffer)
    if memory.reduce_bucket_size:
        bucket_size = np.where(
            c.reduce_bucket_size > 0, c.reduce_bucket_size, memory.reduce_bucket_size
        )
        copies = np.where(c.zero_stage > ZeroStage.NONE, 2.0, 1.0)
        num_bytes = num_bytes * copies * bucket_size / memory.reduce_bucket_size
    if memory.buffered_bytes:
        trained = parameters.trained.dense[stage] + parameters.trained.experts[stage]
        num_bytes = np.minimum(num_bytes, memory.buffered_bytes * trained)
    if memory.replica_buckets:
        num_bytes = np.maximum(num_bytes, _replica_buckets(inputs, c, parameters, stage))
    is_single_gpu = (c.num_gpus == 1) & (c.zero_stage == ZeroStage.NONE)
    return np.where(is_single_gpu if memory.reduce_bucket_size else c.num_gpus == 1, 0.0, num_bytes)


def _replica_buckets(
    inputs: TrainingInputs, c: TrainingConfigurations, parameters: StageParameters, stage: int
) -> FloatArray:
    """Return bytes of DDP's second copy of all gradients on one GPU; 0 with ZeRO or one rank."""
    trained = parameters.trained.dense[stage] + parameters.trained.experts[stage]
    each = GradientBytes.of(
        inputs.framework, c.precision, c.main_grads_precision, c.main_params_precision
    ).stored_bytes
    is_replica = (c.zero_stage == ZeroStage.NONE) & (parameters.dense_group.size > 1)
    return np.where(is_replica, each * trained, 0.0)


def update_temporary(share: MicroBatchShare, c: TrainingConfigurations) -> FloatArray:
    """Return bytes per trained parameter of temporaries in the optimizer step.

    Optimizers in 8 bit go through the parameters one by one [1]_ [2]_, and so does Adafactor; what
    the framework makes of gradients first, it makes for all. When it updates, a flat copy in their
    own type is gone, and they are too, but for the buffer in which ZeRO-3 has them [3]_.

    References
    ----------
    .. [1] bitsandbytes 0.48, optim/optimizer.py: step() calls update_step for each parameter.
    .. [2] pytorch/ao 0.13, optim/adam.py: single_param_adam for each parameter.
    .. [3] deepspeedai/DeepSpeed 0.19.6, runtime/zero/stage3.py: the gradients of a step are
       views of grad_partitions_flat_buffer; stage_1_and_2.py, step: averaged_gradients.
    """
    memory = share.inputs.framework.memory
    narrow = is_among(c.optimizer_state_precision, (StatePrecision.FP8, StatePrecision.INT8))
    one_by_one = narrow | (c.optimizer == OptimizerKind.ADAFACTOR)
    temporary, step_gradients = (
        np.where(one_by_one, 0.0, memory.optimizer_temporary),
        memory.step_gradients,
    )
    if not step_gradients:
        return temporary
    freed = share.gradients.stored_bytes * np.where(c.zero_stage == ZeroStage.WEIGHTS, 1.0, 2.0)
    return np.maximum(step_gradients, step_gradients - freed + temporary)


def update_bytes(
    share: MicroBatchShare,
    c: TrainingConfigurations,
    temporary: FloatArray,
    parameters: StageParameters,
    stage: int,
) -> FloatArray:
    """Return bytes of temporaries in the optimizer step on one GPU; ``temporary``: for all at once.

    ZeRO-3 of DeepSpeed makes the gradients of one sub-group after the other [1]_. Before an update
    gradients are checked for overflows. Stages 1 and 2 convert one after the other to 32 bits, and
    flags of invalid numbers take as many bytes again; the largest gradient is the embedding's
    [2]_. In fp16 stage 3 checks all gradients that it owns at once [3]_.

    References
    ----------
    .. [1] deepspeedai/DeepSpeed 0.19.6, runtime/zero/stage3.py: step() goes through the
       sub-groups; _prepare_fp32_grad_for_sub_group.
    .. [2] The same, runtime/zero/stage_1_and_2.py, _has_inf_or_nan: x.float() (4 bytes), three
       flags (3), and their maximum in 32 bits (4).
    .. [3] The same, stage3.py, has_overflow: torch.isinf of a flat buffer, which PyTorch computes
       as abs() == inf: 2 bytes and a flag.
    """
    default_size = share.inputs.framework.memory.sub_group_size
    if not default_size:
        return temporary
    numbers = np.where(c.sub_group_size > 0, c.sub_group_size, default_size)
    each = update_temporary(share, c)
    of_all = temporary / each
    in_groups = c.zero_stage == ZeroStage.WEIGHTS
    has_end = parameters.is_first[stage] | parameters.is_last[stage]
    largest = np.where(has_end, np.minimum(of_all, parameters.trained.end), 0.0)
    looked_through = np.where(in_groups, 0.0, _LOOKED_THROUGH * largest)
    is_fp16 = c.precision == ComputePrecision.FP16
    looked_through = np.where(in_groups & is_fp16, _FLAGGED * of_all, looked_through)
    looked_through = np.where(is_wide(c.precision) | (c.zero_stage == 0), 0.0, looked_through)
    num_bytes = np.where(in_groups, np.minimum(temporary, numbers * each), temporary)
    return np.maximum(num_bytes, looked_through)


def live_bytes(
    inputs: TrainingInputs, c: TrainingConfigurations, parameters: StageParameters, stage: int
) -> FloatArray:
    """Return bytes of gathered weights that DeepSpeed ZeRO-3 retains between uses; else 0.

    Weights of a module stay gathered if they are needed again within a number of parameters, as
    those of the last layers between the passes, up to a maximum number [1]_.

    References
    ----------
    .. [1] deepspeedai/DeepSpeed 0.19.6, runtime/zero/partitioned_param_coordinator.py:
       max_available_parameters_in_numel, max_reuse_distance_in_numel.
    """
    default_limit = inputs.framework.memory.max_live_parameters
    if not default_limit:
        return np.zeros(())
    limit = c.stage3_max_live_parameters
    num_parameters = parameters.dense[stage] + parameters.experts[stage]
    share = np.minimum(np.where(limit > 0, limit, default_limit) / num_parameters, 1.0)
    return np.asarray(share * stage_gathered_bytes(inputs, c, parameters, stage))


@record(kw_only=True)
class MemoryBreakdown:
    """Bytes on one GPU at its fullest moment; the parts add up to the peak.

    ``working``: the largest short-lived set, one layer in its backward pass, the loss or the
    temporaries of the optimizer step, when there are no activations. ``gathered``: full
    weights and gradients of the layers ZeRO-3 has gathered. ``allocated_activations`` are those
    with the share of ``fragmentation`` that is theirs.
    """

    weights: FloatArray
    gradients: FloatArray
    optimizer_states: FloatArray
    allocated_activations: FloatArray
    working: FloatArray
    gathered: FloatArray
    communication_buffers: FloatArray
    reserved: FloatArray
    fragmentation_share: FloatArray

    @property
    def activations(self) -> FloatArray:
        """Bytes that layers keep for their backward pass."""
        return self.allocated_activations / (1 + self.fragmentation_share)

    @property
    def fragmentation(self) -> FloatArray:
        """Bytes between what comes and goes."""
        return self.fragmentation_share * (self.activations + self.working)

    @cached_property
    def total(self) -> FloatArray:
        """Return peak bytes on one GPU: the sum of all ``MEMORY_PARTS``."""
        states = (self.weights, self.gradients, self.optimizer_states)
        buffers = (self.gathered, self.communication_buffers, self.reserved)
        allocated_working = (1 + self.fragmentation_share) * self.working
        return add((*states, *buffers, allocated_working, self.allocated_activations))


MEMORY_PARTS = (
    "weights",
    "gradients",
    "optimizer_states",
    "activations",
    "working",
    "gathered",
    "fragmentation",
    "communication_buffers",
    "reserved",
)


@record(kw_only=True)
class Memory:
    """Memory of the candidates for the fullest stage, and their maximum.

    ``moments``: for each stage, the backward pass, and the optimizer step if that may be
    fuller. ``totals``: bytes of each stage at its fullest moment. ``host``: bytes in host memory
    of the GPU that keeps most there; ``loading``: of a process while it loads the whole model.
    ``paged``: optimizer states that find no room and move to the host; ``least``: the peak if all
    that may do so did.
    """

    moments: tuple[tuple[MemoryBreakdown, ...], ...]
    totals: tuple[FloatArray, ...]
    peak: FloatArray
    host: FloatArray
    loading: FloatArray
    paged: FloatArray
    least: FloatArray

    @property
    def stages(self) -> tuple[MemoryBreakdown, ...]:
        """The parts on each stage at its fullest moment."""
        return tuple(_fullest(moments) for moments in self.moments)

    @property
    def fullest(self) -> MemoryBreakdown:
        """The parts on the fullest stage of each configuration."""
        return _fullest(tuple(chain.from_iterable(self.moments)))


def _fullest(candidates: tuple[MemoryBreakdown, ...]) -> MemoryBreakdown:
    """Return, for each configuration, the breakdown with the most bytes; the first if equal."""
    if len(candidates) == 1:
        return candidates[0]
    totals = [candidate.total for candidate in candidates]
    index = np.argmax(np.stack(np.broadcast_arrays(*totals)), axis=0)

    def chosen(name: str) -> FloatArray:
        if index.size == 1:
            return np.reshape(getattr(candidates[index.item()], name), index.shape)
        values = np.broadcast_arrays(*(getattr(each, name) for each in candidates), index)
        return np.asarray(np.take_along_axis(np.stack(values[:-1]), index[None], axis=0)[0])

    return MemoryBreakdown(**{field.name: chosen(field.name) for field in fields(MemoryBreakdown)})


def peak_memory(
    share: MicroBatchShare, c: TrainingConfigurations, parameters: StageParameters
) -> Memory:
    """Predict the memory of every configuration in bytes, on each stage that may be the fullest."""
    unified = share.machine.gpu.unified_memory
    if unified:  # offloaded tensors stay in the same memory
        c = replace(c, offload=np.zeros((), np.int8), paged_optimizer=np.zeros((), np.bool_))
    groups = share.inputs.model.layer_groups
    all_saved = [all_bytes(share, group) for group in groups]
    saved = [layer_bytes(share, group, each) for group, each in zip(groups, all_saved, strict=True)]
    state = _state_parts(share, c, parameters)
    candidates = range(len(parameters.dense))
    moved = [moved_activations(share, group, c) for group in groups]
    moments = tuple(
        _stage_memory(share, c, parameters, stage, saved, all_saved, moved, state)
        for stage in candidates
    )
    paged, least = np.zeros(()), None
    if c.paged_optimizer.any():
        moments, paged, least = _page_states(share, c, moments, state)
    totals = tuple(largest(moment.total for moment in of_stage) for of_stage in moments)
    host = np.zeros(())
    if c.any_offload:
        host = largest(
            host_bytes(
                share.inputs,
                c.offload,
                weights=state("weight", stage),
                states=state("optimizer", stage),
                gradients=state("host_gradient", stage),
                activations=_activations(c, parameters, stage, moved),
            )
            for stage in candidates
        )
    # Files are mapped, and their pages leave one memory as its weights are made of them.
    loading = np.zeros(()) if unified else loading_bytes(share.inputs, c, parameters)
    peak = largest(totals)
    return Memory(
        moments=moments,
        totals=totals,
        peak=peak,
        host=host + paged,
        loading=loading,
        paged=paged,
        least=peak if least is None else least,
    )


def _page_states(
    share: MicroBatchShare,
    c: TrainingConfigurations,
    moments: tuple[tuple[MemoryBreakdown, ...], ...],
    state: Callable[[str, int], FloatArray],
) -> tuple[tuple[tuple[MemoryBreakdown, ...], ...], FloatArray, FloatArray]:
    """Move optimizer states that do not fit to the host; return rest, moved bytes, lowest peak.

    Pages leave only as far as memory is missing (bitsandbytes 0.48, ``optim/optimizer.py``, states
    in CUDA's managed memory).
    """
    capacity = share.machine.gpu.allocatable_memory
    left, paged, least = [], [np.zeros(())], []
    for stage, of_stage in enumerate(moments):
        movable = np.where(c.paged_optimizer, state("moments", stage), 0.0)
        limits = [np.minimum(movable, each.optimizer_states) for each in of_stage]
        pairs = [*zip(of_stage, limits, strict=True)]
        moves = largest(np.clip(each.total - capacity, 0.0, limit) for each, limit in pairs)
        paged.append(moves)
        least += [each.total - limit for each, limit in pairs]
        states = (each.optimizer_states - np.minimum(moves, limit) for each, limit in pairs)
        remaining_states = zip(of_stage, states, strict=True)
        left.append(
            tuple(replace(each, optimizer_states=remaining) for each, remaining in remaining_states)
        )
    return tuple(left), largest(paged), largest(least)


def _activations(
    c: TrainingConfigurations, parameters: StageParameters, stage: int, saved: list[FloatArray]
) -> FloatArray:
    """Return activation bytes of a stage for all its micro-batches in flight on one GPU."""
    counts = parameters.trained.layers.counts[stage]
    in_flight = _in_flight(c, parameters.layers.ranks[stage])
    per_micro_batch = add(count * num_bytes for count, num_bytes in zip(counts, saved, strict=True))
    return per_micro_batch * in_flight


def _stage_memory(
    share: MicroBatchShare,
    c: TrainingConfigurations,
    parameters: StageParameters,
    stage: int,
    saved: list[FloatArray],
    all_saved: list[FloatArray],
    moved: list[FloatArray],
    state: Callable[[str, int], FloatArray],
) -> tuple[MemoryBreakdown, ...]:
    """Return memory breakdowns of a stage in the backward pass, optimizer step and loading."""
    memory = share.inputs.framework.memory
    counts = parameters.layers.counts[stage]
    padding = 1 + memory.fragmentation
    allocated = _activations(c, parameters, stage, [padding * num_bytes for num_bytes in saved])
    if c.any_offload:
        offloaded = _activations(c, parameters, stage, moved)
        allocated = allocated - padding * bytes_moved_away(offloaded, _largest_held(moved, counts))
    if (images := TowerShare.of(share, c)) is not None:
        flying = _in_flight(c, parameters.layers.ranks[stage])
        of_tower = np.where(parameters.is_first[stage], images.kept_bytes(), 0.0)
        allocated = allocated + padding * flying * of_tower
    largest_layer = _largest_held(all_saved, counts)
    rebuilt = _rebuilt_bytes(share, counts, largest_layer)
    backward = MemoryBreakdown(
        weights=np.where(keeps_weights(c.offload), 0.0, state("weight", stage)),
        gradients=np.where(keeps_gradients(share.inputs, c), 0.0, state("gradient", stage)),
        optimizer_states=np.where(keeps_states(c.offload), 0.0, state("optimizer", stage)),
        allocated_activations=allocated,
        working=np.zeros(()),
        gathered=_gathered_bytes(share, c, parameters, stage),
        communication_buffers=communication_bytes(share.inputs, c, parameters, stage),
        reserved=reserved_bytes(share.inputs),
        fragmentation_share=np.asarray(memory.fragmentation),
    )
    loss = np.zeros(())
    if (is_last := parameters.is_last[stage]).any():
        loss = np.where(is_last, _loss_bytes(share, backward), 0.0)
    # Gradients in flight in one layer, and rebuilt activations of recomputation.
    late = np.where(c.zero_stage == ZeroStage.WEIGHTS, memory.sharded_copies, 1.0)
    rings = [ring_bytes(share, group) for group in share.inputs.model.layer_groups]
    of_layer = np.maximum(late * (rebuilt + largest_layer / 4), _largest_held(rings, counts))
    working = np.maximum(of_layer + layer_input_bytes(share), loss)
    backward = replace(backward, working=working + mask_bytes(share))
    moments: tuple[MemoryBreakdown, ...] = (backward,)
    built_up = memory.optimizer_temporary or memory.step_gradients
    if not share.inputs.framework.states.gradients_persist or built_up:
        on_host = host_updates(share.inputs, c.offload)
        update = update_bytes(share, c, state("temporary", stage), parameters, stage)
        temporary = np.where(on_host, 0.0, update)
        moments = _moments(share, c, backward, temporary)
    if c.eval_batch_size.any():
        evaluated = c.eval_batch_size / c.micro_batch_size
        working = layer_input_bytes(share) + largest_layer / 2 + mask_bytes(share)
        logits = share.tokens * share.inputs.model.head_columns / share.tensor_parallel
        logits = np.where(parameters.is_last[stage], evaluated_logit_bytes(share) * logits, 0.0)
        moments = (*moments, _evaluation(share, backward, evaluated * (working + logits)))
    if not memory.loaded_whole and np.all(c.zero3_init):
        return moments
    return (*moments, _loading(share, c, parameters, stage, backward))


def _evaluation(
    share: MicroBatchShare, backward: MemoryBreakdown, working: FloatArray
) -> MemoryBreakdown:
    """Return the memory while a GPU evaluates: a forward pass that keeps nothing."""
    persist = share.inputs.framework.states.gradients_persist
    zero = np.zeros(())
    return replace(
        backward,
        gradients=backward.gradients if persist else zero,
        allocated_activations=zero,
        working=working,
    )


def _loading(
    share: MicroBatchShare,
    c: TrainingConfigurations,
    parameters: StageParameters,
    stage: int,
    backward: MemoryBreakdown,
) -> MemoryBreakdown:
    """Return the memory while a GPU loads the unsharded model, before training starts.

    Without ``zero.Init`` DeepSpeed moves the model to the GPU as it is, and shards it there
    (deepspeedai/DeepSpeed 0.19.6, runtime/engine.py, ``_configure_distributed_model``).
    """
    zero, profile = np.zeros(()), share.inputs.framework
    is_sharded = (c.zero_stage >= profile.states.weights_sharded_from) & (
        parameters.dense_group.size > 1
    )
    num_parameters = parameters.dense[stage] + parameters.experts[stage]
    loaded = backward.weights + profile.memory.loaded_whole * num_parameters
    sent = stage_gathered_bytes(share.inputs, c, parameters, stage)
    loaded = np.where(c.zero3_init, loaded, np.maximum(loaded, sent))
    return replace(
        backward,
        weights=np.where(is_sharded, loaded, backward.weights),
        gradients=zero,
        optimizer_states=zero,
        allocated_activations=zero,
        working=zero,
        gathered=zero,
        communication_buffers=zero,
    )


def _moments(
    share: MicroBatchShare,
    c: TrainingConfigurations,
    backward: MemoryBreakdown,
    temporary: FloatArray,
) -> tuple[MemoryBreakdown, ...]:
    """Return breakdowns of the backward pass and of the optimizer step (without activations).

    A rank that waits to scatter whole gradients has no shards of them before.
    """
    zero = np.zeros(())
    update = replace(backward, allocated_activations=zero, working=temporary, gathered=zero)
    if not share.inputs.framework.states.gradients_persist:
        has_earlier = (c.num_micro_batches > 1) & ~_waits_to_scatter(share, c)
        backward = replace(backward, gradients=np.where(has_earlier, backward.gradients, 0.0))
    return backward, update


def _waits_to_scatter(share: MicroBatchShare, c: TrainingConfigurations) -> BoolArray:
    """Return a mask: True where whole gradients are added up until the last micro-batch."""
    states = share.inputs.framework.states
    is_sharded = c.zero_stage >= states.weights_sharded_from
    return np.asarray(is_sharded & (c.num_micro_batches > 1) & (states.unsynced_gradient > 0))


def _in_flight(c: TrainingConfigurations, rank: FloatArray) -> FloatArray:
    """Return the number of micro-batches whose activations a pipeline rank holds at its peak."""
    in_flight = micro_batches_in_flight(
        pipeline_parallel=c.pipeline_parallel,
        virtual_pipeline=c.virtual_pipeline,
        num_micro_batches=c.num_micro_batches,
        stage=rank,
        from_both_ends=c.from_both_ends,
    )
    if not c.layer_split.any():
        return in_flight
    return np.where(c.layer_split, np.minimum(in_flight, 1.0), in_flight)


def _largest_held(values: list[FloatArray], counts: FloatArray) -> FloatArray:
    """Return the largest value among layer groups that have a layer on the stage."""
    if len(values) == 1:
        return values[0]
    return largest(
        np.where(count > 0, value, 0.0) for value, count in zip(values, counts, strict=True)
    )


def _rebuilt_bytes(share: MicroBatchShare, counts: FloatArray, layer: FloatArray) -> FloatArray:
    """Return activation bytes that recomputation rebuilds at once, of a layer or one block."""
    recomputation = share.recomputation
    rebuilt = np.where(recomputation.any_full, layer, 0.0)
    if not (recomputation.some or recomputation.by_share.any()):
        return rebuilt
    blocks = [rebuilt_bytes(share, group) for group in share.inputs.model.layer_groups]
    return np.where(recomputation.any_full, rebuilt, _largest_held(blocks, counts))


def _loss_bytes(share: MicroBatchShare, other: MemoryBreakdown) -> FloatArray:
    """Return bytes of logits and their copies at the peak of the loss on one GPU.

    ``other``: memory that is in use then. Multi-token prediction modules save the inputs of
    their norms and their projection.
    """
    model = share.inputs.model
    logits = held_logits(share, share.machine.gpu.allocatable_memory - other.total)
    read = share.number_bytes * (2 + 2) * share.local_tokens * model.hidden_size
    each = logits * peak_logit_bytes(share)
    return np.asarray(each + model.mtp_num_layers * (each + read))


def _state_parts(
    share: MicroBatchShare, c: TrainingConfigurations, parameters: StageParameters
) -> Callable[[str, int], FloatArray]:
    """Return a function of state name and stage: bytes of that state on one GPU of the stage."""
    states = share.inputs.framework.states
    trained, model_states = parameters.trained, ModelStates.of(share.inputs, c)
    gradient, temporary = share.gradients.stored_bytes, update_temporary(share, c)
    weights_from = ZeroStage(states.weights_sharded_from)
    # Bytes per parameter of layers, and of embedding and logits.
    rules: dict[str, tuple[Numeric, Numeric, ZeroStage]] = {
        "weight": (model_states.weight, model_states.end_weight, weights_from),
        "gradient": (gradient, gradient, ZeroStage.GRADIENTS),
        "optimizer": (model_states.optimizer, model_states.end_optimizer, ZeroStage.OPTIMIZER),
        "moments": (model_states.moments, model_states.end_moments, ZeroStage.OPTIMIZER),
        "temporary": (temporary, temporary, ZeroStage.OPTIMIZER),
        "host_gradient": (HOST_GRADIENT_BYTES, HOST_GRADIENT_BYTES, ZeroStage.OPTIMIZER),
    }

    def state(name: str, stage: int) -> FloatArray:
        """Return bytes of one model state, such as "gradient", on one GPU of a stage."""
        width, of_end, sharded_from = rules[name]
        dense, experts = trained.dense[stage], trained.experts[stage]
        if name == "gradient" and c.optimizer_in_backward.any():
            dense, experts = _live_gradients(c, trained, stage)
        in_layers = dense if width is of_end else trained.dense_in_layers[stage]
        held = [(in_layers, width, parameters.dense_group)]
        if in_layers is not dense:
            held.append((dense - in_layers, of_end, parameters.dense_group))
        if share.inputs.model.num_experts:
            held.append((experts, width, parameters.expert_group))
        num_bytes = sharded(c, sharded_from, held)
        if name != "weight":
            return num_bytes
        if share.inputs.workload.keeps_untrained:
            num_bytes = num_bytes + untrained_bytes(share.inputs, c, parameters, stage)
        return num_bytes + frozen_tower_bytes(share.inputs, c, parameters, stage)

    return state


def _live_gradients(
    c: TrainingConfigurations, trained: StageParameters, stage: int
) -> tuple[FloatArray, FloatArray]:
    """Count dense and expert parameters with gradients in memory at once on one GPU."""
    counts = trained.layers.counts[stage]
    dense = np.maximum(_largest_held(list(trained.layer_dense), counts), trained.end)
    experts = _largest_held(list(trained.layer_experts), counts)
    now = c.optimizer_in_backward
    return (
        np.where(now, np.minimum(dense, trained.dense[stage]), trained.dense[stage]),
        np.where(now, experts, trained.experts[stage]),
    )


def _gathered_bytes(
    share: MicroBatchShare, c: TrainingConfigurations, parameters: StageParameters, stage: int
) -> FloatArray:
    """Return bytes of unsharded weights and gradients that ZeRO-3 has gathered at once.

    FSDP at stage 2 holds the weights of the whole stage. Behind a pipeline it adds up the
    stage's gradients over the micro-batches before it scatters them. Without ``no_sync`` turned
    off, all gradients of a GPU wait unsharded for the last micro-batch [1]_.

    References
    ----------
    .. [1] PyTorch, FullyShardedDataParallel.no_sync: it accumulates full gradients, not shards.
    """
    profile = share.inputs.framework
    states = profile.states
    passing = (c.zero_stage >= states.weights_sharded_from) | keeps_weights(c.offload)
    if not passing.any():
        return np.zeros(())
    trained, counts = parameters.trained, parameters.layers.counts[stage]
    together = profile.memory.gathered_layers
    of_layer, of_end = gathered_bytes(share.inputs, c)
    layer = together * _largest_held(parameters.in_one_layer, counts)
    weights = np.maximum(layer * of_layer, parameters.end * of_end)
    gradients = np.maximum(together * _largest_held(trained.in_one_layer, counts), trained.end)
    weights = np.maximum(weights, live_bytes(share.inputs, c, parameters, stage))
    if states.weights_sharded_from == ZeroStage.GRADIENTS:
        unsharded = stage_gathered_bytes(share.inputs, c, parameters, stage)
        weights = np.where(c.zero_stage == ZeroStage.GRADIENTS, unsharded, weights)
        if profile.pipeline_parallel:
            unsharded = trained.dense[stage] + trained.experts[stage]
            gradients = np.where(c.pipeline_parallel > 1, unsharded, gradients)
    gradients = gradients * states.gradient_on_wire
    if states.unsynced_gradient:
        of_stage = trained.dense[stage] + trained.experts[stage]
        waiting = states.unsynced_gradient * of_stage
        waits = _waits_to_scatter(share, c)
        gradients = np.where(waits, np.maximum(gradients, waiting), gradients)
    return np.where(passing, weights + gradients, 0.0)
