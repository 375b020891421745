"""What a GPU holds beside the model: context and caches, buffers on the wire, temporaries."""

from __future__ import annotations

import numpy as np

from planner.arrays import FloatArray
from planner.configurations.training import TrainingConfigurations
from planner.enums import OptimizerKind, StatePrecision
from planner.estimators.sharding import StageParameters
from planner.estimators.share import Setting, Share
from planner.units import GIB

# A CUDA context with the kernels of PyTorch is 0.4 to 0.6 GiB.
_CONTEXT = 0.5 * GIB
_LARGE_GPU = 80e9


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
    """Buffers of gradients and weights on the wire; a lone GPU has none.

    A bucket holds no more than there is.
    """
    memory = setting.framework.memory
    held = np.asarray(memory.communication_buffer)
    if memory.buffered_bytes:
        trained = parameters.trained.dense[stage] + parameters.trained.experts[stage]
        held = np.minimum(held, memory.buffered_bytes * trained)
    return np.where(c.num_gpus > 1, held, 0.0)


def update_temporary(share: Share, c: TrainingConfigurations) -> FloatArray:
    """Bytes per parameter that an update builds up at once.

    Optimizers in 8 bit go through the parameters one by one [1]_ [2]_, and so does Adafactor.

    References
    ----------
    .. [1] bitsandbytes 0.48, optim/optimizer.py: step() calls update_step for each parameter.
    .. [2] pytorch/ao 0.13, optim/adam.py: single_param_adam for each parameter.
    """
    temporary = share.setting.framework.memory.optimizer_temporary
    narrow = np.isin(c.optimizer_state_precision, (StatePrecision.FP8, StatePrecision.INT8))
    one_by_one = narrow | (c.optimizer == OptimizerKind.ADAFACTOR)
    return np.where(one_by_one, 0.0, temporary)
