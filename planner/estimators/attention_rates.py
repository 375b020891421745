"""How fast kernels of attention are on a GPU, over those that are written for it."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import CodeArray, FloatArray
from planner.base.enums import AttentionKernels
from planner.base.software_enums import AttentionKernel
from planner.specs.gpu import AttentionKernelEfficiency, Efficiency

_OWN = AttentionKernelEfficiency(forward=1.0, backward=1.0)
# Written for each generation that they run on.
_NATIVE = (AttentionKernel.FA3, AttentionKernel.FA4, AttentionKernel.CUDNN)
_OF_CLASS = {
    AttentionKernels.FLASH_ATTENTION_2: AttentionKernel.FA2,
    AttentionKernels.PORTABLE: AttentionKernel.TRITON,
}


def rate_of_class(efficiency: Efficiency, kernels: AttentionKernels) -> float:
    """Rate forward of a class of kernels, as engines and profiles name it."""
    return _of_class(efficiency, kernels).forward


def rates(
    efficiency: Efficiency, codes: CodeArray, usual: AttentionKernels
) -> tuple[FloatArray, FloatArray]:
    """Rates forward and backward of codes of `AttentionKernel`; ``usual`` is what auto means."""
    rows = [
        _of_class(efficiency, usual) if code is AttentionKernel.AUTO else _of(efficiency, code)
        for code in AttentionKernel
    ]
    forward, backward = np.array([(row.forward, row.backward) for row in rows]).T
    return forward[codes], backward[codes]


def _of_class(efficiency: Efficiency, kernels: AttentionKernels) -> AttentionKernelEfficiency:
    if kernels is AttentionKernels.NATIVE:
        return _OWN
    return _of(efficiency, _OF_CLASS[kernels])


def _of(efficiency: Efficiency, kernel: AttentionKernel) -> AttentionKernelEfficiency:
    """The GPU's row of a kernel; where there is none, what the kernel is written for."""
    row = efficiency.attention_kernels.get(kernel.word)
    if row is not None:
        return row
    if kernel in _NATIVE:
        return _OWN
    if kernel is AttentionKernel.SDPA:
        return _of(efficiency, AttentionKernel.FA2)
    portable = efficiency.portable_attention_fraction
    return AttentionKernelEfficiency(forward=portable, backward=portable)
