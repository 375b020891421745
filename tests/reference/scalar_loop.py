"""A loop over experts, as Transformers before 5 has it."""

from __future__ import annotations

from typing import Any


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
