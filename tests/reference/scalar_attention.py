"""Which kernels compute attention, and how fast beside those of the GPU."""

from __future__ import annotations

from typing import Any


def attention_kernels(world: Any, layout: Any) -> str:
    """The kernel that is named, else the class of the framework's."""
    if layout.attention_kernel == "auto":
        return str(world.framework.execution.attention_kernels)
    return str(layout.attention_kernel)


def kernel_rates(efficiency: Any, kernels: str) -> tuple[float, float]:
    """Forward and backward over the GPU's own, which FA3, FA4 and cuDNN are where none is told."""
    name = {"flash_attention_2": "fa2", "portable": "triton"}.get(kernels, kernels)
    table, portable = efficiency.attention_kernels, efficiency.portable_attention_fraction
    if name == "sdpa" and "sdpa" not in table:
        name = "fa2"
    if name in table:
        return table[name].forward, table[name].backward
    return (1.0, 1.0) if name in ("native", "fa3", "fa4", "cudnn") else (portable, portable)
