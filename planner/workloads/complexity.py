"""The complexity of a plan as one number: unusual features in the order of their weight."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, IndexArray
from planner.base.enums import CacheType, Quantization
from planner.question.names import (
    ATTENTION_DATA_PARALLEL,
    EXPERT_PARALLEL,
    PIPELINE_PARALLEL,
    TENSOR_PARALLEL,
)

if TYPE_CHECKING:
    from planner.configurations.configuration_tables import (
        PoolConfigurations,
        ServingConfigurations,
    )
    from planner.estimators.inference.batch_share import ServingInputs

ComplexityLevel: TypeAlias = tuple[int, IndexArray | BoolArray]
"""The number of levels of a feature, and the level of every plan; 0: the simplest."""


def packed(steps: Sequence[ComplexityLevel]) -> IndexArray:
    """Combine levels into one number that orders plans by the first level, then the second."""
    weight = math.prod(levels for levels, _ in steps)
    weighted = []
    for levels, values in steps:
        weight //= levels
        weighted.append(weight * np.asarray(values, dtype=np.intp))
    # Small arrays first: most depend on a few axes, the memory on all.
    weighted.sort(key=lambda values: values.size)
    return total(weighted)


def total(levels: Iterable[IndexArray | BoolArray]) -> IndexArray:
    """The sum of integer levels or flags, elementwise."""
    summed: IndexArray = sum(
        (np.asarray(level, dtype=np.intp) for level in levels), start=np.zeros((), dtype=np.intp)
    )
    return summed


LONGEST_BATCH = 600.0
"""Duration [s] above which a batch counts as unusual."""
HIGHEST_LOAD = 0.9
"""Utilization of prefill workers above which queues of random arrivals grow fast."""
_KINDS: Mapping[str, int] = {
    TENSOR_PARALLEL: 1,
    PIPELINE_PARALLEL: 5,
    EXPERT_PARALLEL: 2,
    ATTENTION_DATA_PARALLEL: 2,
}


def replica_complexity(
    inputs: ServingInputs, c: ServingConfigurations, num_gpus: FloatArray
) -> IndexArray:
    """The complexity of replicas on ``num_gpus`` GPUs; 0: the simplest."""
    default = inputs.engine.scheduler.default_step_tokens(c.attention_data_parallel)
    of_engine = c.max_num_batched_tokens != default
    return packed([*_common_levels(inputs, c, num_gpus), (2, of_engine)])


def batch_complexity(
    inputs: ServingInputs, c: ServingConfigurations, latency: FloatArray
) -> IndexArray:
    """The complexity of static batches with this ``latency`` [s]; 0: the simplest."""
    offload, *others = _common_levels(inputs, c, c.num_gpus)
    default = inputs.engine.scheduler.default_step_tokens(c.attention_data_parallel)
    of_engine = c.max_num_batched_tokens != default
    return packed([offload, (2, latency > LONGEST_BATCH), *others, (2, of_engine)])


def pool_complexity(
    prefill_setting: ServingInputs,
    inputs: ServingInputs,
    c: PoolConfigurations,
    num_gpus: FloatArray,
    load: FloatArray,
) -> IndexArray:
    """The complexity of pools, above that of all replicas, from features of both kinds of workers.

    ``load``: utilization of the prefill workers.
    """
    prefill = _common_levels(prefill_setting, c.prefill, num_gpus)
    decode = _common_levels(inputs, c.decode, num_gpus)
    levels_of_both = [
        (2 * levels - 1, prefill_level.astype(np.intp) + decode_level)
        for (levels, prefill_level), (_, decode_level) in zip(prefill, decode, strict=True)
    ]
    offload, *others = levels_of_both
    return packed([offload, (2, load > HIGHEST_LOAD), *others]) + _LARGEST_OF_REPLICAS


def _common_levels(
    inputs: ServingInputs, c: ServingConfigurations, num_gpus: FloatArray
) -> list[ComplexityLevel]:
    """The levels of complexity that all serving modes share, the most important first."""
    node = inputs.machine.cluster.gpus_per_node
    across = (c.replica_gpus > node).astype(np.intp) + (c.tensor_parallel > node)
    kinds = [weight * (getattr(c, name) > 1) for name, weight in _KINDS.items()]
    return [
        (2, (c.weight_offload > 0) | (c.kv_offload > 0)),
        (3, across),
        (sum(_KINDS.values()) + 1, total(kinds)),
        (2, ~_fills_nodes(c.replica_gpus, node) | ~_fills_nodes(num_gpus, node)),
        (2, _is_converted(inputs, c)),
        (2, c.kv_cache != CacheType.BF16),
    ]


def _fills_nodes(gpus: FloatArray, node: int) -> BoolArray:
    """True where a number of GPUs is a multiple of a node, or divides a node."""
    return np.asarray((gpus % node == 0) | (node % gpus == 0))


def _is_converted(inputs: ServingInputs, c: ServingConfigurations) -> BoolArray:
    """True where weights have another number format than the published checkpoint."""
    model = inputs.model
    published = Quantization[(model.quantization or Quantization.W16A16.word).upper()]
    expert_format = model.expert_quantization or published.word
    experts = Quantization[expert_format.upper()]
    other = c.expert_quantization != experts if model.num_experts else np.zeros((), np.bool_)
    return np.asarray((c.quantization != published) | other)


_LARGEST_OF_REPLICAS = 2 * 3 * (sum(_KINDS.values()) + 1) * 2**4
