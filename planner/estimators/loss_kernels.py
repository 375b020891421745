"""Copies of the logits that a loss keeps, and how often it reads and writes them.

References
----------
.. [1] huggingface/transformers 5, src/transformers/loss/loss_utils.py, and PyTorch's autograd:
   16-bit logits, their fp32 log-softmax, and in fp32 the gradients of both, the cast freed before.
.. [2] meta-pytorch/torchtune CEWithChunkedOutputLoss and axolotl's chunked_cross_entropy: 16-bit
   logits and their gradient whole, the fp32 copies of a chunk; 8 chunks by default.
   pytorch/torchtitan PR 996: 49.58 GiB became 42.26 for 1.05 billion logits, 7.5 bytes of each;
   here 8.75.
.. [3] P.-L. Hsu et al., "Liger Kernel," 2024, arXiv:2410.10989, section 3.2.2: gradients in the
   place of the logits of a chunk, of which there are as many as vocabulary over hidden size.
"""

from __future__ import annotations

import numpy as np

from planner.base.arrays import CodeArray, FloatArray
from planner.base.software_enums import LossKernel
from planner.estimators.compilation import is_other_way
from planner.estimators.share import Share

EAGER_BYTES = 14.0
"""Bytes per logit of a loss in several kernels [1]_."""
EAGER_PASSES = 14.0
"""Reads and writes of 16-bit logits that it makes."""

_WHOLE_BYTES = 4.0  # 16-bit logits and their gradient
_LINEAR_BYTES = 0.5
_USUAL_CHUNKS = 8
# Maximum and sum, then the gradient: three reads and a write.
_COMPILED_PASSES = 4.0
_FUSED_PASSES = 3.0


def logit_bytes(share: Share) -> FloatArray:
    """Bytes per logit at the peak of the loss; no kernel keeps more than the framework's own."""
    memory = share.setting.framework.memory
    own = memory.per_logit
    kernel = _kernel(share)
    if not np.any(kernel):
        return np.asarray(own)
    chunks = np.where(share.loss_chunks > 0, share.loss_chunks, _USUAL_CHUNKS)
    by_chunk = _WHOLE_BYTES + (EAGER_BYTES - _WHOLE_BYTES) / chunks
    linear = np.where(share.loss_chunks > 0, EAGER_BYTES / chunks, _LINEAR_BYTES)
    return np.choose(
        kernel,
        [
            own,
            max(own, EAGER_BYTES),
            min(own, _WHOLE_BYTES),
            min(own, memory.per_logit_fused),
            np.minimum(own, by_chunk),
            np.minimum(own, linear),
        ],
    )


def logit_passes(share: Share) -> FloatArray:
    """Reads and writes of the logits by forward and backward of the loss."""
    own, kernel = share.setting.framework.execution.loss_passes, _kernel(share)
    if not np.any(kernel):
        return np.asarray(own)
    passes = {
        LossKernel.AUTO: own,
        LossKernel.EAGER: max(own, EAGER_PASSES),
        LossKernel.COMPILED: min(own, _COMPILED_PASSES),
        LossKernel.FUSED: min(own, _FUSED_PASSES),
        LossKernel.CHUNKED: max(own, EAGER_PASSES),
        LossKernel.LINEAR: min(own, _FUSED_PASSES),
    }
    return np.array([passes[code] for code in LossKernel])[kernel]


def _kernel(share: Share) -> CodeArray:
    """The loss of each configuration: that of an eager framework is compiled with its model."""
    compiled = is_other_way(share) & (not share.setting.framework.compilation.default)
    is_its_own = share.loss_kernel == LossKernel.AUTO
    return np.where(compiled & is_its_own, LossKernel.COMPILED, share.loss_kernel)
