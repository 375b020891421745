"""The time of a layer's operators in training: each kind by its own function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from planner.estimators.attention_core import attention_core, index_scores, scan
from planner.estimators.expert_operators import expert_bias, expert_exchange, experts, permute
from planner.estimators.kept_tensors import spared
from planner.estimators.machine import Group
from planner.estimators.operators import Operator, timed
from planner.estimators.products import elementwise, lookup, loss, product
from planner.estimators.share import Share
from planner.layers.model import Layer
from planner.layers.operators import (
    AttentionCore,
    BlockExchange,
    Elementwise,
    ExpertBias,
    ExpertExchange,
    Experts,
    HeadExchange,
    IndexScores,
    Lookup,
    Loss,
    Op,
    Permute,
    Product,
    Scan,
    VocabularyReduce,
    Weights,
)


def layer_operators(share: Share, layer: Layer) -> Iterator[Operator]:
    """What every operator of a layer or an end takes, with its exchanges."""
    again = share.recomputation
    for op in layer.operators:
        timed_ones = KINDS_TIMED[type(op)](share, op, layer)
        if again.spares and op.repeatable:
            left = spared(op, again)
            timed_ones = (replace(one, spared=left) for one in timed_ones)
        yield from timed_ones


def _block_exchange(share: Share, op: BlockExchange, layer: Layer) -> Iterator[Operator]:
    time = share.block_exchange
    yield timed(op, forward=time, backward=time, part="tensor_parallel")


def _head_exchange(share: Share, op: HeadExchange, layer: Layer) -> Iterator[Operator]:
    """An all-to-all before the scan and one after it, which trade its columns together."""
    t, c = share.tensor_parallel, share.context_parallel
    moved = share.number_bytes * share.tokens * op.columns.on_rank(t)
    time = share.setting.machine.collective("all_to_all", moved, Group(size=c, stride=t))
    yield timed(op, forward=time, backward=time, part="context_parallel")


def _vocabulary_reduce(share: Share, op: VocabularyReduce, layer: Layer) -> Iterator[Operator]:
    reduce = share.setting.machine.collective(
        "all_reduce", share.number_bytes * share.tokens * share.hidden_size, share.tensor_group
    )
    nothing = np.zeros(())
    forward, backward = (nothing, reduce) if op.backward else (reduce, nothing)
    yield timed(op, forward=forward, backward=backward, part="tensor_parallel")


def _nothing(share: Share, op: Weights, layer: Layer) -> Iterator[Operator]:
    return iter(())


KINDS_TIMED: dict[type[Op], Callable[[Share, Any, Layer], Iterator[Operator]]] = {
    AttentionCore: attention_core,
    BlockExchange: _block_exchange,
    Elementwise: elementwise,
    ExpertBias: expert_bias,
    ExpertExchange: expert_exchange,
    Experts: experts,
    HeadExchange: _head_exchange,
    IndexScores: index_scores,
    Lookup: lookup,
    Loss: loss,
    Permute: permute,
    Product: product,
    Scan: scan,
    VocabularyReduce: _vocabulary_reduce,
    Weights: _nothing,
}
"""The function of each kind of operator."""
