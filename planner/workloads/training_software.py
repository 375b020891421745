"""How a framework computes where nobody says it: what is told of it, and what else it could do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.configurations.attention_rules import has_kernel
from planner.enums import AttentionKernels
from planner.estimators.attention_rates import rates
from planner.estimators.share import Setting
from planner.optimize.source import Source
from planner.software_enums import AttentionKernel
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.workloads.base import Scene

_KERNEL = "attention_kernel"
# In this order where several are as fast.
_TRIED = (AttentionKernel.FA2, AttentionKernel.FA3, AttentionKernel.FA4, AttentionKernel.CUDNN)
_OF_CLASS = {
    AttentionKernels.NATIVE: "as fast as the GPU's own",
    AttentionKernels.FLASH_ATTENTION_2: AttentionKernel.FA2.word,
    AttentionKernels.PORTABLE: AttentionKernel.TRITON.word,
}
_FASTER = 1.05


def usual_software(scene: Scene) -> dict[str, str]:
    """What a framework does by default where it could do something that changes the answer."""
    if _KERNEL in {**scene.space.parameters, **scene.question.request.settings}:
        return {}
    profile, gpu = scene.profile, scene.place.machine.gpu
    best = _faster_kernel(gpu, profile, AttentionKernel.AUTO)
    if best is None:
        return {}
    own = _OF_CLASS[profile.execution.attention_kernels]
    return {_KERNEL: f"{own} ({profile.name}'s default; {best.word} is faster on this GPU)"}


def other_software(source: Source, row: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    """Settings that would make a plan faster, by what they change."""
    setting: Setting = source.setting
    if not row["flash_attention"] or row[_KERNEL] == AttentionKernel.EAGER.word:
        return {}
    own = AttentionKernel[row[_KERNEL].upper()]
    best = _faster_kernel(setting.machine.gpu, setting.framework, own)
    if best is None:
        return {}
    word = own.word if own else _OF_CLASS[setting.framework.execution.attention_kernels]
    return {f"{_KERNEL} {best.word} instead of {word}": {_KERNEL: best.word}}


def _faster_kernel(
    gpu: GpuSpec, profile: FrameworkProfile, own: AttentionKernel
) -> AttentionKernel | None:
    """The fastest kernel of the GPU; None where it is not worth naming."""
    codes = np.array([own, *(kernel for kernel in _TRIED if has_kernel(gpu, kernel))])
    forward, backward = rates(gpu.efficiency, codes, profile.execution.attention_kernels)
    both = 2 / (1 / forward + 1 / backward)
    best = int(np.argmax(both))
    return AttentionKernel(codes[best]) if both[best] > _FASTER * both[0] else None
