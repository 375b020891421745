"""What a GPU holds beside the model, one configuration at a time."""

from __future__ import annotations

from scalar_adapters import trained_in_stages
from scalar_machine import Layout, World


def reserved(world: World) -> float:
    """Context, and what lies idle in caches of 80 GB, or its share on less."""
    whole, context = world.framework.memory.reserved, 2**29
    if whole <= context:
        return whole
    return context + (whole - context) * min(world.gpu.memory_capacity / 80e9, 1)


def buffers(world: World, layout: Layout, stage: int) -> float:
    """A bucket is as large as it may be, or as what it is filled with."""
    memory = world.framework.memory
    if layout.num_gpus == 1:
        return 0.0
    if not memory.buffered_bytes:
        return memory.communication_buffer
    held = memory.buffered_bytes * sum(trained_in_stages(world, layout)[stage])
    return min(memory.communication_buffer, held)
