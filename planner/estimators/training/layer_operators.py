"""Time of a layer's operators in training, with one function per kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from planner.base.arrays import CodeArray, FloatArray
from planner.base.software_enums import LossKernel
from planner.estimators.machine import CommunicationGroup
from planner.estimators.training.attention_core import attention_core, index_scores, scan
from planner.estimators.training.compilation import elementwise_tensors
from planner.estimators.training.micro_batch_share import MicroBatchShare
from planner.estimators.training.operators import (
    Operator,
    expert_bias,
    expert_exchange,
    experts,
    make_operator,
    permute,
)
from planner.estimators.training.saved_activations import skipped_share
from planner.layers import operators as ops
from planner.layers.model import Layer
from planner.layers.operators import Columns, RankSpread

EAGER_BYTES = 14.0
"""Bytes per logit of a loss in several kernels [1]_."""
EAGER_PASSES = 14.0
"""Reads and writes of 16-bit logits that it makes."""

_WHOLE_BYTES = 4.0  # 16-bit logits and their gradient
_LINEAR_BYTES = 0.5
_USUAL_CHUNKS = 8
# Maximum and sum, then the gradient: three reads and a write.
_COMPILED_PASSES = 4.0
_FUSED_PASSES = 3.0


def logit_bytes(share: MicroBatchShare) -> FloatArray:
    """Return bytes per logit at the memory peak of the loss."""
    memory = share.inputs.framework.memory
    default = memory.per_logit
    kernel = _kernel(share)
    if not np.any(kernel):
        return np.asarray(default)
    chunks = np.where(share.loss_chunks > 0, share.loss_chunks, _USUAL_CHUNKS)
    by_chunk = _WHOLE_BYTES + (EAGER_BYTES - _WHOLE_BYTES) / chunks
    linear = np.where(share.loss_chunks > 0, EAGER_BYTES / chunks, _LINEAR_BYTES)
    return np.choose(
        kernel,
        [
            default,
            max(default, EAGER_BYTES),
            min(default, _WHOLE_BYTES),
            min(default, memory.per_logit_fused),
            np.minimum(default, by_chunk),
            np.minimum(default, linear),
        ],
    )


def logit_passes(share: MicroBatchShare) -> FloatArray:
    """Return how often forward and backward of the loss read or write each logit."""
    default, kernel = share.inputs.framework.execution.loss_passes, _kernel(share)
    if not np.any(kernel):
        return np.asarray(default)
    passes = {
        LossKernel.AUTO: default,
        LossKernel.EAGER: max(default, EAGER_PASSES),
        LossKernel.COMPILED: min(default, _COMPILED_PASSES),
        LossKernel.FUSED: min(default, _FUSED_PASSES),
        LossKernel.CHUNKED: max(default, EAGER_PASSES),
        LossKernel.LINEAR: min(default, _FUSED_PASSES),
    }
    return np.array([passes[code] for code in LossKernel])[kernel]


def _kernel(share: MicroBatchShare) -> CodeArray:
    """The loss of each configuration: that of an eager framework is compiled with its model."""
    compiled = share.compiled_otherwise & (not share.inputs.framework.compilation.default)
    is_auto = share.loss_kernel == LossKernel.AUTO
    return np.where(compiled & is_auto, LossKernel.COMPILED, share.loss_kernel)


def product(share: MicroBatchShare, op: ops.MatrixProduct, layer: Layer) -> Iterator[Operator]:
    """Yield a matrix product; backward computes data and weight gradients (frozen: data only).

    Operands in fewer bits are cast first, if the product's kernel does not; the weight gradient
    accumulates in place, unless other kernels do it.
    """
    machine = share.inputs.machine
    rows, columns, depth = product_sizes(share, op)
    precision = share.unquantized if op.sixteen_bit else share.kernel_format
    width = share.number_bytes
    accumulated = np.where(
        np.asarray(share.gradients.accumulation_traffic) > 0, 2.0, 2 * share.gradients.stored_bytes
    )
    forward, data_gradient = machine.gemm_times(
        [(rows, columns, depth), (rows, depth, columns)], precision, width
    )
    weight_gradient = np.zeros(())
    if not _is_frozen(share, op):
        weight_gradient = machine.gemm_time(columns, depth, rows, precision, accumulated)
    yield make_operator(
        op,
        forward=forward + machine.cast_time(rows * depth, precision),
        backward=data_gradient + weight_gradient + machine.cast_time(rows * columns, precision),
        flops=np.asarray(2.0 * rows * columns * depth),
        selective=share.inputs.framework.execution.selective_share,
        weights=weight_gradient,
    )


def product_sizes(
    share: MicroBatchShare, op: ops.MatrixProduct
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return (rows, columns, depth) of a matrix product on one rank."""
    rows = share.tokens if op.rows is RankSpread.TENSOR else share.local_tokens
    t = share.tensor_parallel
    columns = op.columns.on_rank(t) if op.split is ops.MatrixSplit.COLUMNS else op.columns.total
    depth = op.depth / t if op.split is ops.MatrixSplit.ROWS else op.depth
    return rows, np.asarray(columns), np.asarray(depth)


