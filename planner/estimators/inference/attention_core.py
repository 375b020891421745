"""Softmax attention in prefill and decode, and the cache it reads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.enums import AttentionKernels
from planner.estimators.inference.context import BatchShare, ServingInputs
from planner.estimators.inference.operators import LayerContext, StepOperator
from planner.estimators.kernel_work import scan_work
from planner.formulas.attention import attention_core_bytes, attention_core_flops
from planner.formulas.memory import kv_cache_bytes_per_token, mla_kv_cache_bytes_per_token
from planner.layers.model import Layer
from planner.layers.operators import AttentionCore, IndexScores, Scan

_INDEX_BYTES = 1.0  # DeepSeek's are in 8 bit
_PLAIN_INDEX_BYTES = 2.0


def index_bytes(op: AttentionCore) -> float:
    """Bytes of an indexer's key of one token, or of one entry, in the cache."""
    return (_INDEX_BYTES if op.latent_width else _PLAIN_INDEX_BYTES) * op.index_dim


def cached_bytes(rank: BatchShare, op: AttentionCore | None) -> FloatArray:
    """Return KV-cache bytes per token and layer of one sequence on one rank.

    What sees later tokens, too, is computed at once and keeps none.
    """
    if op is None or not op.causal:
        return np.zeros(())
    if op.latent_width:
        latent = mla_kv_cache_bytes_per_token(
            kv_lora_rank=op.latent_rank,
            qk_rope_head_dim=op.rope_dim,
            element_bytes=rank.cache_bytes,
        )
        # With compressed entries the indexer has one key per entry.
        return latent if op.compress_ratio else latent + index_bytes(op)
    return index_bytes(op) + kv_cache_bytes_per_token(
        key_value_heads=rank.key_value_heads(op.key_value_heads),
        qk_head_dim=op.qk_dim,
        v_head_dim=op.v_dim,
        element_bytes=rank.cache_bytes,
    )


def visible_tokens(rank: BatchShare, context: Numeric, op: AttentionCore) -> FloatArray:
    """Cached tokens that a query attends to: at most a window, or the chosen tokens or entries."""
    limit = window(rank.inputs, op) or op.index_topk or np.inf
    return np.minimum(context, limit) + op.compressed_keys(context)


def window(inputs: ServingInputs, op: AttentionCore) -> int | None:
    """Most tokens of a sequence that the cache stores; None if unlimited."""
    has_window = inputs.engine.sliding_windows or op.compress_ratio
    return op.sliding_window if has_window else None


def attention_core(
    context: LayerContext, op: AttentionCore, layer: Layer
) -> Iterator[StepOperator]:
    """Yield attention kernels: fused for prompts, and reading the KV cache for decoding."""
    yield _prefill(context, op)
    yield _decode(context, op)


def index_scores(context: LayerContext, op: IndexScores, layer: Layer) -> Iterator[StepOperator]:
    """Yield the indexer scores that choose cached tokens for sparse attention."""
    rank, batch = context.rank, context.rank.batch
    d, prompt, decoding = op.head_dim, rank.prompt_tokens, rank.decoding
    pairs = prompt * batch.prefill_keys + decoding * batch.tokens_per_sequence * batch.context
    pairs = pairs / op.compress_ratio
    moved = _INDEX_BYTES * d * (decoding * batch.context + prompt) / op.compress_ratio
    machine = context.kernels.machine
    flops = 2.0 * op.heads * d * pairs
    read = context.elementwise(op.name, op.module, num_bytes=moved + 8.0 * pairs)
    time = np.maximum(read.time, machine.peak_time(flops))
    yield StepOperator(name=op.name, module=op.module, time=time, flops=flops)


