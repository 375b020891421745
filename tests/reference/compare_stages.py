"""Compares the stages of an estimate with the twin's, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scalar_twin
from scalar_machine import Layout, World
from scalar_parameters import stage_parameters, stages

from planner.estimators.training import sharding
from planner.estimators.training.training_estimate import Estimate

EXACT = {"rel": 1e-9, "abs": 0.0}


def assert_stages_equal(estimate: Estimate, row: int, world: World, layout: Layout) -> list[int]:
    """Layers, parameters, seconds and bytes of each stage; returns the ranks compared."""

    def at(values: Any) -> float:
        return float(np.broadcast_to(values, estimate.configurations.shape)[row])

    held = sharding.stage_parameters(estimate.inputs.model, estimate.configurations)
    layers, parameters = stages(world.model, layout), stage_parameters(world, layout)
    ranks = [int(at(rank)) for rank in held.layers.ranks]
    memories = estimate.memory.stages
    for place, rank in enumerate(ranks):
        counts = [at(count) for count in held.layers.counts[place]]
        assert counts == [layers[rank].count(group) for group in range(len(counts))], layout
        owned = at(held.dense[place]), at(held.experts[place])
        assert owned == pytest.approx(parameters[rank], **EXACT), (rank, layout)
        seconds = sum(scalar_twin.stage_parts(world, layout, rank).values())
        assert at(estimate.time.stage_times[place]) == pytest.approx(seconds, **EXACT), layout
        memory = scalar_twin.stage_memory(world, layout, rank)
        assert at(estimate.memory.totals[place]) == pytest.approx(memory.pop("total"), **EXACT)
        found = {name: at(getattr(memories[place], name)) for name in memory}
        assert found == pytest.approx(memory, **EXACT), (rank, layout)
    return ranks
