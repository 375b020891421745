"""The core of attention in training: scores and values, scans, and indexers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.enums import AttentionKernels, ContextExchange
from planner.estimators.kernel_work import rates, scan_work
from planner.estimators.machine import CommunicationGroup
from planner.estimators.training.compilation import layer_launch_time
from planner.estimators.training.micro_batch_share import MicroBatchShare
from planner.estimators.training.operators import Operator, make_operator
from planner.formulas.attention import (
    attention_core_bytes,
    attention_core_flops,
    mean_keys_per_query,
    unfused_softmax_bytes,
)
from planner.formulas.collectives import exposed_time
from planner.layers.model import Layer
from planner.layers.operators import AttentionCore, IndexScores, Scan

# Casts to fp32 and back, scale, mask and softmax move 36 bytes per score where the fused kernel
# moves 4; they are 5 kernels more than the about 18 of a layer.
_FALLBACK_PASSES = 16.0
_FALLBACK_LAUNCHES = 5 / 18
_STREAMS = 2.0
# Two outputs are read in 16 bit, and their sum is written.
_MERGE_BYTES = 6.0
_BACKWARD_FLOPS = 2.5  # FlashAttention-2 recomputes the scores: five products for two
# The backward pass makes the states again, then as many products for each gradient.
_SCAN_BACKWARD = 2.5


def attention_core(share: MicroBatchShare, op: AttentionCore, layer: Layer) -> Iterator[Operator]:
    """Yield scores, softmax and weighted values of attention, with ring context parallelism."""
    default = share.inputs.framework.execution.attention_kernels
    gpu = share.inputs.machine.gpu.efficiency
    rate_forward, rate_backward = rates(gpu, share.attention_kernel, default)
    fused_forward, flops = _fused_attention(share, op, rate_forward)
    unfused_forward, unfused_flops = _unfused_attention(share, op)
    fused = share.flash_attention
    share.inputs.machine.unused(~fused, "attention")
    machine = share.inputs.machine
    slowdown = gpu.attention_backward_fraction * rate_backward / rate_forward
    faster_forward, faster_backward = machine.fp8_attention_rates(share.fp8_attention)
    fused_backward = _BACKWARD_FLOPS * fused_forward / slowdown
    core = make_operator(
        op,
        forward=np.where(fused, fused_forward / faster_forward, unfused_forward),
        backward=np.where(fused, fused_backward / faster_backward, 2 * unfused_forward),
        flops=np.where(fused, flops, unfused_flops),
        parts={"core_attn": np.where(fused, 0.0, 1.0)},
    )
    yield core
    if np.any(share.context_parallel > 1):
        yield _merge(share, op)
    yield _ring_exchange(share, op, core)


def index_scores(share: MicroBatchShare, op: IndexScores, layer: Layer) -> Iterator[Operator]:
    """Yield the indexer scores of sparse attention, over all keys before each query.

    Every rank scores with all heads of the indexer; its gradient does so twice.
    """
    s = share.sequence_length
    keys = mean_keys_per_query(sequence_length=s, sliding_window=s, causal=True)
    keys = keys / op.compress_ratio
    machine = share.inputs.machine
    flops = 2.0 * op.heads * op.head_dim * share.tokens * keys
    written = machine.memory_time(8.0 * share.tokens * keys, kernels=2)
    time = np.maximum(machine.peak_time(flops / share.rate_in_32_bits), written)
    yield make_operator(op, forward=time, backward=2 * time, flops=flops)


def scan(share: MicroBatchShare, op: Scan, layer: Layer) -> Iterator[Operator]:
    """Yield the scan of linear attention or a state-space layer over the sequence."""
    flops, moved = scan_work(op, share.tokens, share.tensor_parallel)
    if op.by_channel:
        machine = share.inputs.machine
        forward = np.maximum(machine.vector_time(flops), machine.memory_time(moved))
        yield make_operator(op, forward=forward, backward=_SCAN_BACKWARD * forward, flops=flops)
        return
    forward = share.inputs.machine.kernels.attention(
        flops,
        moved,
        share.sequences,
        op.heads / share.tensor_parallel,
        share.sequence_length,
        op.value_dim,
        rate=share.inputs.machine.attention_rate(AttentionKernels.PORTABLE) * share.rate_in_32_bits,
    )
    yield make_operator(op, forward=forward, backward=_SCAN_BACKWARD * forward, flops=flops)


def softmax_launches(share: MicroBatchShare, core: AttentionCore | None) -> Numeric:
    """Return forward host seconds to launch a softmax that is not fused into one kernel."""
    if core is None:
        return 0.0
    extra = _FALLBACK_LAUNCHES * layer_launch_time(share)
    return np.where(share.flash_attention, 0.0, extra * _falls_back(share, core))


def _falls_back(share: MicroBatchShare, op: AttentionCore) -> FloatArray:
    """1 where the unfused attention has no softmax kernel for its sizes, else 0."""
    matrices = share.sequences * op.heads / share.tensor_parallel
    multiple = share.inputs.framework.execution.softmax_multiple
    return np.where(np.mod(matrices, multiple) != 0, 1.0, 0.0)


def _fused_attention(
    share: MicroBatchShare, op: AttentionCore, rate: Numeric
) -> tuple[FloatArray, FloatArray]:
    """Return forward seconds and FLOPs of fused attention; ``rate``: relative to measured."""
    s = share.sequence_length
    heads = op.heads / share.tensor_parallel
    flops, moved = fused_work(
        tokens=share.tokens,
        sequence_length=s,
        most_keys=op.most_keys or s,
        heads=heads,
        key_value_heads=share.key_value_heads(op.key_value_heads),
        qk_dim=op.qk_dim,
        v_dim=op.v_dim,
        element_bytes=share.number_bytes,
        causal=op.causal,
        compressed_keys=_mean_compressed(op, s),
    )
    steps, heads_at_once = _ring_step(share, heads)
    time = steps * share.inputs.machine.kernels.attention(
        flops / steps,
        moved / steps,
        share.sequences,
        heads_at_once,
        s,
        op.qk_dim,
        rate=rate * share.rate_in_32_bits,
    )
    return time, flops


def fused_work(
    *,
    tokens: Numeric,
    sequence_length: Numeric,
    most_keys: Numeric,
    heads: Numeric,
    key_value_heads: Numeric,
    qk_dim: int,
    v_dim: int,
    element_bytes: Numeric = 2,
    causal: bool = True,
    compressed_keys: Numeric = 0.0,
) -> tuple[FloatArray, FloatArray]:
    """Return forward FLOPs and bytes of a fused attention kernel.

    A query sees at most ``most_keys``, and in addition ``compressed_keys`` on average.
    """
    keys = mean_keys_per_query(
        sequence_length=sequence_length, sliding_window=most_keys, causal=causal
    )
    keys = keys + compressed_keys
    dims = {"qk_head_dim": qk_dim, "v_head_dim": v_dim}
    flops = attention_core_flops(num_queries=tokens, keys_per_query=keys, num_heads=heads, **dims)
    moved = attention_core_bytes(
        num_queries=tokens,
        num_heads=heads,
        num_key_value_heads=key_value_heads,
        element_bytes=element_bytes,
        **dims,
    )
    return flops, moved


def _mean_compressed(op: AttentionCore, sequence_length: Numeric) -> FloatArray:
    """Return the mean number of compressed keys that a query attends to."""
    if not op.compress_ratio:
        return np.zeros(())
    entries = np.asarray(sequence_length) / op.compress_ratio
    return mean_keys_per_query(
        sequence_length=entries, sliding_window=op.index_topk or entries, causal=True
    )


def _ring_step(share: MicroBatchShare, heads: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return how many kernels a ring-attention pass has in sequence, and the heads of each.

    A ring runs one for the keys and values of each rank; zigzag gives every rank equal shares
    under the causal mask. Two run side by side and fill the GPU (Transformer Engine's
    context_parallel.py has two streams). Ranks that trade tokens for heads run one on fewer.
    """
    c, trades = share.context_parallel, share.cp_comm_type == ContextExchange.A2A
    steps = np.where(trades, 1.0, np.maximum(c / _STREAMS, 1.0))
    return steps, np.where(trades, heads / c, heads)


