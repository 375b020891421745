"""Replicas that compute prompts and answers together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.arrays import IndexArray
from planner.configurations.serving import ServingConfigurations
from planner.estimators.inference.estimate import (
    SERVING_REJECTIONS,
    ServingEstimate,
    broken_serving_rule,
    evaluate_serving,
    serving_rejections,
)
from planner.estimators.inference.memory import serving_memory
from planner.optimize.problem import possible_mesh
from planner.optimize.serving.columns import aggregated_columns
from planner.optimize.serving.deployments import Candidates, Deployments
from planner.optimize.serving.problem import Source, rounded_up

_BLOCK_ROWS = 2**16


def aggregated_candidates(source: Source) -> Iterator[tuple[Candidates | None, IndexArray, int]]:
    """Blocks of the source's mesh: what is possible, what rules rejected, and the rows done."""
    for block in source.pool.mesh.blocks(_BLOCK_ROWS):
        possible, dropped = _possible(source, block)
        candidates = judged(source, possible) if possible.size else None
        yield candidates, dropped, block.size


def _possible(
    source: Source, block: ServingConfigurations
) -> tuple[ServingConfigurations, IndexArray]:
    """The mesh without the entries of its axes that rules or the memory reject altogether.

    Where nothing fits, what only the memory rejects stays: it tells how far it is from fitting.
    """
    setting, number = source.pool.setting, len(SERVING_REJECTIONS)
    possible, _, dropped = possible_mesh(block, broken_serving_rule(setting, block), number)
    if not possible.size:
        return possible, dropped
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = serving_rejections(setting, possible, serving_memory(setting, possible))
    if not (codes == 0).any():
        return possible, dropped
    fitting, _, too_large = possible_mesh(possible, codes, number)
    return fitting, dropped + too_large


def judged(source: Source, configurations: ServingConfigurations) -> Candidates:
    """Configurations as deployments: on the GPUs given, or as many as the rate needs."""
    estimate = evaluate_serving(source.pool.setting, configurations)
    return Candidates(
        deployments=deployments_of(source, estimate),
        rejected_by=estimate.rejected_by,
        rows=lambda indices: _rows(source, configurations.rows(indices)),
        memory=_needed(estimate),
    )


def deployments_of(source: Source, estimate: ServingEstimate) -> Deployments:
    """The estimate's replicas, multiplied."""
    c, served = estimate.configurations, estimate.served
    replicas = c.data_parallel
    if not source.counts and source.request_rate is not None:
        replicas = rounded_up(source.request_rate / served.request_rate)
    num_gpus = replicas * c.replica_gpus
    capacity = estimate.setting.machine.gpu.allocatable_memory
    return Deployments(
        workload=estimate.setting.workload,
        shape=c.shape,
        num_gpus=num_gpus,
        request_rate=served.request_rate * replicas,
        time_to_first_token=served.time_to_first_token,
        time_per_output_token=served.time_per_output_token,
        memory_headroom=capacity - estimate.peak_memory,
        price=num_gpus * source.pool.price,
    )


def _rows(source: Source, configurations: ServingConfigurations) -> dict[str, list[object]]:
    estimate = evaluate_serving(source.pool.setting, configurations)
    return aggregated_columns(estimate, deployments_of(source, estimate), source.pool)


def _needed(estimate: ServingEstimate) -> tuple[np.ndarray, np.ndarray]:
    """Bytes that the weights and all requests take on a GPU, and what the engine may use."""
    memory, setting = estimate.memory, estimate.setting
    sequences = memory.room.sequence * estimate.configurations.concurrency
    cache = np.maximum(sequences, memory.room.longest)
    needed = memory.weights + memory.activations + memory.reserved + cache
    return needed, np.asarray(setting.usable_memory)
