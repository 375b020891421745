"""What lies in host memory, and copies to and from it, in plain floats.

DeepSpeed's ZeRO-Offload (arXiv:2101.06840): gradients go to the host, which updates the
weights. With weights on the host too (arXiv:2104.07857) each rank fetches those it owns, once
for the forward and once for the backward pass.
"""

from __future__ import annotations

from remembered import remembered
from scalar_activations import kept_bytes, repeated_layers
from scalar_adapters import trained_in_end, trained_in_layer, trained_in_stages, weight_bytes
from scalar_machine import Layout, World, own_tokens, shown
from scalar_optimizers import state_bytes, update_traffic
from scalar_parameters import groups, layer_parameters
from scalar_tensors import named, tensor_bytes

STATES = (
    *("optimizer", "optimizer_weights", "optimizer_activations"),
    *("optimizer_weights_activations", "optimizer_nvme", "optimizer_weights_nvme"),
)
WEIGHTS = ("optimizer_weights", "optimizer_weights_activations", "optimizer_weights_nvme")
OTHER_HOST = 51.2e9
OTHER_DRIVES = 1.6e9


def host_rate(world: World) -> float:
    """Bandwidth of a GPU's share of host memory."""
    own = world.gpu.host.memory_bandwidth if world.gpu.host else None
    return world.cluster.host_memory_bandwidth or own or OTHER_HOST


def copy(world: World, num_bytes: float) -> float:
    if not num_bytes:
        return 0.0
    reached = world.gpu.host.bandwidth * world.framework.offloading.host_link_fraction
    return num_bytes / min(reached, host_rate(world))


def gradients_leave(world: World, layout: Layout) -> bool:
    """Whether gradients go to the host as they are made: sharded ones, and all of a lone rank."""
    if layout.offload not in STATES or not world.framework.offloading.host_update:
        return False
    alone = layout.data_parallel * layout.context_parallel == 1
    return layout.zero_stage >= 2 or (alone and 2 in world.framework.zero_stages)


@remembered
def moved_bytes(world: World, layout: Layout, index: int) -> float:
    """Activations that one layer of a group moves to the host."""
    if not layout.offload.endswith("activations"):
        group, tensors = world.model.layer_groups[index], named(layout.offloaded_tensors)
        return repeated_layers(world, layout) * tensor_bytes(world, layout, group, tensors)
    kept = kept_bytes(world, layout, world.model.layer_groups[index], layout.recompute)
    if world.framework.offloading.only_layer_inputs:
        return min(kept, 2 * own_tokens(world, layout) * world.model.hidden_size)
    return kept


def shown_copies(
    world: World, layout: Layout, index: int | None, forward: float, backward: float
) -> float:
    """What shows of the copies around one layer or end, per micro-batch."""
    if layout.offload == layout.offloaded_tensors == "none":
        return 0.0
    states, offloading = world.framework.states, world.framework.offloading
    of_layer, of_end = weight_bytes(world, layout)
    if index is None:
        width, counts = (
            of_end,
            (
                world.model.vocab_size * world.model.hidden_size / layout.tensor_parallel,
                0.0,
            ),
        )
        trained, moved = trained_in_end(world, layout), 0.0
    else:
        group = world.model.layer_groups[index]
        width, counts = of_layer, layer_parameters(world.model, group, layout)
        trained, moved = trained_in_layer(world, layout, group), moved_bytes(world, layout, index)
    fetched = width * owned(layout, counts) if layout.offload in WEIGHTS else 0.0
    away = 0.0
    if gradients_leave(world, layout):
        away = states.gradient_on_wire * owned(layout, trained)
    before, after = copy(world, fetched + moved), copy(world, fetched + away + moved)
    if layout.offload.endswith("nvme"):
        read = fetched / (world.cluster.drive_bandwidth or OTHER_DRIVES)
        before, after = max(before, read), max(after, read)
    beside = shown(before, forward, 0.0) + shown(after, backward, 0.0)
    return offloading.hidden * beside + (1 - offloading.hidden) * (before + after)


def owned(layout: Layout, counts: tuple[float, float]) -> float:
    return sum(
        count / (ranks if layout.zero_stage >= 1 else 1)
        for count, (ranks, _) in zip(counts, groups(layout), strict=True)
    )


def update(world: World, layout: Layout, on_gpu: float) -> float:
    """The optimizer where its states are on the host; ``on_gpu`` where they are not."""
    if layout.offload not in STATES:
        return on_gpu
    states, offloading = world.framework.states, world.framework.offloading
    most = max(owned(layout, counts) for counts in trained_in_stages(world, layout))
    if not offloading.host_update:
        read = 0.0
        if layout.offload.endswith("nvme"):
            read = (
                2
                * most
                * state_bytes(world, layout)
                / (world.cluster.drive_bandwidth or OTHER_DRIVES)
            )
        return max(on_gpu, copy(world, most * state_bytes(world, layout)), read)
    rate = host_rate(world) * offloading.host_memory_fraction
    back = 0.0 if layout.offload in WEIGHTS else most * states.weight_on_wire
    passing = most * update_traffic(world, layout) / rate
    if layout.offload.endswith("nvme"):
        drives = world.cluster.drive_bandwidth or OTHER_DRIVES
        passing = max(passing, 2 * most * state_bytes(world, layout) / drives)
    over = 0.0 if gradients_leave(world, layout) else most * states.gradient_on_wire
    return passing + copy(world, over) + copy(world, back)
