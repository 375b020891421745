"""Operators of the attention block in prefill and decode."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.arrays import FloatArray, Numeric
from planner.enums import AttentionKind, PositionEmbedding
from planner.estimators.inference.kernels import SIXTEEN_BIT
from planner.estimators.inference.linear_attention import linear_attention_operators
from planner.estimators.inference.operators import LayerContext, StepOperator
from planner.estimators.inference.setting import Rank, ServingSetting
from planner.formulas.attention import attention_core_bytes, attention_core_flops
from planner.formulas.kv_cache import cache_bytes_per_token, latent_cache_bytes_per_token
from planner.specs.model import AttentionSpec, LayerGroup

_INDEX_BYTES = 1.0


def attention_block(layer: LayerContext, group: LayerGroup) -> Iterator[StepOperator]:
    """From the norm before the attention to the sum over the tensor-parallel ranks."""
    rank = layer.rank
    if not (attention := group.attention):
        return
    own = rank.tokens * rank.hidden_size
    yield layer.elementwise("attention_norm", "norm", num_bytes=8.0 * own)
    if attention.has_state:
        yield from linear_attention_operators(layer, attention)
    else:
        yield from _projections(layer, attention)
        yield from _rotary(layer, attention)
        yield from _indexer(layer, attention)
        yield _prefill_core(layer, attention)
        yield _decode_core(layer, attention)
        yield layer.linear(
            "attention_output",
            "attention_output",
            rows=rank.tokens,
            columns=rank.hidden_size,
            depth=attention.num_attention_heads * value_dim(attention) / _tp(rank),
        )
    if not (group.parallel_residual and rank.setting.engine.execution.joined_all_reduce):
        yield layer.tensor_all_reduce("attention")


def value_dim(attention: AttentionSpec) -> int:
    """Size of a value head."""
    return attention.v_head_dim or attention.head_dim


def cached_bytes(rank: Rank, attention: AttentionSpec | None) -> FloatArray:
    """Bytes of one token of one sequence in this rank's cache of one layer."""
    if attention is None or attention.has_state:
        return np.zeros(())
    if attention.kind is AttentionKind.LATENT:
        latent = latent_cache_bytes_per_token(
            kv_lora_rank=attention.kv_lora_rank,
            qk_rope_head_dim=attention.qk_rope_head_dim,
            element_bytes=rank.cache_bytes,
        )
        return latent + _INDEX_BYTES * attention.index_head_dim
    return cache_bytes_per_token(
        key_value_heads=rank.key_value_heads(attention.num_key_value_heads),
        qk_head_dim=attention.head_dim,
        v_head_dim=value_dim(attention),
        element_bytes=rank.cache_bytes,
    )


def visible(rank: Rank, context: Numeric, attention: AttentionSpec) -> FloatArray:
    """Cached tokens that a query attends to: at most a window, or the chosen ones."""
    limit = window(rank.setting, attention) or attention.index_topk or np.inf
    return np.minimum(context, limit)


def window(setting: ServingSetting, attention: AttentionSpec) -> int | None:
    """Tokens that the cache of a sequence keeps at most."""
    return attention.sliding_window if setting.engine.sliding_windows else None


def _tp(rank: Rank) -> FloatArray:
    return rank.configurations.tensor_parallel


def _projections(layer: LayerContext, attention: AttentionSpec) -> Iterator[StepOperator]:
    rank, t = layer.rank, _tp(layer.rank)
    a, d, dv = attention.num_attention_heads, attention.head_dim, value_dim(attention)
    h = rank.hidden_size
    if attention.kind is AttentionKind.LATENT:
        yield from _latent_projections(layer, attention)
        return
    gate = a * dv if attention.attn_output_gate else 0
    keys_and_values = rank.key_value_heads(attention.num_key_value_heads) * (d + dv)
    columns = (a * d + gate) / t + keys_and_values
    yield layer.linear("qkv", "qkv", rows=rank.tokens, columns=columns, depth=h)
    yield from _adapters(layer, columns)


def _latent_projections(layer: LayerContext, attention: AttentionSpec) -> Iterator[StepOperator]:
    """Prompts expand the latent; decoding folds the expansion into queries and outputs."""
    rank, t, h = layer.rank, _tp(layer.rank), layer.rank.hidden_size
    a, d, dv = attention.num_attention_heads, attention.head_dim, value_dim(attention)
    rank_q, rank_kv = attention.q_lora_rank, attention.kv_lora_rank
    rope = attention.qk_rope_head_dim
    down = rank_kv + rope + rank_q
    yield layer.linear("qkv_down", "qkv", rows=rank.tokens, columns=down, depth=h)
    yield layer.linear("q_up", "qkv", rows=rank.tokens, columns=a * d / t, depth=rank_q or h)
    prompt = rank.prompt_tokens
    decoded = rank.tokens - prompt
    yield layer.linear("kv_up", "qkv", rows=prompt, columns=a * (d - rope + dv) / t, depth=rank_kv)
    for name, width in (("absorb_keys", d - rope), ("absorb_values", dv)):
        yield layer.linear(
            name,
            "qkv",
            rows=decoded,
            columns=a / t * width,
            depth=rank_kv,
            quantization=SIXTEEN_BIT,
        )


