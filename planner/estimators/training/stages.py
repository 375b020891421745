"""Which layers stand on which pipeline stage."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.configurations.training_rules import END_CHUNKS
from planner.estimators.parameters import count_parameters, logits_met
from planner.specs.model import LayerGroup, ModelSpec, Placement
from planner.specs.workload import layers_of_chunks


@record(kw_only=True)
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
    model: ModelSpec,
    pipeline_parallel: FloatArray,
    virtual_pipeline: FloatArray,
    layout: str = "",
    *,
    every: bool = False,
) -> StageLayers:
    """The stages of every pair of arguments, whose axes are the trailing ones.

    ``every``: all stages of the pipeline, not those alone that may be the slowest or fullest.

    Layers are dealt to the p v chunks as an explicit ``layout`` says, or `chunk_sizes`. Counts are
    zero where there are more chunks than can be: one for each layer and, in an interleaved
    schedule, two that hold the embedding or the logits alone.
    """
    p, v = np.broadcast_arrays(pipeline_parallel, virtual_pipeline)
    # A complex number is a pair that numpy sorts.
    each = p.ravel() + 1j * v.ravel()
    pairs = sorted(set(each.tolist()), key=lambda pair: (pair.real, pair.imag))
    inverse = np.searchsorted(np.array(pairs), each)
    weights = _logits_weight(model)
    own = layers_of_chunks(layout) if layout else ()
    found = [
        _candidates(model.layer_groups, weights, pair.real, pair.imag, own, every) for pair in pairs
    ]
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
    groups: tuple[LayerGroup, ...],
    weights: tuple[int, int],
    p: float,
    v: float,
    own: tuple[int, ...] = (),
    every: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """Counts and ranks of the candidate stages of one pipeline; ``own``: explicit chunks."""
    kinds = layer_kinds(groups)
    chunks = int(p * v)
    is_told = len(own) == chunks and sum(own) == len(kinds)
    too_many = chunks > len(kinds) + (END_CHUNKS if v > 1 else 0)
    if chunks != p * v or (too_many and not is_told):
        return np.zeros((3, len(groups))), np.zeros(3)
    sizes = chunk_sizes(len(kinds), chunks, *weights, interleaved=v > 1)
    if is_told:
        sizes = np.array(own)
    stages = _per_chunk(groups, sizes).reshape(int(v), int(p), len(groups)).sum(axis=0)
    ranks = [*range(len(stages))] if every else [0, *_inner(stages), len(stages) - 1]
    return stages[ranks], np.array(ranks, dtype=np.float64)


def _per_chunk(groups: tuple[LayerGroup, ...], sizes: NDArray[np.int64]) -> FloatArray:
    """Layers of each group on chunks of these sizes, which add up to the layers."""
    kinds, ends = layer_kinds(groups), np.cumsum(sizes)
    before = np.zeros((len(kinds) + 1, len(groups)))
    np.cumsum(np.eye(len(groups))[kinds], axis=0, out=before[1:])
    return np.asarray(before[ends] - before[ends - sizes])


def chunk_layers(
    model: ModelSpec, pipeline_parallel: int, virtual_pipeline: int, layout: str = ""
) -> FloatArray:
    """Layers of each group on each chunk of `chunk_split`, of shape ``(chunks, groups)``."""
    sizes = chunk_split(model, pipeline_parallel, virtual_pipeline, layout)
    return _per_chunk(model.layer_groups, np.array(sizes))


def _inner(stages: FloatArray) -> list[int]:
    """Ranks of the inner stages but those that an earlier one equals or exceeds in each group."""
    kept: list[int] = []
    for rank in range(1, len(stages) - 1):
        if not any(np.all(stages[earlier] >= stages[rank]) for earlier in kept):
            kept.append(rank)
    return kept or [0]


def chunk_split(
    model: ModelSpec, pipeline_parallel: int, virtual_pipeline: int, layout: str = ""
) -> list[int]:
    """Layers of each chunk of a pipeline, in the order of the model: chunk c is on stage c mod p.

    An explicit ``layout`` says them itself.
    Layers of modules of multi-token prediction are the last of the last chunk.
    """
    if layout and len(own := layers_of_chunks(layout)) == pipeline_parallel * virtual_pipeline:
        return list(own)
    sizes = chunk_sizes(
        model.num_hidden_layers,
        pipeline_parallel * virtual_pipeline,
        *_logits_weight(model),
        interleaved=virtual_pipeline > 1,
    )
    return [int(size) for size in sizes]


def chunk_sizes(
    num_layers: int,
    num_chunks: int,
    logits_in_layers: int,
    most_for_logits: int = 0,
    interleaved: bool = False,
) -> NDArray[np.int64]:
    """Layers per chunk; what divides unevenly is missing at the end, at the start, inside.

    The last chunk goes without ``logits_in_layers`` for its logits, the first without one for its
    embedding, as Megatron-Core splits pipelines that account for embedding and loss. In an
    ``interleaved`` schedule these two alone lack layers, down to none, if that is enough: where
    more than two are missing, the last goes without up to ``most_for_logits`` (explicit layouts
    of Megatron-Bridge).
    """
    most = -(-num_layers // num_chunks)
    missing = most * num_chunks - num_layers
    sizes = np.full(num_chunks, most)
    if interleaved:
        worth = max(logits_in_layers, most_for_logits if missing > END_CHUNKS else 0)
        at_end = min(missing, worth, most)
        if missing - at_end <= 1:
            sizes[-1] -= at_end
            sizes[0] -= missing - at_end
            return sizes
    at_end = min(missing, logits_in_layers, most - 1)
    sizes[-1] -= at_end
    elsewhere = [0, *range(num_chunks - 2, 0, -1)]
    sizes[elsewhere[: missing - at_end]] -= 1
    return sizes


def logits_in_layers(model: ModelSpec) -> int:
    """What a token meets in all logits, in layers of what it meets in the layers, rounded up."""
    counts = count_parameters(model)
    in_layers = counts.attention + counts.feed_forward + counts.active_experts
    return -(-logits_met(model) * model.num_hidden_layers // in_layers)


def _logits_weight(model: ModelSpec) -> tuple[int, int]:
    """Layers that the last chunk goes without for its logits, and most of them where need be.

    One, as Megatron-Core's splits that account for the loss; where there are logits of later
    tokens, too, pipelines are laid out by hand: what they are worth.
    """
    worth = logits_in_layers(model)
    return (worth if model.mtp_num_layers else 1), worth


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
