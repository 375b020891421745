"""Matrix products and memory-bound kernels of training, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.base.arrays import FloatArray
from planner.estimators.compilation import elementwise_tensors
from planner.estimators.loss_kernels import logit_passes
from planner.estimators.operators import Operator, timed
from planner.estimators.share import Share
from planner.layers.model import Layer
from planner.layers.operators import Elementwise, Holder, Lookup, Loss, Op, Product, Split
from planner.layers.sizes import Columns, Spread


def product(share: Share, op: Product, layer: Layer) -> Iterator[Operator]:
    """A matrix multiplication; its backward computes both gradients, of a frozen one the data's.

    Operands in fewer bits are cast first, if the product's kernel does not; the weight gradient
    accumulates in place, unless other kernels do it.
    """
    machine = share.setting.machine
    rows, columns, depth = product_sizes(share, op)
    precision = share.unquantized if op.sixteen_bit else share.kernel_format
    width = share.number_bytes
    accumulated = np.where(
        np.asarray(share.gradients.accumulation_traffic) > 0, 2.0, 2 * share.gradients.kept
    )
    forward = machine.gemm_time(rows, columns, depth, precision, width)
    data_gradient = machine.gemm_time(rows, depth, columns, precision, width)
    weight_gradient = machine.gemm_time(columns, depth, rows, precision, output_bytes=accumulated)
    if _is_frozen(share, op):
        weight_gradient = np.zeros(())
    yield timed(
        op,
        forward=forward + machine.cast_time(rows * depth, precision),
        backward=data_gradient + weight_gradient + machine.cast_time(rows * columns, precision),
        flops=np.asarray(2.0 * rows * columns * depth),
        selective=share.setting.framework.execution.selective_share,
        weights=weight_gradient,
    )


def product_sizes(share: Share, op: Product) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows, columns and depth of a product on one rank."""
    rows = share.tokens if op.rows is Spread.TENSOR else share.own_tokens
    t = share.tensor_parallel
    columns = op.columns.on_rank(t) if op.split is Split.COLUMNS else op.columns.whole
    depth = op.depth / t if op.split is Split.ROWS else op.depth
    return rows, np.asarray(columns), np.asarray(depth)


def elementwise(share: Share, op: Elementwise, layer: Layer) -> Iterator[Operator]:
    """A memory-bound operator, as the framework fuses it."""
    forward, backward = _moved(share, op)
    machine = share.setting.machine
    yield timed(
        op,
        forward=machine.memory_time(forward),
        backward=machine.memory_time(backward),
        selective=share.setting.framework.execution.selective_share,
    )


def lookup(share: Share, op: Lookup, layer: Layer) -> Iterator[Operator]:
    """Reading rows of a table, and adding to their gradients unless it is frozen."""
    machine, nothing = share.setting.machine, np.zeros(())
    forward, backward = _moved(share, op)
    added = machine.memory_time(backward)
    yield timed(
        op,
        forward=machine.memory_time(forward),
        backward=nothing if _is_frozen(share, op) else added,
    )


def loss(share: Share, op: Loss, layer: Layer) -> Iterator[Operator]:
    """The passes of a loss over all logits, half of them backward."""
    logits = share.tokens * op.columns.on_rank(share.tensor_parallel)
    passes = logit_passes(share)
    traffic = share.setting.machine.memory_time(share.number_bytes * passes * logits)
    yield timed(op, forward=traffic / 2, backward=traffic / 2)


def numbers(share: Share, columns: Columns, spread: Spread) -> FloatArray:
    """Numbers of these columns that a rank has in a micro-batch."""
    if spread is Spread.TENSOR:
        return np.asarray(share.tokens * columns.on_rank(share.tensor_parallel))
    return share.own_tokens * columns.whole


def _is_frozen(share: Share, op: Op) -> bool:
    """Whether weights get no gradient; embedding and logits may be trained beside adapters."""
    workload = share.setting.workload
    saved = workload.saves_ends and op.holder in (Holder.EMBEDDING, Holder.LOGITS)
    return workload.is_frozen and not saved


def _moved(share: Share, op: Elementwise) -> tuple[FloatArray, FloatArray]:
    """Bytes that the framework's kernels read and write, forward and backward."""
    volume = numbers(share, op.columns, op.spread) * share.number_bytes
    forward, backward = elementwise_tensors(share, op)
    return volume * forward, volume * backward
