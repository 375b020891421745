"""Memory and passes of the kernels of the loss."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import CodeArray, FloatArray
from planner.base.software_enums import LossKernel
from planner.estimators.training.micro_batch_share import MicroBatchShare

EAGER_BYTES = 14.0
"""Bytes per logit of a loss in several kernels [1]_."""
LEAST_EAGER_BYTES = 12.0
"""With as many or more, a framework's own loss is one of several kernels."""
EAGER_PASSES = 14.0
"""Reads and writes of 16-bit logits that it makes."""

_WHOLE_BYTES = 4.0  # 16-bit logits and their gradient
_LINEAR_BYTES = 0.5
_USUAL_CHUNKS = 8
# Maximum and sum, then the gradient: three reads and a write.
_COMPILED_PASSES = 4.0
_FUSED_PASSES = 3.0


def logit_bytes(share: MicroBatchShare) -> FloatArray:
    """Return bytes per logit at the memory peak of the loss."""
    memory = share.inputs.framework.memory
    default = memory.per_logit
    kernel = _kernel(share)
    if not np.any(kernel):
        return np.asarray(default)
    chunks = np.where(share.loss_chunks > 0, share.loss_chunks, _USUAL_CHUNKS)
    by_chunk = _WHOLE_BYTES + (EAGER_BYTES - _WHOLE_BYTES) / chunks
    linear = np.where(share.loss_chunks > 0, EAGER_BYTES / chunks, _LINEAR_BYTES)
    return np.choose(
        kernel,
        [
            default,
            default if default >= LEAST_EAGER_BYTES else EAGER_BYTES,
            min(default, _WHOLE_BYTES),
            memory.per_logit_fused if memory.loss_room else min(default, memory.per_logit_fused),
            np.minimum(default, by_chunk),
            np.minimum(default, linear),
        ],
    )


def logit_passes(share: MicroBatchShare) -> FloatArray:
    """Return how often forward and backward of the loss read or write each logit."""
    default, kernel = share.execution.loss_passes, _kernel(share)
    if not np.any(kernel):
        return np.asarray(default)
    passes = {
        LossKernel.AUTO: default,
        LossKernel.EAGER: max(default, EAGER_PASSES),
        LossKernel.COMPILED: min(default, _COMPILED_PASSES),
        LossKernel.FUSED: min(default, _FUSED_PASSES),
        LossKernel.CHUNKED: max(default, EAGER_PASSES),
        LossKernel.LINEAR: min(default, _FUSED_PASSES),
    }
    return np.array([passes[code] for code in LossKernel])[kernel]


def _kernel(share: MicroBatchShare) -> CodeArray:
    """The loss of each configuration: that of an eager framework is compiled with its model."""
    compiled = share.compiled_otherwise & (not share.inputs.framework.compilation.default)
    is_auto = share.loss_kernel == LossKernel.AUTO
    return np.where(compiled & is_auto, LossKernel.COMPILED, share.loss_kernel)
