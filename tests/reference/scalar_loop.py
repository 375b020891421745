"""What the host does for modules of their own: experts in a loop, matrices of ZeRO-3."""

from __future__ import annotations

from typing import Any

from scalar_adapters import attention_matrices, frozen, thin_matrices


def loop_launches(world: Any, layout: Any, group: Any) -> float:
    """The host's time for one layer, forward: kernels of each expert, gathers of its matrices."""
    block = group.feed_forward
    if layout.expert_compute != "loop" or block is None or not block.num_experts:
        return 0.0
    execution = world.framework.execution
    seconds = 0.0
    for _ in range(int(block.num_experts / layout.expert_parallel)):
        seconds += execution.expert_loop_time
        if layout.zero_stage == 3:
            seconds += (3 if block.gated else 2) * execution.module_gather_time
    return seconds


def hooks(world: Any, layout: Any, group: Any, part: str = "") -> float:
    """ZeRO-3's hooks around each matrix outside routed experts, and both of an adapter, forward.

    ``part``: of attention or of the feed-forward alone, for models that are trained whole.
    """
    if layout.zero_stage != 3:
        return 0.0
    attention, block, count = attention_matrices(group), group.feed_forward, 0
    if block and block.num_experts:
        count += 1 + (2 if block.moe_latent_size else 0)  # the router, latents down and up
    if block and (block.shared_intermediate_size if block.num_experts else block.intermediate_size):
        count += 3 if block.gated else 2
    count = {"": attention + count, "attention": attention, "feed_forward": count}[part]
    if frozen(world) and not part:
        count += 2 * len(thin_matrices(world, layout, group))
    return float(count * world.framework.execution.module_hook_time)