def _prefill(context: LayerContext, op: AttentionCore) -> StepOperator:
    """Return the attention kernel over the prompt tokens of a serving step."""
    rank, batch = context.rank, context.rank.batch
    heads = op.heads / rank.configurations.tensor_parallel
    tokens = rank.prompt_tokens
    prompts = batch.prompts * rank.prompt_share
    dims = {"qk_head_dim": op.qk_dim, "v_head_dim": op.v_dim}
    keys = batch.prefill_keys if op.causal else 2 * batch.prefill_keys - 1
    flops = attention_core_flops(
        num_queries=tokens, keys_per_query=visible_tokens(rank, keys, op), num_heads=heads, **dims
    )
    moved = attention_core_bytes(
        num_queries=tokens,
        num_heads=heads,
        num_key_value_heads=rank.key_value_heads(op.key_value_heads),
        **dims,
    )
    cached = prompts * batch.prefill_cached * cached_bytes(rank, op)
    time = context.kernels.prefill_attention(
        flops=flops,
        num_bytes=moved + cached,
        prompts=prompts,
        heads=heads,
        queries=tokens / np.maximum(prompts, 1e-9),
        head_dim=op.qk_dim,
    )
    return StepOperator(name="attention_prefill", module=op.module, time=time, flops=flops)


def _decode(context: LayerContext, op: AttentionCore) -> StepOperator:
    """Return the attention kernel over the decoding sequences of a serving step."""
    rank, batch = context.rank, context.rank.batch
    heads = op.heads / rank.configurations.tensor_parallel
    sequences = rank.decoding
    queries = sequences * batch.tokens_per_sequence
    keys = visible_tokens(rank, batch.context, op)
    qk, v, group = op.qk_dim, op.v_dim, heads / rank.key_value_heads(op.key_value_heads)
    if op.latent_width:
        qk, v, group = op.latent_width, op.latent_rank, np.ones(())
    flops = attention_core_flops(
        num_queries=queries, keys_per_query=keys, num_heads=heads, qk_head_dim=qk, v_head_dim=v
    )
    attended = cached_bytes(rank, op) - (0.0 if op.compress_ratio else index_bytes(op))
    time = context.kernels.decode_attention(
        sequences=sequences,
        context=keys,
        cache_bytes_per_token=attended * (1 - rank.configurations.kv_offload),
        heads=heads,
        group=group,
        query_bytes=2.0 * queries * heads * (qk + v),
        flops=flops,
        cache=rank.configurations.kv_cache,
    )
    unpacking = context.kernels.cache_unpacking(sequences * keys * attended, rank.cache_bytes)
    return StepOperator(
        name="attention_decode", module=op.module, time=time + unpacking, flops=flops
    )


_STATE_BYTES = 4.0


def state_bytes(rank: BatchShare, op: Scan | None) -> FloatArray:
    """Return bytes per layer of one sequence's linear-attention state on one rank."""
    if op is None:
        return np.zeros(())
    held = _STATE_BYTES * op.state + 2.0 * op.taps * op.mixed
    return np.asarray(held / rank.configurations.tensor_parallel)


def scan(context: LayerContext, op: Scan, layer: Layer) -> Iterator[StepOperator]:
    """Yield the scan over prompts, and one recurrence step for decoding."""
    yield _prompt_scan(context, op)
    rank = context.rank
    # Every sequence that decodes reads and writes its state.
    tokens = rank.decoding * rank.batch.tokens_per_sequence
    states = 2.0 * rank.decoding * state_bytes(rank, op)
    moved = states + 6.0 * tokens * op.mixed / rank.configurations.tensor_parallel
    yield context.elementwise("state_update", op.module, num_bytes=moved, kernels=2)


def _prompt_scan(context: LayerContext, op: Scan) -> StepOperator:
    """Return the scan over prompts, with one stored state per prompt."""
    rank, batch, t = context.rank, context.rank.batch, context.rank.configurations.tensor_parallel
    tokens = rank.prompt_tokens
    prompts = batch.prompts * rank.prompt_share
    flops, moved = scan_work(op, tokens, t)
    moved = moved + 2.0 * prompts * state_bytes(rank, op)
    if op.by_channel:
        read = context.elementwise(op.name, op.module, num_bytes=moved)
        time = np.maximum(read.time, context.kernels.machine.vector_time(flops))
        return StepOperator(name=op.name, module=op.module, time=time, flops=flops)
    time = context.kernels.prompt_kernel(
        flops=flops,
        num_bytes=moved,
        prompts=prompts,
        heads=op.heads / t,
        queries=tokens / np.maximum(prompts, 1e-9),
        head_dim=op.value_dim,
        kernels=AttentionKernels.PORTABLE,
    )
    return StepOperator(name=op.name, module=op.module, time=time, flops=flops)
