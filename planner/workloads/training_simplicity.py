"""How unusual a training plan is: of plans that are ties the one to launch is the plainest.

The order, what weighs most first, is that of ``docs/training.md``; it was chosen on the layouts
that vendors tuned (``docs/recipes.md``).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.base.arrays import FloatArray, IndexArray
from planner.base.enums import Offload, Recompute, ZeroStage
from planner.configurations.training import TrainingConfigurations
from planner.estimators.share import Setting
from planner.workloads.simplicity import Step, packed, total

FEWEST_TOKENS = 4096
"""Context parallelism leaves a rank at least so many tokens of a sequence."""
USUAL_CHUNKS = (1, 2, 3, 4, 5, 7, 8, 12)
"""Chunks of layers on a pipeline stage of published layouts."""
MOST_MISSING = 3
"""Layers that they lack, at most, to chunks of equal size: 61 on 64 places."""
FULL = 0.9
"""Beyond this share of its memory a GPU is full."""

# Launched in this order: what costs least first.
_RECOMPUTE = {
    Recompute.NONE: 0,
    Recompute.SELECTIVE: 1,
    Recompute.FEED_FORWARD: 2,
    Recompute.FULL: 3,
}
_BY_CODE = np.array([_RECOMPUTE[code] for code in Recompute])


def complexity(c: TrainingConfigurations, setting: Setting, peak_memory: FloatArray) -> IndexArray:
    """0 for the plainest plan; the first step in which two plans differ decides.

    ``peak_memory`` in bytes is that of the fullest GPU.
    """
    return packed([*_steps(c, setting, peak_memory)])


def _steps(c: TrainingConfigurations, setting: Setting, peak_memory: FloatArray) -> Iterator[Step]:
    """What two plans may differ in, what weighs most first."""
    domain = setting.machine.cluster.scale_up.domain_size
    tokens = setting.workload.sequence_length / c.context_parallel
    yield 2, (c.context_parallel > 1) & (tokens < FEWEST_TOKENS)
    options = (~c.fused_attention, c.offload != Offload.NONE, c.fp8_attention)
    yield 4, total(options)
    yield 2, c.tensor_parallel > domain
    yield 2, c.expert_parallel > domain
    yield 2, (c.tensor_parallel > 1) & ~c.sequence_parallel
    alone = c.data_parallel * c.context_parallel == 1
    stage = np.where(alone, ZeroStage.NONE, setting.framework.default_zero_stage)
    yield 2, c.zero_stage != stage
    usual = np.isin(c.virtual_pipeline, USUAL_CHUNKS)
    missing = -setting.model.num_hidden_layers % (c.pipeline_parallel * c.virtual_pipeline)
    yield 2, ~usual | (missing > MOST_MISSING)
    kinds = (c.tensor_parallel > 1, c.context_parallel > 1, c.pipeline_parallel > 1)
    yield 4, total(kinds)
    yield 2, peak_memory > FULL * setting.machine.gpu.allocatable_memory
    yield len(_RECOMPUTE), _BY_CODE[c.recompute]
    splits = setting.model.num_experts > 0 and setting.framework.expert_parallel
    yield 2, (c.expert_parallel == 1) & (c.num_gpus > c.pipeline_parallel) & splits
