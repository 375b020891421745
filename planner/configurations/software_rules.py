"""How software computes on a GPU: which kernels of attention it has, parts of the loss.

References
----------
.. [1] Dao-AILab/flash-attention, README (2026): FlashAttention-2 for Ampere, Ada and Hopper, and
   AMD's MI200 and MI300; FlashAttention-3 for Hopper; FlashAttention-4 for Hopper and Blackwell,
   of which its interface takes compute capabilities 9 to 11, no GeForce; heads of at most 256.
.. [2] NVIDIA/cudnn-frontend, docs/operations/Attention.md: fused attention from Ampere on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.base.arrays import BoolArray
from planner.base.software_enums import AttentionKernel, LossKernel
from planner.configurations.training import TrainingConfigurations
from planner.specs.gpu import GpuSpec

if TYPE_CHECKING:
    from planner.configurations.training_rules import Context

_BEFORE_AMPERE = ("pascal", "volta", "turing")
_FLASH = (AttentionKernel.FA2, AttentionKernel.FA3, AttentionKernel.FA4)
_WIDEST_FLASH_HEAD = 256

ATTENTION_KERNEL = (
    "attention_kernel: fa2 needs NVIDIA from Ampere on or AMD, fa3 Hopper, fa4 Hopper or a data "
    f"centre's Blackwell, cudnn NVIDIA from Ampere on; fa2 to fa4 heads of at most "
    f"{_WIDEST_FLASH_HEAD}; all but auto and eager flash_attention"
)
"""The rule in words."""


LOSS_CHUNKS = "loss_chunks needs loss_kernel chunked or linear"
"""The rule in words."""


def loss_chunks(c: TrainingConfigurations, _: Context) -> BoolArray:
    """Parts of tokens where a loss takes all at once."""
    return np.asarray((c.loss_chunks > 0) & (c.loss_kernel < LossKernel.CHUNKED))


def has_kernel(gpu: GpuSpec, kernel: AttentionKernel) -> bool:
    """Whether a kernel runs on a GPU [1]_ [2]_."""
    is_nvidia = gpu.vendor == "NVIDIA" and gpu.architecture not in _BEFORE_AMPERE
    return {
        AttentionKernel.FA2: is_nvidia or gpu.vendor == "AMD",
        AttentionKernel.FA3: gpu.architecture == "hopper",
        AttentionKernel.FA4: gpu.architecture in ("hopper", "blackwell"),
        AttentionKernel.CUDNN: is_nvidia,
    }.get(kernel, True)


def attention_kernel(c: TrainingConfigurations, context: Context) -> BoolArray:
    """Kernels that the GPU or the width of heads excludes, or an unfused attention contradicts."""
    if not np.any(c.attention_kernel):
        return np.zeros((), dtype=np.bool_)
    heads = [each.head_dim for each in context.model.attentions if not each.has_state]
    is_wide = max(heads, default=0) > _WIDEST_FLASH_HEAD
    lacking = np.array(
        [
            not has_kernel(context.gpu, kernel) or (is_wide and kernel in _FLASH)
            for kernel in AttentionKernel
        ]
    )
    fused = c.attention_kernel > AttentionKernel.EAGER
    return np.asarray(lacking[c.attention_kernel] | (fused & ~c.flash_attention))
