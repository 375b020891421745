"""Ranks of a node wait for the slowest of them at the all-reduces of tensor parallelism."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from published_runs import configuration, setting

from planner.base.enums import (
    Recompute,
)
from planner.estimators.training.training_estimate import evaluate
from planner.specs.catalogue import Catalogue

NUM_LAYERS, NUM_MICRO_BATCHES, WAIT = 96, 4, 0.001


@pytest.mark.parametrize(
    ("tensor_parallel", "recompute", "passes"),
    [
        (8, Recompute.FULL, 3),
        (8, Recompute.NONE, 2),
        (4, Recompute.FULL, 0),
        (16, Recompute.FULL, 0),
    ],
    ids=["whole-node", "without-recomputation", "half-a-node", "across-nodes"],
)
def test_each_pass_of_a_layer_waits_in_groups_that_fill_a_node(
    tensor_parallel: int, recompute: Recompute, passes: int
) -> None:
    """96 layers and 4 micro-batches wait 1 ms in each forward, repeated and backward pass."""
    layout = configuration(
        num_gpus=16,
        tensor_parallel=tensor_parallel,
        micro_batch_size=1,
        global_batch_size=NUM_MICRO_BATCHES * 16 // tensor_parallel,
        recompute=recompute,
    )
    real = setting("gpt-3-175b", framework="megatron-deepspeed")
    own = real.framework
    times = [
        evaluate(
            replace(
                real,
                framework=replace(own, execution=replace(own.execution, node_reduce_wait=wait)),
            ),
            layout,
        ).step_time
        for wait in (0.0, WAIT)
    ]
    expected = WAIT * passes * NUM_LAYERS * NUM_MICRO_BATCHES
    assert np.diff(times, axis=0) == pytest.approx(expected, abs=1e-9)


def test_eight_ranks_wait_in_megatron_before_its_core() -> None:
    """Software whose runs show no such wait has none."""
    found = {
        name: Catalogue().load_framework(name).spec.execution.node_reduce_wait
        for name in ("megatron-deepspeed", "megatron-lm-2022", "megatron-lm", "nemo", "torchtitan")
    }
    assert [name for name, wait in found.items() if wait > 0] == [
        "megatron-deepspeed",
        "megatron-lm-2022",
    ]
