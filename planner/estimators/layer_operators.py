"""One fold over the operators of a layer for their times, in training and in serving.

A layer is one list of operators. One GPU computes a share of it: a `MicroBatchShare` in training,
with forward and backward seconds, or a `BatchShare` in a step of an engine. ``TIMED`` has, for each
kind of operator, a function for either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from planner.base.arrays import CodeArray, FloatArray
from planner.estimators.adapters import serving_adapters
from planner.estimators.attention_core import (
    cached_bytes,
    serving_attention,
    serving_index_scores,
    serving_scan,
    training_attention,
    training_index_scores,
    training_scan,
)
from planner.estimators.experts import (
    expert_bias,
    permute,
    serving_exchange,
    serving_experts,
    training_exchange,
    training_experts,
)
from planner.estimators.inference.batch_share import BatchShare
from planner.estimators.inference.kernels import SIXTEEN_BIT
from planner.estimators.machine import CommunicationGroup
from planner.estimators.operators import Operator, make_operator
from planner.estimators.training.compilation import elementwise_tensors
from planner.estimators.training.loss_kernels import logit_passes
from planner.estimators.training.micro_batch_share import MicroBatchShare
from planner.estimators.training.saved_activations import skipped_share
from planner.layers import operators as ops
from planner.layers.model import Layer
from planner.layers.operators import ParameterPart, RankSpread
from planner.specs.quantization import LOGIT_CODES

_NUMBER = 2.0  # bytes of an activation
# Tensors of a norm: it includes the sum with the residual stream before it.
_NORM_TENSORS = 4
_SAMPLING_BYTES = 12.0  # fp32 logits are read by softmax, top-k and sampling
_CHOICE_BYTES = 8.0  # scores of experts in fp32, and the chosen ones
# Parts of other kernels: sums of norms, gates of the attention before them.
_FUSED = ("residual", "output_gate")
# Prompts have one kernel, sequences that decode another.
_KERNELS = {"convolution": 2}


def layer_operators(share: MicroBatchShare | BatchShare, layer: Layer) -> Iterator[Operator]:
    """Yield the timed operators of a layer, embedding or logits, with their communication."""
    for op in layer.operators:
        in_training, in_serving = TIMED[type(op)]
        if isinstance(share, BatchShare):
            yield from in_serving(share, op, layer)
            yield from serving_adapters(share, op)
            continue
        operators = in_training(share, op, layer)
        if share.recomputation.spares and op.repeatable:
            left = skipped_share(op, share.recomputation)
            operators = (replace(operator, spared=left) for operator in operators)
        yield from operators


def _training_product(
    share: MicroBatchShare, op: ops.MatrixProduct, layer: Layer
) -> Iterator[Operator]:
    """Yield a matrix product; backward computes data and weight gradients (frozen: data only).

    Operands in fewer bits are cast first, if the product's kernel does not; the weight gradient
    accumulates in place, unless other kernels do it.
    """
    machine = share.machine
    rows = share.tokens if op.rows is RankSpread.TENSOR else share.local_tokens
    depth, columns = map(np.asarray, op.on_rank(share.tensor_parallel))
    precision = share.unquantized if op.sixteen_bit else share.kernel_format
    accumulated = np.where(
        np.asarray(share.gradients.accumulation_traffic) > 0, 2.0, 2 * share.gradients.stored_bytes
    )
    width = share.number_bytes
    products = [(rows, columns, depth, width), (rows, depth, columns, width)]
    if not _is_frozen(share, op):
        products.append((columns, depth, rows, accumulated))
    forward, data_gradient, *others = machine.gemm_times(products, precision)
    weight_gradient = others[0] if others else np.zeros(())
    yield make_operator(
        op,
        forward=forward + machine.cast_time(rows * depth, precision),
        backward=data_gradient + weight_gradient + machine.cast_time(rows * columns, precision),
        flops=np.asarray(2.0 * rows * columns * depth),
        selective=share.execution.selective_share,
        weights=weight_gradient,
    )


def _serving_product(share: BatchShare, op: ops.MatrixProduct, layer: Layer) -> Iterator[Operator]:
    """Yield the kernels of a matrix product of a layer in a serving step."""
    core = layer.core
    if op.reads == "residual" and op.split is ops.MatrixSplit.NONE:
        yield from _joined_projections(share, op, layer)
        return
    if core and core.latent_width and op.reads == "key_latent":
        yield from _expansion(share, op, core)
        return
    rows = _rows(share, op)
    depth, columns = op.on_rank(share.tensor_parallel)
    yield share.linear(
        op.name,
        op.module,
        rows=rows,
        columns=columns,
        depth=depth,
        quantization=_quantization(share, op, layer),
        stored=_embedding_bytes(share) if op.holder is ParameterPart.LOGITS else None,
    )
    if op.module == "router":
        moved = _CHOICE_BYTES * rows * op.columns.total
        yield share.elementwise("choose_experts", "router", num_bytes=moved)


def _joined_projections(
    share: BatchShare, op: ops.MatrixProduct, layer: Layer
) -> Iterator[Operator]:
    """Yield the unsharded projections into latent spaces, joined into one product."""
    same = [
        product
        for product in layer.of(ops.MatrixProduct)
        if (product.reads, product.split, product.module) == (op.reads, op.split, op.module)
    ]
    if op is same[0]:
        yield share.linear(
            f"{op.module}_down",
            op.module,
            rows=share.tokens,
            columns=sum(product.columns.total for product in same),
            depth=op.depth,
            quantization=share.stored_code("attention"),
        )


def _expansion(
    share: BatchShare, op: ops.MatrixProduct, core: ops.AttentionCore
) -> Iterator[Operator]:
    """Yield the expansion of MLA's latent: for prompts to keys and values, in decoding folded."""
    prompt, t = share.prompt_tokens, share.tensor_parallel
    yield share.linear(
        op.name,
        op.module,
        rows=prompt,
        columns=op.columns.on_rank(t),
        depth=op.depth,
        quantization=share.stored_code("attention"),
    )
    for name, width in (("keys", core.qk_dim - core.rope_dim), ("values", core.v_dim)):
        yield share.linear(
            f"absorb_{name}",
            op.module,
            rows=share.tokens - prompt,
            columns=core.heads / t * width,
            depth=op.depth,
            quantization=SIXTEEN_BIT,
        )


