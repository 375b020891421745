"""Which layers stand on which pipeline stage."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.arrays import FloatArray
from planner.enums import Placement
from planner.estimators.parameters import count_parameters, logits_met
from planner.specs.model import LayerGroup, ModelSpec


@dataclass(frozen=True, kw_only=True)
class StageLayers:
    """Layers of the stages among which the slowest and the fullest are.

    ``counts`` has shape ``(stages, groups, ...)`` and ``ranks``, the place of each stage in
    the pipeline, ``(stages, ...)``: the first stage, inner ones, the last. Inner ones are
    left out that an earlier inner stage, with more micro-batches in flight, equals or
    exceeds in the layers of every group.
    """

    counts: FloatArray
    ranks: FloatArray


def stage_layers(
    model: ModelSpec, pipeline_parallel: FloatArray, virtual_pipeline: FloatArray
) -> StageLayers:
    """The stages of every pair of arguments, whose axes are the trailing ones.

    Layers are dealt to the p v chunks as evenly as possible. Where they do not divide, the last
    chunk goes without one for its logits, or without as many as those of multi-token prediction
    are worth, then the first without one for its embedding. Counts are zero where there are more
    chunks than layers.
    """
    p, v = np.broadcast_arrays(pipeline_parallel, virtual_pipeline)
    # A complex number is a pair that numpy sorts.
    each = p.ravel() + 1j * v.ravel()
    pairs = sorted(set(each.tolist()), key=lambda pair: (pair.real, pair.imag))
    inverse = np.searchsorted(np.array(pairs), each)
    worth = _logits_in_layers(model)
    found = [_candidates(model.layer_groups, worth, pair.real, pair.imag) for pair in pairs]
    most = max(len(ranks) for _, ranks in found)
    padded = [[_padded(array, most) for array in pair] for pair in found]
    counts, ranks = (
        np.stack(arrays, axis=-1)[..., inverse] for arrays in zip(*padded, strict=True)
    )
    return StageLayers(
        counts=counts.reshape(*counts.shape[:2], *p.shape),
        ranks=ranks.reshape(len(ranks), *p.shape),
    )


def _padded(stages: FloatArray, length: int) -> FloatArray:
    """The last stage repeated."""
    if len(stages) == length:
        return stages
    return np.concatenate([stages, np.repeat(stages[-1:], length - len(stages), axis=0)])


@lru_cache(maxsize=4096)
def _candidates(
    groups: tuple[LayerGroup, ...], logits_in_layers: int, p: float, v: float
) -> tuple[FloatArray, FloatArray]:
    """Counts and ranks of the candidate stages of one pipeline."""
    kinds = layer_kinds(groups)
    chunks = int(p * v)
    if chunks != p * v or chunks > len(kinds):
        return np.zeros((3, len(groups))), np.zeros(3)
    ends = np.cumsum(chunk_sizes(len(kinds), chunks, logits_in_layers))
    one_hot = np.eye(len(groups))[kinds]
    per_chunk = np.add.reduceat(one_hot, np.concatenate([[0], ends[:-1]]), axis=0)
    stages = per_chunk.reshape(int(v), int(p), len(groups)).sum(axis=0)
    ranks = [0, *_inner(stages), len(stages) - 1]
    return stages[ranks], np.array(ranks, dtype=np.float64)


def _inner(stages: FloatArray) -> list[int]:
    """Ranks of the inner stages but those that an earlier one equals or exceeds in each group."""
    kept: list[int] = []
    for rank in range(1, len(stages) - 1):
        if not any(np.all(stages[earlier] >= stages[rank]) for earlier in kept):
            kept.append(rank)
    return kept or [0]


def chunk_sizes(num_layers: int, num_chunks: int, logits_in_layers: int) -> NDArray[np.int64]:
    """Layers per chunk; what divides unevenly is missing at the end, at the start, inside."""
    most = -(-num_layers // num_chunks)
    missing = most * num_chunks - num_layers
    sizes = np.full(num_chunks, most)
    at_end = min(missing, logits_in_layers, most - 1)
    sizes[-1] -= at_end
    elsewhere = [0, *range(num_chunks - 2, 0, -1)]
    sizes[elsewhere[: missing - at_end]] -= 1
    return sizes


def _logits_in_layers(model: ModelSpec) -> int:
    """Layers that the last chunk goes without for its logits.

    One, as Megatron-Core's splits that account for the loss; where there are logits of later
    tokens, too, pipelines are laid out by hand: what a token meets in so many layers, rounded up.
    """
    if not model.mtp_num_layers:
        return 1
    counts = count_parameters(model)
    in_layers = counts.attention + counts.feed_forward + counts.active_experts
    return -(-logits_met(model) * model.num_hidden_layers // in_layers)


def layer_kinds(groups: tuple[LayerGroup, ...]) -> NDArray[np.int64]:
    """Index of the group of each layer, by depth; interleaved groups are spread evenly."""
    depth: list[tuple[float, int]] = []
    start = 0.0
    spread = [g.num_hidden_layers for g in groups if g.placement is Placement.INTERLEAVED]
    for index, group in enumerate(groups):
        n = group.num_hidden_layers
        if group.placement is Placement.INTERLEAVED:
            depth += [(1e9 + (i + 0.5) / n * sum(spread), index) for i in range(n)]
        else:
            depth += [(start + i, index) for i in range(n)]
            start += n
    return np.array([index for _, index in sorted(depth)])
