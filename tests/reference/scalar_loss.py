"""Copies and passes of the logits by kind of loss."""

from __future__ import annotations

from typing import Any

from scalar_compile import other_way


def loss_kernel(world: Any, layout: Any) -> str:
    """The loss of an eager framework is compiled with its model."""
    compiled = other_way(world, layout) and not world.framework.compilation.default
    return "compiled" if compiled and layout.loss_kernel == "auto" else str(layout.loss_kernel)


def logit_bytes(world: Any, layout: Any) -> float:
    """Eager: 2 + 4 + 4 + 4; fused and compiled ones keep the logits and their gradient.

    Software whose own loss keeps three fp32 tensors, 12 bytes, or more is eager already. Where the
    own loss is in chunks, its fused kernel is that of an older release.
    """
    memory, n = world.framework.memory, layout.loss_chunks
    own = float(memory.per_logit)
    if loss_kernel(world, layout) == "eager":
        return own if own >= 3 * 4 else 14.0
    if loss_kernel(world, layout) == "fused" and memory.loss_room:
        return float(memory.per_logit_fused)
    kept = {
        "compiled": 4.0,
        "fused": memory.per_logit_fused,
        "chunked": 4.0 + 10.0 / (n or 8),
        "linear": 14.0 / n if n else 0.5,
    }
    return min(own, kept.get(loss_kernel(world, layout), own))


def logit_passes(world: Any, layout: Any) -> float:
    own = float(world.framework.execution.loss_passes)
    if loss_kernel(world, layout) in ("eager", "chunked"):
        return max(own, 14.0)
    return min(
        own, {"compiled": 4.0, "fused": 3.0, "linear": 3.0}.get(loss_kernel(world, layout), own)
    )


def evaluated_logit_bytes(world: Any, layout: Any) -> float:
    """16-bit logits, their 32-bit copy and its logarithm; one kernel has no gradient of 4 bytes."""
    kernel, each = loss_kernel(world, layout), logit_bytes(world, layout)
    if world.framework.memory.loss_room and kernel != "fused":
        return 0.0
    if kernel in ("chunked", "linear") or each < 4 or each >= 3 * 4:
        return 10.0
    return max(each - 4.0, 2.0)