def _quantization(share: BatchShare, op: ops.MatrixProduct, layer: Layer) -> CodeArray | None:
    """Return the quantization code of a product; None if the configuration's code applies."""
    if op.holder is ParameterPart.LOGITS:
        if share.inputs.workload.embedding_bits is not None:
            return SIXTEEN_BIT
        is_quantized = share.inputs.engine.quantized_ends
        return LOGIT_CODES[share.configurations.quantization] if is_quantized else SIXTEEN_BIT
    if op.sixteen_bit or op.holder is ParameterPart.ROUTER:
        return SIXTEEN_BIT
    if op.holder is ParameterPart.ATTENTION:
        return share.stored_code("attention")
    if op.holder is ParameterPart.FEED_FORWARD:
        return share.stored_code("shared_experts" if layer.experts else "feed_forward")
    return None


def _training_elementwise(
    share: MicroBatchShare, op: ops.Elementwise, layer: Layer
) -> Iterator[Operator]:
    """Yield a memory-bound element-wise operator, as far as the framework does not fuse it."""
    forward, backward = map(share.machine.memory_time, _moved(share, op))
    yield make_operator(op, forward, backward, selective=share.execution.selective_share)


def _serving_elementwise(
    share: BatchShare, op: ops.Elementwise, layer: Layer
) -> Iterator[Operator]:
    """Yield the memory-bound kernel of an element-wise operator; nothing if it is fused."""
    if op.module in _FUSED or op.name in _FUSED:
        return
    t, rows = share.tensor_parallel, _rows(share, op)
    if op.module == "norm":
        moved = _NUMBER * _NORM_TENSORS * rows * op.columns.total
    elif op.module == "rope":
        # The same kernel rotates keys and writes them to the cache.
        queries = _NUMBER * op.forward * op.columns.split / t
        cached = layer.core if layer.core and not layer.core.shares_cache else None
        moved = rows * (queries + _NUMBER * cached_bytes(share, cached))
    else:
        is_whole = op.module == "residual_streams"
        width = op.columns.total if is_whole else op.columns.on_rank(t)
        moved = _NUMBER * op.forward * rows * width
    kernels = _KERNELS.get(op.name, 1)
    yield share.elementwise(op.name, op.module, num_bytes=moved, kernels=kernels)


def _training_lookup(share: MicroBatchShare, op: ops.Lookup, layer: Layer) -> Iterator[Operator]:
    """Yield an embedding lookup; its backward adds to the gradients unless the table is frozen."""
    forward, backward = _moved(share, op)
    added = share.machine.memory_time(backward)
    read = share.machine.memory_time(forward)
    yield make_operator(op, read, np.zeros(()) if _is_frozen(share, op) else added)


def _serving_lookup(share: BatchShare, op: ops.Lookup, layer: Layer) -> Iterator[Operator]:
    read = (_embedding_bytes(share) or _NUMBER) - _NUMBER
    moved = (_NUMBER * op.forward + read) * share.tokens * op.columns.total
    yield share.elementwise(op.name, op.module, num_bytes=moved)


def _loss(share: MicroBatchShare, op: ops.Loss, layer: Layer) -> Iterator[Operator]:
    """Yield the passes of the loss over all logits, half of them in the backward pass."""
    logits = share.tokens * op.columns.on_rank(share.tensor_parallel)
    passes = logit_passes(share)
    traffic = share.machine.memory_time(share.number_bytes * passes * logits)
    yield make_operator(op, traffic / 2, traffic / 2)


def _sampling(share: BatchShare, op: ops.Loss, layer: Layer) -> Iterator[Operator]:
    """Yield the all-gather of the logits of all vocabulary shards, and the sampling of tokens."""
    logits = share.sampled * op.columns.total
    time = share.machine.collective("all_gather", _NUMBER * logits, share.tensor_group)
    yield Operator(name="logits_gather", module="logits", part="tensor_parallel", forward=time)
    yield share.elementwise("sampling", "logits", num_bytes=_SAMPLING_BYTES * logits, kernels=3)


