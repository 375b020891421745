"""Which layers stand on which pipeline stage."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.arrays import FloatArray
from planner.enums import Placement
from planner.specs.model import LayerGroup, ModelSpec

STAGES = ("first", "middle", "last")


def stage_layers(
    model: ModelSpec, pipeline_parallel: FloatArray, virtual_pipeline: FloatArray
) -> FloatArray:
    """Layers of each group on the first, the fullest middle and the last stage.

    Shape ``(3, groups, ...)``: the trailing axes are those of the two arguments. Layers
    are dealt to the p v chunks as evenly as possible; the first and the last chunk, which
    also hold embedding and logits, are the first to go without an extra layer. Zero where
    there are more chunks than layers.
    """
    p, v = np.broadcast_arrays(pipeline_parallel, virtual_pipeline)
    pairs, inverse = np.unique(np.stack([p.ravel(), v.ravel()]), axis=1, return_inverse=True)
    tables = [_stage_layers(model.layer_groups, *pair) for pair in pairs.T.tolist()]
    counts = np.stack(tables, axis=-1)[..., inverse.ravel()]
    return counts.reshape(*counts.shape[:2], *p.shape)


@lru_cache(maxsize=4096)
def _stage_layers(groups: tuple[LayerGroup, ...], p: float, v: float) -> FloatArray:
    kinds = layer_kinds(groups)
    chunks = int(p * v)
    if chunks != p * v or chunks > len(kinds):
        return np.zeros((len(STAGES), len(groups)))
    ends = np.cumsum(chunk_sizes(len(kinds), chunks))
    one_hot = np.eye(len(groups))[kinds]
    per_chunk = np.add.reduceat(one_hot, np.concatenate([[0], ends[:-1]]), axis=0)
    stages = per_chunk.reshape(int(v), int(p), len(groups)).sum(axis=0)
    inner = stages[1:-1] if p > 2 else stages[:1]
    middle = inner[np.argmax(inner.sum(axis=1))]
    return np.stack([stages[0], middle, stages[-1]])


def chunk_sizes(num_layers: int, num_chunks: int) -> NDArray[np.int64]:
    """Layers per chunk; extra layers go to the inner chunks first, the last chunk last."""
    base, extra = divmod(num_layers, num_chunks)
    order = [*range(1, num_chunks - 1), 0, num_chunks - 1]
    sizes = np.full(num_chunks, base)
    sizes[order[:extra]] += 1
    return sizes


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
