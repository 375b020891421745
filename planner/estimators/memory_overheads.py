"""What a GPU holds beside the model: context and caches, buffers on the wire, temporaries."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.enums import ComputePrecision, OptimizerKind, StatePrecision, ZeroStage
from planner.base.units import GIB
from planner.configurations.training import TrainingConfigurations
from planner.estimators.frozen import stage_gathered_bytes
from planner.estimators.gradients import Gradients
from planner.estimators.number_bytes import is_wide
from planner.estimators.sharding import StageParameters
from planner.estimators.share import Setting, Share

# A CUDA context with the kernels of PyTorch is 0.4 to 0.6 GiB.
_CONTEXT = 0.5 * GIB
_LARGE_GPU = 80e9
_LOOKED_THROUGH, _FLAGGED = 11.0, 3.0


def reserved_bytes(setting: Setting) -> FloatArray:
    """Context, libraries and what the allocator keeps idle, on one GPU.

    A profile's figure is of GPUs of 80 GB. What is beyond the context is mostly cached blocks,
    which PyTorch gives back before it fails [1]_: smaller GPUs have as much less of them.

    References
    ----------
    .. [1] pytorch/pytorch, c10/cuda/CUDACachingAllocator.cpp: malloc frees what is cached and not
       used (release_cached_blocks), and tries again.
    """
    whole = setting.framework.memory.reserved
    context = min(whole, _CONTEXT)
    of_large = min(setting.machine.gpu.memory_capacity / _LARGE_GPU, 1.0)
    return np.asarray(context + (whole - context) * of_large)


def communication_bytes(
    setting: Setting, c: TrainingConfigurations, parameters: StageParameters, stage: int
) -> FloatArray:
    """Buffers of gradients and weights on the wire; a lone GPU has none, but those of ZeRO.

    A bucket holds no more than there is. DeepSpeed, whose bucket can be told, has two in stages 1
    and 2 where it overlaps their reduction, as is predicted [4]_; stage 3 scatters from a copy of
    one [1]_. Replicas under DistributedDataParallel have buckets for all gradients beside these,
    as nobody says gradient_as_bucket_view [2]_ [3]_.

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
    memory = setting.framework.memory
    held = np.asarray(memory.communication_buffer)
    if memory.reduce_bucket_size:
        told = np.where(c.reduce_bucket_size > 0, c.reduce_bucket_size, memory.reduce_bucket_size)
        copies = np.where(c.zero_stage > ZeroStage.NONE, 2.0, 1.0)
        held = held * copies * told / memory.reduce_bucket_size
    if memory.buffered_bytes:
        trained = parameters.trained.dense[stage] + parameters.trained.experts[stage]
        held = np.minimum(held, memory.buffered_bytes * trained)
    if memory.replica_buckets:
        held = np.maximum(held, _replica_buckets(setting, c, parameters, stage))
    alone = (c.num_gpus == 1) & (c.zero_stage == ZeroStage.NONE)
    return np.where(alone if memory.reduce_bucket_size else c.num_gpus == 1, 0.0, held)


def _replica_buckets(
    setting: Setting, c: TrainingConfigurations, parameters: StageParameters, stage: int
) -> FloatArray:
    """Bytes of a second copy of all gradients; none where states are sharded, or on one rank."""
    trained = parameters.trained.dense[stage] + parameters.trained.experts[stage]
    each = Gradients.of(
        setting.framework, c.precision, c.main_grads_precision, c.main_params_precision
    ).kept
    is_replica = (c.zero_stage == ZeroStage.NONE) & (parameters.dense_group.size > 1)
    return np.where(is_replica, each * trained, 0.0)


def update_temporary(share: Share, c: TrainingConfigurations) -> FloatArray:
    """Bytes per parameter that an update builds up at once.

    Optimizers in 8 bit go through the parameters one by one [1]_ [2]_, and so does Adafactor; what
    the framework makes of gradients first, it makes for all.

    References
    ----------
    .. [1] bitsandbytes 0.48, optim/optimizer.py: step() calls update_step for each parameter.
    .. [2] pytorch/ao 0.13, optim/adam.py: single_param_adam for each parameter.
    """
    memory = share.setting.framework.memory
    narrow = np.isin(c.optimizer_state_precision, (StatePrecision.FP8, StatePrecision.INT8))
    one_by_one = narrow | (c.optimizer == OptimizerKind.ADAFACTOR)
    return np.where(one_by_one, 0.0, memory.optimizer_temporary) + memory.step_gradients


def updated_at_once(
    share: Share,
    c: TrainingConfigurations,
    temporary: FloatArray,
    parameters: StageParameters,
    stage: int,
) -> FloatArray:
    """Bytes of the temporaries of one update, of those of all that a rank owns.

    ZeRO-3 of DeepSpeed makes the gradients of one sub-group after the other [1]_. Before an update
    gradients are looked through for overflows: stages 1 and 2 take one after the other to 32 bits,
    in which what is no number is told apart by as many bytes again, in 16 bits or not; the
    largest is the embedding's [2]_. In fp16 stage 3 looks through all that it owns at once [3]_.

    References
    ----------
    .. [1] deepspeedai/DeepSpeed 0.19.6, runtime/zero/stage3.py: step() goes through the
       sub-groups; _prepare_fp32_grad_for_sub_group.
    .. [2] The same, runtime/zero/stage_1_and_2.py, _has_inf_or_nan: x.float() (4 bytes), three
       flags (3), and their maximum in 32 bits (4).
    .. [3] The same, stage3.py, has_overflow: torch.isinf of a flat buffer, which PyTorch computes
       as abs() == inf: 2 bytes and a flag.
    """
    own = share.setting.framework.memory.sub_group_size
    if not own:
        return temporary
    numbers = np.where(c.sub_group_size > 0, c.sub_group_size, own)
    each = update_temporary(share, c)
    of_all = temporary / each
    in_groups = c.zero_stage == ZeroStage.WEIGHTS
    has_end = parameters.is_first[stage] | parameters.is_last[stage]
    largest = np.where(has_end, np.minimum(of_all, parameters.trained.end), 0.0)
    looked_through = np.where(in_groups, 0.0, _LOOKED_THROUGH * largest)
    is_fp16 = c.precision == ComputePrecision.FP16
    looked_through = np.where(in_groups & is_fp16, _FLAGGED * of_all, looked_through)
    looked_through = np.where(is_wide(c.precision) | (c.zero_stage == 0), 0.0, looked_through)
    made = np.where(in_groups, np.minimum(temporary, numbers * each), temporary)
    return np.maximum(made, looked_through)


def live_bytes(
    setting: Setting, c: TrainingConfigurations, parameters: StageParameters, stage: int
) -> FloatArray:
    """Weights of a stage that ZeRO-3 of DeepSpeed keeps whole at once; 0 of other software.

    What a module has used stays if it is needed again within so many parameters, as the last
    layers are between the two passes, and no more than so many stay [1]_.

    References
    ----------
    .. [1] deepspeedai/DeepSpeed 0.19.6, runtime/zero/partitioned_param_coordinator.py:
       max_available_parameters_in_numel, max_reuse_distance_in_numel.
    """
    own = setting.framework.memory.max_live_parameters
    if not own:
        return np.zeros(())
    told = c.stage3_max_live_parameters
    held = parameters.dense[stage] + parameters.experts[stage]
    share = np.minimum(np.where(told > 0, told, own) / held, 1.0)
    return np.asarray(share * stage_gathered_bytes(setting, c, parameters, stage))
