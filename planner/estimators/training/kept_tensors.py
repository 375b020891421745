"""Tensors that full recomputation keeps: what that spares it to repeat, and their bytes.

References
----------
.. [1] AI-Hypercomputer/maxtext at e591f30, src/maxtext/layers/decoders.py, get_remat_policy: the
   names of what each policy saves; src/maxtext/layers/attentions.py, linears.py and moe.py: where
   these names stand.
.. [2] JAX, "Control autodiff's saved values with jax.checkpoint": what is not saved is computed
   again where the backward pass reads it, and only there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric, add
from planner.base.software_enums import (
    LAYER_INPUT,
    MLPWI,
    MLPWO,
    KeptTensors,
)
from planner.estimators.training.compilation import kept_activations
from planner.estimators.training.operators import expert_pairs
from planner.estimators.training.recomputation import Recomputation
from planner.estimators.training.share import Share
from planner.layers.model import Layer, layer_of
from planner.layers.operators import AttentionCore, Experts, Op, Product, Scan, Split, Spread
from planner.specs.model import LayerGroup

_SUM_BYTES = 4.0  # Of the softmax, which is kept beside what it weights.


def spared(op: Op, again: Recomputation) -> Numeric:
    """Share of an operator that full recomputation does not repeat.

    What is kept is not made again, nor, where a framework repeats only what is read, what nothing
    reads [2]_. The outputs of experts are read by the gradients of their weights in the sum.
    """
    if isinstance(op, Experts):
        inside = (op.matrices - 1) / op.matrices
        return inside * again.keeps(MLPWI) + (1 - inside) * again.keeps(MLPWO)
    if op.unread and again.reads_alone:
        return 1.0
    return np.where(again.keeps(op.makes), 1.0, 0.0) if op.makes else 0.0


def kept_tensor_bytes(share: Share, group: LayerGroup, codes: CodeArray) -> FloatArray:
    """Bytes per micro-batch of the tensors of a layer that are in sets, its input left out."""
    if not np.any(codes):
        return np.zeros(())
    parts = [
        np.where(KeptTensors.has(codes, name), size, 0.0)
        for name, size in _sizes(share, layer_of(share.setting.model, group))
    ]
    return np.asarray(add(parts) * kept_activations(share))


def offloaded_bytes(share: Share, group: LayerGroup) -> FloatArray:
    """Bytes of what a layer keeps that wait in host memory."""
    codes = share.recomputation.offloaded
    if not np.any(codes):
        return np.zeros(())
    layer_input = share.number_bytes * share.own_tokens * share.setting.model.stream_width
    moved = np.where(KeptTensors.has(codes, LAYER_INPUT), layer_input, 0.0)
    return np.asarray(share.recomputation.full * (moved + kept_tensor_bytes(share, group, codes)))


def _sizes(share: Share, layer: Layer) -> Iterator[tuple[str, Numeric]]:
    """The tensor that each operator makes, and its bytes."""
    for op in layer.operators:
        if isinstance(op, Experts):
            yield from _of_experts(share, op)
        elif op.makes and type(op) in _MADE:
            yield op.makes, _MADE[type(op)](share, op)


def _of_product(share: Share, op: Product) -> Numeric:
    if op.split is Split.COLUMNS:
        return share.number_bytes * share.tokens * op.columns.on_rank(share.tensor_parallel)
    rows = share.own_tokens if op.split is Split.ROWS or op.rows is Spread.TOKENS else share.tokens
    return share.number_bytes * rows * op.columns.whole


def _of_core(share: Share, op: AttentionCore) -> Numeric:
    heads = op.heads / share.tensor_parallel
    return share.tokens * heads * (share.number_bytes * op.v_dim + _SUM_BYTES * share.fused)


def _of_experts(share: Share, op: Experts) -> Iterator[tuple[str, Numeric]]:
    sent = share.number_bytes * expert_pairs(share, op.per_token)
    yield MLPWI, sent * (op.matrices - 1) * op.width
    yield MLPWO, sent * share.expert_tensor_parallel * op.depth


_MADE: dict[type[Op], Callable[..., Numeric]] = {
    AttentionCore: _of_core,
    Product: _of_product,
    Scan: lambda share, op: share.number_bytes * share.tokens * op.values / share.tensor_parallel,
}
"""Bytes of what an operator of each kind makes."""