def _training_block_exchange(
    share: MicroBatchShare, op: ops.BlockExchange, layer: Layer
) -> Iterator[Operator]:
    yield make_operator(op, share.block_exchange, share.block_exchange, part="tensor_parallel")


def _serving_block_exchange(
    share: BatchShare, op: ops.BlockExchange, layer: Layer
) -> Iterator[Operator]:
    """Yield the tensor-parallel all-reduce after an attention or feed-forward block."""
    if op.module == "feed_forward":
        is_joined = layer.experts is not None
    else:
        is_joined = share.execution.joined_all_reduce and layer.side_by_side
    if not is_joined:
        yield share.tensor_all_reduce(op.module)


def _head_exchange(
    share: MicroBatchShare, op: ops.HeadExchange, layer: Layer
) -> Iterator[Operator]:
    """Yield the all-to-all before and after a linear-attention scan (sequence to heads)."""
    t, c = share.tensor_parallel, share.context_parallel
    moved = share.number_bytes * share.tokens * op.columns.on_rank(t)
    group = CommunicationGroup(size=c, stride=t)
    time = share.machine.collective("all_to_all", moved, group)
    yield make_operator(op, time, time, part="context_parallel")


def _training_vocabulary_reduce(
    share: MicroBatchShare, op: ops.VocabularyReduce, layer: Layer
) -> Iterator[Operator]:
    """Yield the all-reduce of hidden states over tensor-parallel ranks, forward or backward."""
    num_bytes = share.number_bytes * share.tokens * share.hidden_size
    reduce = share.machine.collective("all_reduce", num_bytes, share.tensor_group)
    nothing = np.zeros(())
    forward, backward = (nothing, reduce) if op.backward else (reduce, nothing)
    yield make_operator(op, forward, backward, part="tensor_parallel")


def _serving_vocabulary_reduce(
    share: BatchShare, op: ops.VocabularyReduce, layer: Layer
) -> Iterator[Operator]:
    if not op.backward:
        yield share.tensor_all_reduce(op.module)


def _is_frozen(share: MicroBatchShare, op: ops.LayerOperator) -> bool:
    """Return whether an operator's weights get no gradient (base weights under LoRA)."""
    workload, ends = share.inputs.workload, (ParameterPart.EMBEDDING, ParameterPart.LOGITS)
    if workload.trains_part:
        return op.holder in ends
    return workload.is_frozen and not (workload.saves_ends and op.holder in ends)


def _moved(share: MicroBatchShare, op: ops.Elementwise) -> tuple[FloatArray, FloatArray]:
    """Bytes that the framework's kernels read and write, forward and backward."""
    if op.spread is RankSpread.TENSOR:
        numbers = np.asarray(share.tokens * op.columns.on_rank(share.tensor_parallel))
    else:
        numbers = share.local_tokens * op.columns.total
    volume = numbers * share.number_bytes
    forward, backward = elementwise_tensors(share, op)
    return volume * forward, volume * backward


def _rows(share: BatchShare, op: ops.LayerOperator) -> FloatArray:
    """Rows of an operator: after the last layer only the sampled tokens."""
    at_the_end = op.module == "logits" or op.name == "final_norm"
    return share.sampled if at_the_end else share.tokens


def _embedding_bytes(share: BatchShare) -> float | None:
    """Bytes of a weight of embedding and logits; None where these have 16 bits."""
    bits = share.inputs.workload.embedding_bits
    return None if bits in (None, 16) else bits / 8


def _nothing(
    share: MicroBatchShare | BatchShare, op: ops.LayerOperator, layer: Layer
) -> Iterator[Operator]:
    """Part of other kernels, or of training alone."""
    return iter(())


_Share = TypeVar("_Share")
_Timed = Callable[[_Share, Any, Layer], Iterator[Operator]]

TIMED: dict[type[ops.LayerOperator], tuple[_Timed[MicroBatchShare], _Timed[BatchShare]]] = {
    ops.AttentionCore: (training_attention, serving_attention),
    ops.BlockExchange: (_training_block_exchange, _serving_block_exchange),
    ops.Elementwise: (_training_elementwise, _serving_elementwise),
    ops.ExpertBias: (expert_bias, _nothing),
    ops.ExpertExchange: (training_exchange, serving_exchange),
    ops.Experts: (training_experts, serving_experts),
    ops.HeadExchange: (_head_exchange, _nothing),
    ops.IndexScores: (training_index_scores, serving_index_scores),
    ops.Lookup: (_training_lookup, _serving_lookup),
    ops.Loss: (_loss, _sampling),
    ops.MatrixProduct: (_training_product, _serving_product),
    ops.Permute: (permute, _nothing),
    ops.Scan: (training_scan, serving_scan),
    ops.VocabularyReduce: (_training_vocabulary_reduce, _serving_vocabulary_reduce),
    ops.Weights: (_nothing, _nothing),
}
"""The functions of each kind of operator: of a micro-batch in training, of a step in serving."""
