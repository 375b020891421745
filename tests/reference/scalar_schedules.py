"""What a pipeline's schedule leaves idle, and what it runs beside other micro-batches."""

from __future__ import annotations

from dataclasses import replace

from scalar_layer import Ops
from scalar_machine import Layout, World, shown

_WAYS = ("forward", "backward")


def idle_time(
    layout: Layout, times: list[float], asides: list[dict[str, float]], slowest: int
) -> float:
    """Filling and draining; with DualPipe and a zero bubble weights' gradients wait their turn."""
    p, weights = layout.pipeline_parallel, [aside["weights"] for aside in asides]
    if layout.pipeline_schedule == "dualpipe":
        backward = sum(aside["backward"] for aside in asides)
        return max((p / 2 - 1) * (sum(times) + backward - 3 * sum(weights)) / p, 0.0)
    others = sum(times) - times[slowest]
    if layout.layer_split:
        return layout.num_micro_batches * others
    if layout.pipeline_schedule == "zero_bubble":
        return max(others - 2 * (sum(weights) - weights[slowest]), 0.0)
    return others / layout.virtual_pipeline


Pair = tuple[float, float]


def runs_side_by_side(layout: Layout) -> bool:
    """Whether a forward pass runs beside a backward pass of another micro-batch."""
    return layout.overlap_expert_parallel or layout.pipeline_schedule == "dualpipe"


def behind_others(world: World, layout: Layout, ops: Ops) -> Ops:
    """The exchange of experts beside the mean pass of another micro-batch through the layer."""
    if not runs_side_by_side(layout):
        return ops
    window = sum(op.forward + op.backward for op in ops.values() if op.part == "compute") / 2
    g = world.framework.overlap.interference
    hidden = {
        name: replace(op, **{way: shown(getattr(op, way), window, g) for way in _WAYS})
        for name, op in ops.items()
        if op.part == "expert_parallel"
    }
    return ops | hidden


def shown_gather(
    world: World, layout: Layout, group: int | None, transfers: Pair, windows: Pair
) -> float:
    """What shows of transfers of a layer's two passes, which hide them together side by side."""
    overlap = world.framework.overlap
    g, hidden = overlap.interference, overlap.weight_gather
    if group is not None and runs_side_by_side(layout):
        beside = shown(sum(transfers), sum(windows), g)
    else:
        beside = sum(shown(n, t, g) for n, t in zip(transfers, windows, strict=True))
    return hidden * beside + (1 - hidden) * sum(transfers)
