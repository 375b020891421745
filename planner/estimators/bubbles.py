"""Idle time of a pipeline by its schedule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.base.arrays import FloatArray, add, largest
from planner.base.enums import PipelineSchedule
from planner.configurations.training import TrainingConfigurations
from planner.estimators.step_time import Block
from planner.formulas.pipeline import (
    bubble_time,
    dualpipe_bubble_time,
    turns_time,
    zero_bubble_time,
)


def pipeline_bubble(
    c: TrainingConfigurations,
    blocks: Sequence[Block],
    stages: Sequence[FloatArray],
    transfer: FloatArray,
) -> FloatArray:
    """Seconds that the slowest stage is idle in a step.

    ``stages`` are the seconds of a micro-batch on each candidate stage, ``transfer`` those that
    show of sending it on.
    """
    p, slowest = c.pipeline_parallel, largest(stages)
    whole = add((*(block.total * block.whole for block in blocks), p * transfer))
    usual = bubble_time(
        all_stages=whole, slowest_stage=slowest, virtual_pipeline=c.virtual_pipeline
    )
    if np.any(c.layer_split):
        turns = turns_time(
            all_stages=whole, slowest_stage=slowest, num_micro_batches=c.num_micro_batches
        )
        usual = np.where(c.layer_split, turns, usual)
    schedule = c.pipeline_schedule
    if np.all(schedule <= PipelineSchedule.INTERLEAVED):
        return usual
    weights = [block.time.weights for block in blocks]
    on_stages = [
        add(one * block.counts[stage] for one, block in zip(weights, blocks, strict=True))
        for stage in range(len(stages))
    ]
    all_weights = add(one * block.whole for one, block in zip(weights, blocks, strict=True))
    filled = zero_bubble_time(
        all_stages=whole,
        slowest_stage=slowest,
        all_weights=all_weights,
        slowest_weights=_of_slowest(stages, on_stages),
    )
    from_both_ends = dualpipe_bubble_time(
        stages=p,
        mean_stage=whole / p,
        mean_backward=add(block.time.backward_total * block.whole for block in blocks) / p,
        mean_weights=all_weights / p,
    )
    return np.where(
        schedule == PipelineSchedule.DUALPIPE,
        from_both_ends,
        np.where(schedule == PipelineSchedule.ZERO_BUBBLE, filled, usual),
    )


def _of_slowest(stages: Sequence[FloatArray], values: Sequence[FloatArray]) -> FloatArray:
    """The value of the first stage that is as slow as the slowest."""
    times = np.stack(np.broadcast_arrays(*stages, *values)[: len(stages)])
    every = np.stack(np.broadcast_arrays(*stages, *values)[len(stages) :])
    which = np.argmax(times, axis=0)
    return np.asarray(np.take_along_axis(every, which[None], axis=0)[0])