def _merge(share: MicroBatchShare, op: AttentionCore) -> Operator:
    """Return the kernels that rescale and add the outputs of ring-attention steps."""
    merges = np.where(share.cp_comm_type == ContextExchange.A2A, 0.0, share.context_parallel - 1)
    each = _MERGE_BYTES * share.tokens * (op.heads / share.tensor_parallel) * op.v_dim
    time = merges * share.inputs.machine.memory_time(each)
    return Operator(
        name="attention_ring_merge",
        module="attention",
        forward=time,
        backward=time,
        flops=np.zeros(()),
        repeated_by=op.repeated_by,
    )


def _unfused_attention(share: MicroBatchShare, op: AttentionCore) -> tuple[FloatArray, FloatArray]:
    """Return forward seconds and FLOPs of unfused attention; 0 where all is fused."""
    if np.all(share.flash_attention):
        return np.zeros(()), np.zeros(())
    s = share.sequence_length
    machine = share.inputs.machine
    heads = op.heads / share.tensor_parallel
    batch = share.sequences * heads
    scores = _batched_product(share, batch * s, s, op.qk_dim, op)
    values = _batched_product(share, batch * s, op.v_dim, s, op)
    passes = share.inputs.framework.execution.softmax_passes
    softmax = machine.memory_time(
        unfused_softmax_bytes(
            sequences=share.sequences,
            num_heads=heads,
            sequence_length=s,
            passes=passes + _FALLBACK_PASSES * _falls_back(share, op),
            element_bytes=share.number_bytes,
        )
    )
    flops = attention_core_flops(
        num_queries=share.tokens,
        keys_per_query=s,
        num_heads=heads,
        qk_head_dim=op.qk_dim,
        v_head_dim=op.v_dim,
    )
    return scores + values + softmax, flops