def elementwise(share: MicroBatchShare, op: ops.Elementwise, layer: Layer) -> Iterator[Operator]:
    """Yield a memory-bound element-wise operator, as far as the framework does not fuse it."""
    forward, backward = _moved(share, op)
    machine = share.inputs.machine
    yield make_operator(
        op,
        forward=machine.memory_time(forward),
        backward=machine.memory_time(backward),
        selective=share.inputs.framework.execution.selective_share,
    )


def lookup(share: MicroBatchShare, op: ops.Lookup, layer: Layer) -> Iterator[Operator]:
    """Yield an embedding lookup; its backward adds to the gradients unless the table is frozen."""
    machine, nothing = share.inputs.machine, np.zeros(())
    forward, backward = _moved(share, op)
    added = machine.memory_time(backward)
    yield make_operator(
        op,
        forward=machine.memory_time(forward),
        backward=nothing if _is_frozen(share, op) else added,
    )


def loss(share: MicroBatchShare, op: ops.Loss, layer: Layer) -> Iterator[Operator]:
    """Yield the passes of the loss over all logits, half of them in the backward pass."""
    logits = share.tokens * op.columns.on_rank(share.tensor_parallel)
    passes = logit_passes(share)
    traffic = share.inputs.machine.memory_time(share.number_bytes * passes * logits)
    yield make_operator(op, forward=traffic / 2, backward=traffic / 2)


def numbers(share: MicroBatchShare, columns: Columns, spread: RankSpread) -> FloatArray:
    """Numbers of these columns that a rank has in a micro-batch."""
    if spread is RankSpread.TENSOR:
        return np.asarray(share.tokens * columns.on_rank(share.tensor_parallel))
    return share.local_tokens * columns.total


def _is_frozen(share: MicroBatchShare, op: ops.LayerOperator) -> bool:
    """Return whether an operator's weights get no gradient (base weights under LoRA)."""
    workload = share.inputs.workload
    saved = workload.saves_ends and op.holder in (
        ops.ParameterPart.EMBEDDING,
        ops.ParameterPart.LOGITS,
    )
    return workload.is_frozen and not saved


def _moved(share: MicroBatchShare, op: ops.Elementwise) -> tuple[FloatArray, FloatArray]:
    """Bytes that the framework's kernels read and write, forward and backward."""
    volume = numbers(share, op.columns, op.spread) * share.number_bytes
    forward, backward = elementwise_tensors(share, op)
    return volume * forward, volume * backward


def layer_operators(share: MicroBatchShare, layer: Layer) -> Iterator[Operator]:
    """Yield the timed operators of a layer, embedding or logits, with their communication."""
    recomputation = share.recomputation
    for op in layer.operators:
        operators = KINDS_TIMED[type(op)](share, op, layer)
        if recomputation.spares and op.repeatable:
            left = skipped_share(op, recomputation)
            operators = (replace(operator, spared=left) for operator in operators)
        yield from operators


def _block_exchange(
    share: MicroBatchShare, op: ops.BlockExchange, layer: Layer
) -> Iterator[Operator]:
    time = share.block_exchange
    yield make_operator(op, forward=time, backward=time, part="tensor_parallel")


def _head_exchange(
    share: MicroBatchShare, op: ops.HeadExchange, layer: Layer
) -> Iterator[Operator]:
    """Yield the all-to-all before and after a linear-attention scan (sequence to heads)."""
    t, c = share.tensor_parallel, share.context_parallel
    moved = share.number_bytes * share.tokens * op.columns.on_rank(t)
    time = share.inputs.machine.collective(
        "all_to_all", moved, CommunicationGroup(size=c, stride=t)
    )
    yield make_operator(op, forward=time, backward=time, part="context_parallel")


def _vocabulary_reduce(
    share: MicroBatchShare, op: ops.VocabularyReduce, layer: Layer
) -> Iterator[Operator]:
    """Yield the all-reduce of hidden states over tensor-parallel ranks, forward or backward."""
    reduce = share.inputs.machine.collective(
        "all_reduce", share.number_bytes * share.tokens * share.hidden_size, share.tensor_group
    )
    nothing = np.zeros(())
    forward, backward = (nothing, reduce) if op.backward else (reduce, nothing)
    yield make_operator(op, forward=forward, backward=backward, part="tensor_parallel")


def _nothing(share: MicroBatchShare, op: ops.Weights, layer: Layer) -> Iterator[Operator]:
    return iter(())


KINDS_TIMED: dict[
    type[ops.LayerOperator], Callable[[MicroBatchShare, Any, Layer], Iterator[Operator]]
] = {
    ops.AttentionCore: attention_core,
    ops.BlockExchange: _block_exchange,
    ops.Elementwise: elementwise,
    ops.ExpertBias: expert_bias,
    ops.ExpertExchange: expert_exchange,
    ops.Experts: experts,
    ops.HeadExchange: _head_exchange,
    ops.IndexScores: index_scores,
    ops.Lookup: lookup,
    ops.Loss: loss,
    ops.Permute: permute,
    ops.MatrixProduct: product,
    ops.Scan: scan,
    ops.VocabularyReduce: _vocabulary_reduce,
    ops.Weights: _nothing,
}
"""The function of each kind of operator."""
