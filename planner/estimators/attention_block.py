"""Operators of the attention block of a layer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.arrays import FloatArray, Numeric
from planner.enums import AttentionKind, PositionEmbedding
from planner.estimators.linear_attention import (
    linear_attention_exchange,
    linear_attention_operators,
)
from planner.estimators.operators import Operator, elementwise, linear, tensor_collectives
from planner.estimators.share import Share, repeats_outputs
from planner.formulas.attention import (
    attention_core_bytes,
    attention_core_flops,
    mean_keys_per_query,
    unfused_softmax_bytes,
)
from planner.formulas.overlap import exposed_time
from planner.specs.model import AttentionSpec, LayerGroup

# Casts to fp32 and back, scale, mask and softmax move 36 bytes per score where the fused kernel
# moves 4; they are 5 kernels more beside about 18 of a layer.
_FALLBACK_PASSES = 16.0
_FALLBACK_LAUNCHES = 5 / 18
_BACKWARD_FLOPS = 2.5  # FlashAttention-2 recomputes the scores: five products for two


def attention_block(share: Share, group: LayerGroup) -> Iterator[Operator]:
    """From the norm before the attention to the residual after it."""
    if not (attention := group.attention):
        return
    own = share.own_tokens * share.hidden_size
    repeats = repeats_outputs(share, group)
    yield elementwise(
        share, "attention_norm", "norm", elements=own, forward_bytes=4, backward_bytes=6
    ).repeating(repeats)
    if attention.has_state:
        yield from linear_attention_operators(share, attention)
        yield linear_attention_exchange(share, attention)
    else:
        yield from _softmax_attention(share, attention, repeats)
    yield elementwise(
        share, "attention_residual", "residual", elements=own, forward_bytes=6, backward_bytes=6
    )
    yield from tensor_collectives(share, "attention")


def _softmax_attention(
    share: Share, attention: AttentionSpec, repeats: Numeric
) -> Iterator[Operator]:
    """From the projections to the output projection; with context parallelism, its ring."""
    yield from _projections(share, attention, repeats)
    yield from _rotary(share, attention)
    yield from _indexer(share, attention)
    core = attention_core(share, attention)
    yield core
    values = attention.num_attention_heads * value_dim(attention) / share.tensor_parallel
    if attention.attn_output_gate:
        yield elementwise(
            share,
            "output_gate",
            "attention",
            elements=share.tokens * values,
            forward_bytes=6,
            backward_bytes=10,
        )
    yield linear(
        share,
        "attention_output",
        "attention_output",
        rows=share.tokens,
        columns=share.hidden_size,
        depth=values,
    )
    yield _ring_exchange(share, attention, core)


def value_dim(attention: AttentionSpec) -> int:
    """Size of a value head."""
    return attention.v_head_dim or attention.head_dim


def _projections(share: Share, attention: AttentionSpec, repeats: Numeric) -> Iterator[Operator]:
    t, h = share.tensor_parallel, share.hidden_size
    a, d, dv = attention.num_attention_heads, attention.head_dim, value_dim(attention)
    if attention.kind is AttentionKind.STANDARD:
        keys_and_values = share.key_value_heads(attention.num_key_value_heads) * (d + dv)
        gate = a * dv if attention.attn_output_gate else 0
        columns = (a * d + gate) / t + keys_and_values
        yield linear(share, "qkv", "qkv", rows=share.tokens, columns=columns, depth=h)
        return
    rank_q, rank_kv = attention.q_lora_rank, attention.kv_lora_rank
    if rank_q:
        yield linear(share, "q_down", "qkv", rows=share.own_tokens, columns=rank_q, depth=h)
    q_up = linear(share, "q_up", "qkv", rows=share.tokens, columns=a * d / t, depth=rank_q or h)
    yield q_up.repeating(repeats)
    yield linear(
        share,
        "kv_down",
        "qkv",
        rows=share.own_tokens,
        columns=rank_kv + attention.qk_rope_head_dim,
        depth=h,
    )
    up = a * (d - attention.qk_rope_head_dim + dv) / t
    kv_up = linear(share, "kv_up", "qkv", rows=share.tokens, columns=up, depth=rank_kv)
    yield kv_up.repeating(repeats)


def _rotary(share: Share, attention: AttentionSpec) -> Iterator[Operator]:
    if share.setting.model.position_embedding is not PositionEmbedding.ROTARY:
        return
    rotated = attention.qk_rope_head_dim or attention.head_dim
    heads = attention.num_attention_heads / share.tensor_parallel
    if attention.kind is AttentionKind.STANDARD:
        heads = heads + share.key_value_heads(attention.num_key_value_heads)
    yield elementwise(
        share,
        "rope",
        "rope",
        elements=share.tokens * heads * rotated,
        forward_bytes=4,
        backward_bytes=4,
    )


def _indexer(share: Share, attention: AttentionSpec) -> Iterator[Operator]:
    """Scores of all keys before a query, which choose those that sparse attention reads.

    Every rank scores with all heads of the indexer; its gradient does so twice.
    """
    if not attention.index_topk:
        return
    heads, d, s = (
        attention.index_n_heads,
        attention.index_head_dim,
        share.setting.workload.sequence_length,
    )
    depth = attention.q_lora_rank
    yield linear(share, "index_q", "indexer", rows=share.tokens, columns=heads * d, depth=depth)
    keys = mean_keys_per_query(sequence_length=s, sliding_window=s, causal=True)
    machine = share.setting.machine
    flops = 2.0 * heads * d * share.tokens * keys
    written = machine.memory_time(8.0 * share.tokens * keys, kernels=2)
    time = np.maximum(flops / machine.peak(machine.sixteen_bit), written)
    yield Operator(
        name="index_scores", module="indexer", forward=time, backward=2 * time, flops=flops
    )


def attention_core(share: Share, attention: AttentionSpec) -> Operator:
    """Scores, softmax and weighted values, fused or not."""
    fused_forward, flops = _fused(share, attention)
    unfused_forward, unfused_flops = _unfused(share, attention)
    fused = share.flash_attention
    machine = share.setting.machine
    slowdown = machine.gpu.efficiency.attention_backward_fraction
    faster_forward, faster_backward = machine.fp8_attention_rates(share.fp8_attention)
    fused_backward = _BACKWARD_FLOPS * fused_forward / slowdown
    return Operator(
        name="attention_core",
        module="attention",
        forward=np.where(fused, fused_forward / faster_forward, unfused_forward),
        backward=np.where(fused, fused_backward / faster_backward, 2 * unfused_forward),
        flops=np.where(fused, flops, unfused_flops),
        selective=np.where(share.flash_attention, 0.0, 1.0),
    )


def softmax_launches(share: Share, group: LayerGroup) -> Numeric:
    """Seconds of the host for a softmax that falls back to several kernels, forward."""
    attention = group.attention
    if attention is None or attention.has_state:
        return 0.0
    extra = _FALLBACK_LAUNCHES * share.setting.framework.execution.layer_launch_time
    return np.where(share.flash_attention, 0.0, extra * _falls_back(share, attention))


def _falls_back(share: Share, attention: AttentionSpec) -> FloatArray:
    """1 where the unfused attention has no softmax kernel for its batches and heads, else 0."""
    matrices = share.sequences * attention.num_attention_heads / share.tensor_parallel
    multiple = share.setting.framework.execution.softmax_multiple
    return np.where(np.mod(matrices, multiple) != 0, 1.0, 0.0)


def _fused(share: Share, attention: AttentionSpec) -> tuple[FloatArray, FloatArray]:
    s = share.setting.workload.sequence_length
    heads = attention.num_attention_heads / share.tensor_parallel
    seen = attention.sliding_window or attention.index_topk or s
    keys = mean_keys_per_query(sequence_length=s, sliding_window=seen, causal=True)
    dims = {"qk_head_dim": attention.head_dim, "v_head_dim": value_dim(attention)}
    flops = attention_core_flops(
        num_queries=share.tokens, keys_per_query=keys, num_heads=heads, **dims
    )
    moved = attention_core_bytes(
        num_queries=share.tokens,
        num_heads=heads,
        num_key_value_heads=share.key_value_heads(attention.num_key_value_heads),
        **dims,
    )
    time = share.setting.machine.attention_time(
        flops,
        moved,
        share.sequences,
        heads,
        s,
        attention.head_dim,
        kernels=share.setting.framework.execution.attention_kernels,
    )
    return time, flops


def _unfused(share: Share, attention: AttentionSpec) -> tuple[FloatArray, FloatArray]:
    """Seconds of the forward pass and its FLOPs; zero where all attention is fused."""
    if np.all(share.flash_attention):
        return np.zeros(()), np.zeros(())
    s = share.setting.workload.sequence_length
    machine = share.setting.machine
    heads = attention.num_attention_heads / share.tensor_parallel
    batch = share.sequences * heads
    scores = _batched_product(share, batch * s, s, attention.head_dim, attention)
    values = _batched_product(share, batch * s, value_dim(attention), s, attention)
    passes = share.setting.framework.execution.softmax_passes
    softmax = machine.memory_time(
        unfused_softmax_bytes(
            sequences=share.sequences,
            num_heads=heads,
            sequence_length=s,
            passes=passes + _FALLBACK_PASSES * _falls_back(share, attention),
        )
    )
    flops = attention_core_flops(
        num_queries=share.tokens,
        keys_per_query=s,
        num_heads=heads,
        qk_head_dim=attention.head_dim,
        v_head_dim=value_dim(attention),
    )
    return scores + values + softmax, flops


def _batched_product(
    share: Share, rows: FloatArray, columns: int, depth: int, attention: AttentionSpec
) -> FloatArray:
    """Seconds of the products of all heads, on tensor cores where the size of a head suits them."""
    machine = share.setting.machine
    time = machine.gemm_time(rows, columns, depth, machine.sixteen_bit)
    if attention.head_dim % share.setting.framework.execution.head_dim_multiple == 0:
        return time
    return np.maximum(time, machine.vector_product_time(rows, columns, depth))


def _ring_exchange(share: Share, attention: AttentionSpec, core: Operator) -> Operator:
    """Keys and values go round the context-parallel ring behind the attention core."""
    machine, overlap = share.setting.machine, share.setting.framework.overlap
    c = share.context_parallel
    heads = share.key_value_heads(attention.num_key_value_heads)
    block = 2.0 * share.tokens * heads * (attention.head_dim + value_dim(attention))
    distance = share.tensor_parallel * c - 1
    forward = (c - 1) * machine.send_time(block, distance)
    backward = 2 * forward
    hide = {"interference": overlap.interference}
    return Operator(
        name="attention_context_parallel",
        module="attention",
        part="context_parallel",
        forward=np.asarray(exposed_time(communication=forward, computation=core.forward, **hide)),
        backward=np.asarray(
            exposed_time(communication=backward, computation=core.backward, **hide)
        ),
        flops=np.zeros(()),
        selective=np.where(share.flash_attention, 0.0, 1.0),
    )