def _batched_product(
    share: MicroBatchShare, rows: Numeric, columns: Numeric, depth: Numeric, op: AttentionCore
) -> FloatArray:
    """Return seconds of the matrix products of all attention heads."""
    machine = share.inputs.machine
    time = machine.gemm_time(rows, columns, depth, share.unquantized, share.number_bytes)
    if op.qk_dim % share.inputs.framework.execution.head_dim_multiple == 0:
        return time
    return np.maximum(time, machine.vector_product_time(rows, columns, depth))


def _ring_exchange(share: MicroBatchShare, op: AttentionCore, core: Operator) -> Operator:
    """Return the exchange of keys and values around the context-parallel ring, if unhidden."""
    machine, overlap = share.inputs.machine, share.inputs.framework.overlap
    c = share.context_parallel
    block = share.number_bytes * share.tokens * op.key_value_columns.on_rank(share.tensor_parallel)
    distance = share.tensor_parallel * c - 1
    forward = (c - 1) * machine.send_time(block, distance)
    backward = 2 * forward
    hide = {"interference": overlap.interference}
    trades = share.cp_comm_type == ContextExchange.A2A
    machine.unused(trades, "message")
    traded = _head_exchange(share, op) if np.any(trades & (c > 1)) else np.zeros(())
    return Operator(
        name="attention_context_parallel",
        module="attention",
        part="context_parallel",
        forward=np.where(
            trades, traded, exposed_time(communication=forward, computation=core.forward, **hide)
        ),
        backward=np.where(
            trades, traded, exposed_time(communication=backward, computation=core.backward, **hide)
        ),
        flops=np.zeros(()),
        repeated_by=core.repeated_by,
        parts=core.parts,
    )


def _head_exchange(share: MicroBatchShare, op: AttentionCore) -> FloatArray:
    """Return the all-to-all from tokens to heads and back around attention (Ulysses [1]_).

    Ranks that share a key-value head are each sent a copy of it [2]_.

    References
    ----------
    .. [1] S. A. Jacobs et al., "DeepSpeed Ulysses," 2023, arXiv:2309.14509, section 3.2.
    .. [2] DeepSpeed 0.19.8, ``runtime/sequence_parallel/ulysses_sp.py``: kv_replication_factor.
    """
    t, c = share.tensor_parallel, share.context_parallel
    keys = c * op.key_value_columns.on_rank(t * c)
    read = op.heads * op.qk_dim / t + keys
    written = op.heads * op.v_dim / t
    group = CommunicationGroup(size=c, stride=t)
    machine = share.inputs.machine
    there, back = (
        machine.collective("all_to_all", share.number_bytes * share.tokens * width, group)
        for width in (read, written)
    )
    return there + back