def _adapters(layer: LayerContext, columns: Numeric) -> Iterator[StepOperator]:
    """Low-rank adapters beside the query, key and value projections."""
    adapter = layer.rank.setting.workload.lora_rank
    if not adapter:
        return
    rank = layer.rank
    sizes = (("lora_down", adapter, rank.hidden_size), ("lora_up", columns, adapter))
    for name, wide, deep in sizes:
        yield layer.linear(
            name, "lora", rows=rank.tokens, columns=wide, depth=deep, quantization=SIXTEEN_BIT
        )


def _rotary(layer: LayerContext, attention: AttentionSpec) -> Iterator[StepOperator]:
    """Rotation of queries and keys, in one kernel with the write to the cache."""
    rank = layer.rank
    if rank.setting.model.position_embedding is not PositionEmbedding.ROTARY:
        return
    rotated = attention.qk_rope_head_dim or attention.head_dim
    heads = attention.num_attention_heads / _tp(rank)
    written = cached_bytes(rank, attention)
    moved = rank.tokens * (4.0 * heads * rotated + 2.0 * written)
    yield layer.elementwise("rope", "rope", num_bytes=moved)


def _indexer(layer: LayerContext, attention: AttentionSpec) -> Iterator[StepOperator]:
    """Scores that choose which cached tokens sparse attention reads."""
    if not attention.index_topk:
        return
    rank, heads, d = layer.rank, attention.index_n_heads, attention.index_head_dim
    depth = attention.q_lora_rank or rank.hidden_size
    yield layer.linear("index_q", "indexer", rows=rank.tokens, columns=heads * d, depth=depth)
    batch = rank.batch
    decoding = rank.decoding
    prompt = rank.prompt_tokens
    pairs = prompt * batch.prefill_keys + decoding * batch.tokens_per_sequence * batch.context
    moved = _INDEX_BYTES * d * (decoding * batch.context + prompt)
    peak = layer.kernels.machine.peak(layer.kernels.machine.sixteen_bit)
    scores = 2.0 * heads * d * pairs / peak
    read = layer.elementwise("index_scores", "indexer", num_bytes=moved + 8.0 * pairs)
    yield StepOperator(
        name=read.name,
        module=read.module,
        time=np.maximum(read.time, scores),
        flops=2.0 * heads * d * pairs,
    )


def _prefill_core(layer: LayerContext, attention: AttentionSpec) -> StepOperator:
    rank, batch = layer.rank, layer.rank.batch
    heads = attention.num_attention_heads / _tp(rank)
    tokens = rank.prompt_tokens
    prompts = batch.prompts * rank.prompt_share
    dims = {"qk_head_dim": attention.head_dim, "v_head_dim": value_dim(attention)}
    flops = attention_core_flops(
        num_queries=tokens,
        keys_per_query=visible(rank, batch.prefill_keys, attention),
        num_heads=heads,
        **dims,
    )
    moved = attention_core_bytes(
        num_queries=tokens,
        num_heads=heads,
        num_key_value_heads=rank.key_value_heads(attention.num_key_value_heads),
        **dims,
    )
    cached = prompts * batch.prefill_cached * cached_bytes(rank, attention)
    time = layer.kernels.prefill_attention(
        flops=flops,
        num_bytes=moved + cached,
        prompts=prompts,
        heads=heads,
        queries=tokens / np.maximum(prompts, 1e-9),
        head_dim=attention.head_dim,
    )
    return StepOperator(name="attention_prefill", module="attention", time=time, flops=flops)


def _decode_core(layer: LayerContext, attention: AttentionSpec) -> StepOperator:
    rank, batch = layer.rank, layer.rank.batch
    heads = attention.num_attention_heads / _tp(rank)
    sequences = rank.decoding
    queries = sequences * batch.tokens_per_sequence
    context = visible(rank, batch.context, attention)
    qk, v = attention.head_dim, value_dim(attention)
    if attention.kind is AttentionKind.LATENT:
        qk, v = attention.kv_lora_rank + attention.qk_rope_head_dim, attention.kv_lora_rank
        group: Numeric = 1.0
    else:
        group = heads / rank.key_value_heads(attention.num_key_value_heads)
    flops = attention_core_flops(
        num_queries=queries, keys_per_query=context, num_heads=heads, qk_head_dim=qk, v_head_dim=v
    )
    indexed = _INDEX_BYTES * attention.index_head_dim
    time = layer.kernels.decode_attention(
        sequences=sequences,
        context=context,
        cache_bytes_per_token=(cached_bytes(rank, attention) - indexed)
        * (1 - rank.configurations.kv_offload),
        heads=heads,
        group=group,
        query_bytes=2.0 * queries * heads * (qk + v),
        flops=flops,
        cache=rank.configurations.kv_cache,
    )
    held = sequences * context * (cached_bytes(rank, attention) - indexed)
    unpacking = layer.kernels.cache_unpacking(held, rank.cache_bytes)
    return StepOperator(
        name="attention_decode", module="attention", time=time + unpacking, flops=flops
    )
