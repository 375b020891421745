"""A model under torch.compile where its profile is of eager ones, and the other way round."""

from __future__ import annotations

from typing import Any

# Read and written by RMS norm, rotary embedding and gated function where each operation is a
# kernel: bytes per 16-bit element, forward and backward.
EAGER = {(4, 6): (36, 84), (4, 4): (20, 20), (6, 10): (10, 18)}


def other_way(world: Any, layout: Any) -> bool:
    own = "true" if world.framework.compilation.default else "false"
    return layout.torch_compile not in ("auto", own)


def passes(
    world: Any, layout: Any, fused: tuple[float, float], *, single: bool
) -> tuple[float, float]:
    """Bytes per element; ``single``: PyTorch has one kernel of it, compiled or not."""
    if not other_way(world, layout):
        each = world.framework.execution.elementwise_passes
        return each * fused[0], each * fused[1]
    each = world.framework.compilation.elementwise_passes
    if world.framework.compilation.default and not single:
        fused = EAGER.get(fused, fused)
    return each * fused[0], each * fused[1]


def kept_activations(world: Any, layout: Any) -> float:
    compiled = other_way(world, layout) and not world.framework.compilation.default
    whose = world.framework.compilation if compiled else world.framework.memory
    return float(whose.kept_activations)


def keeps_copies(world: Any, layout: Any) -> bool:
    return other_way(world, layout) and bool(world.framework.compilation.default)


def launch_time(world: Any, layout: Any) -> float:
    if not other_way(world, layout):
        return float(world.framework.execution.layer_launch_time)
    compilation, seconds = (
        world.framework.compilation,
        world.framework.compilation.layer_launch_time,
    )
    if compilation.default and layout.tensor_parallel > 1:
        seconds += compilation.tensor_parallel_launch_time
    return float(seconds)
