"""Memory and passes of the kernels of the loss."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import CodeArray, FloatArray
from planner.base.software_enums import LossKernel
from planner.estimators.training.bytes_per_element import WIDE_BYTES
from planner.estimators.training.micro_batch_share import MicroBatchShare

EAGER_BYTES = 14.0
"""Bytes per logit of a loss in several kernels [1]_."""
SHIFTED_BYTES = 2.0
"""Further bytes per logit until 2024, when Transformers made a shifted copy in 32 bits.

The 16-bit logits waited for it.
"""
EAGER_PASSES = 14.0
"""Reads and writes of 16-bit logits that it makes."""

# With as many or more, a framework's own loss is one of several kernels.
_LEAST_EAGER_BYTES = 12.0
_LOGIT_GRADIENT = 4.0
_EAGER_FORWARD_BYTES = 10.0
_WHOLE_BYTES = 4.0  # 16-bit logits and their gradient
_LINEAR_BYTES = 0.5
_USUAL_CHUNKS = 8
# Maximum and sum, then the gradient: three reads and a write.
_COMPILED_PASSES = 4.0
_FUSED_PASSES = 3.0


def logit_bytes(share: MicroBatchShare) -> FloatArray:
    """Return bytes per logit at the memory peak of the loss."""
    memory, work = share.inputs.framework.memory, share.inputs.workload
    of_answers = work.training_objective.needs_rollouts and memory.per_logit_answers
    default = of_answers or memory.per_logit
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
            default if default >= _LEAST_EAGER_BYTES else EAGER_BYTES,
            min(default, _WHOLE_BYTES),
            memory.per_logit_fused if memory.loss_room else min(default, memory.per_logit_fused),
            np.minimum(default, by_chunk),
            np.minimum(default, linear),
        ],
    )


def peak_logit_bytes(share: MicroBatchShare) -> FloatArray:
    """Return bytes per logit at the loss peak, with those of a reference or other passes.

    Losses of preferences need the log-probability of every token, which kernels of the
    cross-entropy do not return. Liger joins them with the matrix, too, one sample at a time [1]_.
    Passes without gradients run while the policy's logits wait for their backward pass: both have
    all but the gradient, of 4 bytes, then, and 2 + 4 + 4 bytes in an eager loss [2]_ [3]_. Those
    of rollouts are over before the update begins.

    References
    ----------
    .. [1] linkedin/Liger-Kernel 0.6.2, src/liger_kernel/chunked_loss/fused_linear_preference.py:
       chunk_size = 1.
    .. [2] trl 1.10, trl/trainer/dpo_trainer.py, ``_compute_loss``.
    .. [3] LLaMA-Factory 0.9, train/dpo/trainer.py, ``get_batch_loss_metrics``.
    """
    trained, work = logit_bytes(share), share.inputs.workload
    if work.training_objective.needs_rollouts:
        return trained
    if _compares_answers(share):
        of_all = np.maximum(trained, share.inputs.framework.memory.per_logit_pairs)
        samples = share.sequences / work.sequences_per_sample
        of_one = np.maximum(trained, EAGER_BYTES / np.maximum(samples, 1.0))
        trained = np.where(_kernel(share) == LossKernel.LINEAR, of_one, of_all)
    if not any(work.forward_passes):
        return trained
    return np.asarray(np.maximum(trained, 2 * _forward_bytes(trained)))


def held_logits(share: MicroBatchShare, free: FloatArray) -> FloatArray:
    """Return how many logits the loss holds at once on a GPU that has ``free`` bytes for them.

    Some losses take as many tokens at a time as fit there, if no other kernel is set.
    """
    memory = share.inputs.framework.memory
    logits = share.tokens * share.inputs.model.head_columns / share.tensor_parallel
    if not _fills_room(share):
        return logits
    chunk_bytes = np.clip(memory.loss_room * free, 0.0, memory.loss_chunk or np.inf)
    in_chunks = np.minimum(logits, chunk_bytes / WIDE_BYTES)
    return np.where(share.loss_kernel == LossKernel.FUSED, logits, in_chunks)


def _fills_room(share: MicroBatchShare) -> bool:
    """Whether the framework's own loss takes chunks of logits that fill the free memory."""
    return share.inputs.framework.memory.loss_room > 0 and not _compares_answers(share)


def _compares_answers(share: MicroBatchShare) -> bool:
    """Whether the loss compares answers by log-probabilities that PyTorch computes."""
    objective = share.inputs.workload.training_objective
    has_pair_loss = share.inputs.framework.memory.per_logit_pairs > 0
    return has_pair_loss and objective.is_preference and not objective.needs_rollouts


def evaluated_logit_bytes(share: MicroBatchShare) -> FloatArray:
    """Return bytes per logit of a pass that only evaluates; 0 where the loss takes the free room.

    Liger joins the loss and its matrix in training alone (linkedin/Liger-Kernel 0.6,
    src/liger_kernel/transformers/model/llama.py: ``skip_logits = self.training and ...``).
    """
    trained, kernel = logit_bytes(share), _kernel(share)
    joined = (kernel >= LossKernel.CHUNKED) | (trained < _WHOLE_BYTES)
    fits_room = _fills_room(share) & (kernel != LossKernel.FUSED)
    stored = np.where(joined, _EAGER_FORWARD_BYTES, np.maximum(_forward_bytes(trained), 2.0))
    return np.where(fits_room, 0.0, stored)


def _forward_bytes(trained: FloatArray) -> FloatArray:
    """Return what a loss holds of each logit without its gradient."""
    return np.where(trained >= _LEAST_EAGER_BYTES, _EAGER_FORWARD_BYTES, trained - _LOGIT_GRADIENT)


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
