"""What a GPU holds beside the model, one configuration at a time."""

from __future__ import annotations

from scalar_adapters import trained_in_end, trained_in_stages
from scalar_machine import Layout, World, of_gradients
from scalar_optimizers import update_temporary
from scalar_parameters import groups


def reserved(world: World) -> float:
    """Context, and what lies idle in caches of 80 GB, or its share on less."""
    whole, context = world.framework.memory.reserved, 2**29
    if whole <= context:
        return whole
    return context + (whole - context) * min(world.gpu.memory_capacity / 80e9, 1)


def buffers(world: World, layout: Layout, stage: int) -> float:
    """A bucket is as large as it may be, or as what it is filled with."""
    memory = world.framework.memory
    told = memory.reduce_bucket_size
    if layout.num_gpus == 1 and not (told and layout.zero_stage):
        return 0.0
    if told:
        copies = 2 if layout.zero_stage else 1
        return memory.communication_buffer * copies * (layout.reduce_bucket_size or told) / told
    if not memory.buffered_bytes:
        return max(memory.communication_buffer, _replica(world, layout, stage))
    held = memory.buffered_bytes * sum(trained_in_stages(world, layout)[stage])
    return min(memory.communication_buffer, held)


def _replica(world: World, layout: Layout, stage: int) -> float:
    """Buckets of DistributedDataParallel: all gradients once more."""
    (ranks, _), _ = groups(layout)
    if not world.framework.memory.replica_buckets or layout.zero_stage or ranks == 1:
        return 0.0
    return of_gradients(world, layout, "gradient") * sum(trained_in_stages(world, layout)[stage])


def at_once(world: World, layout: Layout, temporary: float, stage: int) -> float:
    """Stage 3 updates a sub-group, the stages below it all that a rank owns.

    Before that DeepSpeed looks for what is no number.
    """
    own = world.framework.memory.sub_group_size
    if not own:
        return temporary
    each = update_temporary(world, layout)
    if layout.zero_stage == 3:
        flags = 3 * temporary / each if layout.precision == "fp16" else 0.0
        return max(min(temporary, (layout.sub_group_size or own) * each), flags)
    at_an_end = stage in (0, layout.pipeline_parallel - 1)
    if layout.zero_stage == 0 or not at_an_end or layout.precision in ("fp32", "tf32"):
        return temporary
    return max(temporary, 11 * min(temporary / each, trained_in_end(world, layout)[0]))
