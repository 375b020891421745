"""The core of attention in training and serving: scores and values, scans, indexers, and the cache.

In training fused kernels, or products and a softmax, with ring context parallelism; in serving a
fused kernel for prompts, and one that reads the cache for sequences that decode.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.enums import AttentionKernels, ContextExchange
from planner.base.software_enums import AttentionKernel
from planner.estimators.inference.batch_share import BatchShare, ServingInputs
from planner.estimators.kernel_work import rates, scan_work
from planner.estimators.machine import CommunicationGroup
from planner.estimators.operators import Operator, make_operator
from planner.estimators.training.compilation import layer_launch_time
from planner.estimators.training.micro_batch_share import MicroBatchShare
from planner.formulas.attention import (
    attention_core_bytes,
    attention_core_flops,
    mean_keys_per_query,
    unfused_softmax_bytes,
)
from planner.formulas.collectives import exposed_time
from planner.formulas.memory import kv_cache_bytes_per_token, mla_kv_cache_bytes_per_token
from planner.layers.model import Layer
from planner.layers.operators import AttentionCore, IndexScores, Scan

# Casts to fp32 and back, scale, mask and softmax move 36 bytes per score where the fused kernel
# moves 4; they are 5 kernels more than the about 18 of a layer.
_FALLBACK_PASSES = 16.0
_FALLBACK_LAUNCHES = 5 / 18
_STREAMS = 2.0
# Gemma 7B under masks of padding on A100, H100 and RTX PRO 6000 (0.39, 0.31 and 0.23, measured by
# universal-llm-trainer); Gemma 2 9B gives 0.37, 0.32 and 0.24.
_SPILLED_BACKWARD = 0.3
_MASKED_WIDTHS = 64, 128
# Two outputs are read in 16 bit, and their sum is written.
_MERGE_BYTES = 6.0
_BACKWARD_FLOPS = 2.5  # FlashAttention-2 recomputes the scores: five products for two
# The backward pass makes the states again, then as many products for each gradient.
_SCAN_BACKWARD = 2.5
_STATE_BYTES = 4.0
_INDEX_BYTES = 1.0  # DeepSeek's are in 8 bit
_PLAIN_INDEX_BYTES = 2.0


def fused_work(
    *,
    tokens: Numeric,
    keys: Numeric,
    heads: Numeric,
    key_value_heads: Numeric,
    qk_dim: int,
    v_dim: int,
    element_bytes: Numeric = 2,
) -> tuple[FloatArray, FloatArray]:
    """Return forward FLOPs and bytes of a fused attention kernel; ``keys``: that a query sees."""
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


def training_attention(
    share: MicroBatchShare, op: AttentionCore, layer: Layer
) -> Iterator[Operator]:
    """Yield scores, softmax and weighted values of attention, with ring context parallelism.

    An indexer learns from the scores of the keys that it chose, which are made again for its loss
    (arXiv:2512.02556, section 2.1.1).
    """
    machine, fused = share.machine, share.flash_attention
    gpu = machine.gpu.efficiency
    rate_forward, rate_backward = rates(
        gpu, share.attention_kernel, share.execution.attention_kernels
    )
    fused_forward, flops = _fused_attention(share, op, rate_forward)
    unfused_forward, unfused_flops = _unfused_attention(share, op)
    machine.unused(~fused, "attention")
    slowdown = gpu.attention_backward_fraction * rate_backward / rate_forward
    slowdown = slowdown * _spilled(share, op)
    faster_forward, faster_backward = machine.fp8_attention_rates(share.fp8_attention)
    fused_backward = _BACKWARD_FLOPS * fused_forward / slowdown
    fused_forward = fused_forward / faster_forward
    if op.index_topk and any(layer.of(IndexScores)):
        _, qk_dim, v_dim = _kernel_heads(op)
        fused_forward = fused_forward * (1 + qk_dim / (qk_dim + v_dim))
    core = make_operator(
        op,
        forward=np.where(fused, fused_forward, unfused_forward),
        backward=np.where(fused, fused_backward / faster_backward, 2 * unfused_forward),
        flops=np.where(fused, flops, unfused_flops),
        parts={"core_attn": np.where(fused, 0.0, 1.0)},
    )
    yield core
    if np.any(share.context_parallel > 1):
        yield _merge(share, op)
    yield _ring_exchange(share, op, core)


def serving_attention(share: BatchShare, op: AttentionCore, layer: Layer) -> Iterator[Operator]:
    """Yield attention kernels: fused for prompts, and reading the KV cache for decoding."""
    yield _prefill(share, op)
    yield _decode(share, op)
    if share.inputs.workload.decode_context_parallel > 1:
        yield _decode_exchange(share, op)
    if np.any(share.configurations.context_parallel > 1):
        yield _prompt_exchange(share, op)


def training_index_scores(
    share: MicroBatchShare, op: IndexScores, layer: Layer
) -> Iterator[Operator]:
    """Yield the indexer scores of sparse attention, over all keys before each query.

    Every rank scores with all heads of the indexer; its gradient does so twice.
    """
    s = share.sequence_length
    keys = mean_keys_per_query(sequence_length=s, sliding_window=s, causal=True)
    keys = keys / op.compress_ratio
    flops = 2.0 * op.heads * op.head_dim * share.tokens * keys
    written = share.machine.memory_time(8.0 * share.tokens * keys, kernels=2)
    time = np.maximum(share.machine.peak_time(flops / share.rate_in_32_bits), written)
    yield make_operator(op, time, 2 * time, flops)


def serving_index_scores(share: BatchShare, op: IndexScores, layer: Layer) -> Iterator[Operator]:
    """Yield the indexer scores that choose cached tokens for sparse attention."""
    batch, d = share.batch, op.head_dim
    prompt, decoding = share.prompt_tokens, share.decoding
    pairs = prompt * batch.prefill_keys + decoding * batch.tokens_per_sequence * batch.context
    pairs = pairs / op.compress_ratio
    moved = _INDEX_BYTES * d * (decoding * batch.context + prompt) / op.compress_ratio
    flops = 2.0 * op.heads * d * pairs
    read = share.elementwise_time(moved + 8.0 * pairs)
    yield make_operator(op, np.maximum(read, share.machine.peak_time(flops)), flops=flops)


def training_scan(share: MicroBatchShare, op: Scan, layer: Layer) -> Iterator[Operator]:
    """Yield the scan of linear attention or a state-space layer over the sequence."""
    flops, moved = scan_work(op, share.tokens, share.tensor_parallel)
    machine = share.machine
    if op.by_channel:
        forward = np.maximum(machine.vector_time(flops), machine.memory_time(moved))
    else:
        forward = machine.kernels.attention(
            flops,
            moved,
            share.sequences,
            op.heads / share.tensor_parallel,
            share.sequence_length,
            op.value_dim,
            rate=machine.attention_rate(AttentionKernels.PORTABLE) * share.rate_in_32_bits,
        )
    yield make_operator(op, forward, _SCAN_BACKWARD * forward, flops)


def serving_scan(share: BatchShare, op: Scan, layer: Layer) -> Iterator[Operator]:
    """Yield the scan over prompts with one stored state each, and one step for decoding."""
    tokens, t = share.prompt_tokens, share.tensor_parallel
    prompts = share.batch.prompts * share.prompt_share
    flops, moved = scan_work(op, tokens, t)
    moved = moved + 2.0 * prompts * state_bytes(share, op)
    if op.by_channel:
        read = share.elementwise_time(moved)
        time = np.maximum(read, share.machine.vector_time(flops))
    else:
        time = share.kernels.prompt_kernel(
            flops=flops,
            num_bytes=moved,
            prompts=prompts,
            heads=op.heads / t,
            queries=tokens / np.maximum(prompts, 1e-9),
            head_dim=op.value_dim,
            kernels=AttentionKernels.PORTABLE,
        )
    yield make_operator(op, time, flops=flops)
    # Every sequence that decodes reads and writes its state.
    tokens = share.decoding * share.batch.tokens_per_sequence
    states = 2.0 * share.decoding * state_bytes(share, op)
    moved = states + 6.0 * tokens * op.mixed / t
    yield share.elementwise("state_update", op.module, num_bytes=moved, kernels=2)


def softmax_launches(share: MicroBatchShare, core: AttentionCore | None) -> Numeric:
    """Return forward host seconds to launch a softmax that is not fused into one kernel."""
    if core is None:
        return 0.0
    extra = _FALLBACK_LAUNCHES * layer_launch_time(share)
    return np.where(share.flash_attention, 0.0, extra * _falls_back(share, core))


def _falls_back(share: MicroBatchShare, op: AttentionCore) -> FloatArray:
    """1 where the unfused attention has no softmax kernel for its sizes, else 0."""
    matrices = share.sequences * op.heads / share.tensor_parallel
    return np.where(np.mod(matrices, share.execution.softmax_multiple) != 0, 1.0, 0.0)


def _fused_attention(
    share: MicroBatchShare, op: AttentionCore, rate: Numeric
) -> tuple[FloatArray, FloatArray]:
    """Return forward seconds and FLOPs of fused attention; ``rate``: relative to measured.

    Kernels of sparse attention have one latent of a key for all heads, so that latent attention
    is not expanded, and work on all chosen keys of a query, those before the first token too [1]_.
    Under a dense mask a kernel knows no diagonal and no window: it scores all pairs [2]_, and reads
    the mask for each head.

    References
    ----------
    .. [1] NVIDIA/cudnn-frontend, deepseek_sparse_attention: 576 numbers of a key and 512 of a
       value for DeepSeek-V3.2; pull requests 318 and 817: FLOPs of all ``topk``.
    .. [2] huggingface/transformers 4.49, modeling_attn_mask_utils.py, _ignore_causal_mask_sdpa: a
       mask with padding is passed on, and is_causal is not; pytorch 2.10,
       aten/src/ATen/native/transformers/sdp_utils_cpp.h, check_for_attn_mask: FlashAttention
       takes none.
    """
    s = share.sequence_length
    is_masked = share.attention_kernel == AttentionKernel.MASKED
    heads = op.heads / share.tensor_parallel
    key_value_heads, qk_dim, v_dim = _kernel_heads(op)
    if op.index_topk:
        keys = _chosen_keys(s, op)
    else:
        keys = mean_keys_per_query(
            sequence_length=s, sliding_window=op.most_keys or s, causal=op.causal
        )
        keys = np.where(is_masked, s, keys)
        if op.compress_ratio:
            entries = np.asarray(s) / op.compress_ratio
            keys = keys + mean_keys_per_query(
                sequence_length=entries, sliding_window=entries, causal=True
            )
    flops, moved = fused_work(
        tokens=share.tokens,
        keys=keys,
        heads=heads,
        key_value_heads=share.key_value_heads(key_value_heads),
        qk_dim=qk_dim,
        v_dim=v_dim,
        element_bytes=share.number_bytes,
    )
    steps, heads_at_once = _ring_step(share, heads)

    def seconds(flops: FloatArray, moved: FloatArray, width: int) -> FloatArray:
        return steps * share.machine.kernels.attention(
            flops / steps,
            moved / steps,
            share.sequences,
            heads_at_once,
            s,
            width,
            rate=rate * share.rate_in_32_bits,
        )

    time = seconds(flops, moved, qk_dim)
    if np.any(is_masked):
        pairs = share.tokens * s * heads
        masked = masked_work(flops, moved, pairs, head_dim=qk_dim, element_bytes=share.number_bytes)
        time = np.where(is_masked, seconds(*masked), time)
    return time, flops


def masked_work(
    flops: FloatArray,
    moved: FloatArray,
    pairs: Numeric,
    *,
    head_dim: int,
    element_bytes: Numeric = 2,
) -> tuple[FloatArray, FloatArray, int]:
    """Return FLOPs, bytes and head width of a kernel that reads a mask for ``pairs`` of tokens.

    It computes heads of up to 64 or 128 numbers as of that many (pytorch 2.10,
    aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernels/generate_kernels.py).
    """
    width = next((width for width in _MASKED_WIDTHS if head_dim <= width), head_dim)
    return flops * (width / head_dim), moved + element_bytes * pairs, width


def _spilled(share: MicroBatchShare, op: AttentionCore) -> FloatArray:
    """Return the speed of a backward pass under a mask over that of heads that fit registers.

    On GPUs with 99 KiB of shared memory for a block the kernel has blocks of 64, else of 128
    (pytorch 2.10, mem_eff_attention/kernels/generate_kernels.py: ``output_in_rf``).
    """
    row = share.machine.gpu.efficiency.attention_kernels.get(AttentionKernel.MASKED.word)
    fits = row is None or max(op.qk_dim, op.v_dim) <= row.register_width
    is_masked = share.attention_kernel == AttentionKernel.MASKED
    return np.where(is_masked & (not fits), _SPILLED_BACKWARD, 1.0)


def _kernel_heads(op: AttentionCore) -> tuple[int, int, int]:
    """Return the heads of keys of a fused training kernel, numbers of a key, and of a value."""
    if op.index_topk and op.latent_width:
        return 1, op.latent_width, op.latent_rank
    return op.key_value_heads, op.qk_dim, op.v_dim


def _chosen_keys(sequence_length: Numeric, op: AttentionCore) -> FloatArray:
    """Return the keys that a kernel of sparse attention reads for a query, masked ones too."""
    if not op.compress_ratio:
        return np.asarray(np.minimum(sequence_length, float(op.index_topk)))
    window = np.minimum(sequence_length, float(op.sliding_window or 0))
    return np.asarray(window + op.compressed_keys(sequence_length))


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
    time = merges * share.machine.memory_time(each)
    return Operator(
        name="attention_ring_merge",
        module="attention",
        forward=time,
        backward=time,
        repeated_by=op.repeated_by,
    )


def _unfused_attention(share: MicroBatchShare, op: AttentionCore) -> tuple[FloatArray, FloatArray]:
    """Return forward seconds and FLOPs of unfused attention; 0 where all is fused."""
    if np.all(share.flash_attention):
        return np.zeros(()), np.zeros(())
    s = share.sequence_length
    heads = op.heads / share.tensor_parallel
    batch = share.sequences * heads
    scores = _batched_product(share, batch * s, s, op.qk_dim, op)
    values = _batched_product(share, batch * s, op.v_dim, s, op)
    passes = share.execution.softmax_passes
    softmax = share.machine.memory_time(
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
    machine = share.machine
    time = machine.gemm_time(rows, columns, depth, share.unquantized, share.number_bytes)
    if op.qk_dim % share.execution.head_dim_multiple == 0:
        return time
    return np.maximum(time, machine.vector_product_time(rows, columns, depth))


def _ring_exchange(share: MicroBatchShare, op: AttentionCore, core: Operator) -> Operator:
    """Return the exchange of keys and values around the context-parallel ring, if unhidden."""
    machine, overlap = share.machine, share.overlap
    c = share.context_parallel
    block = share.number_bytes * share.tokens * op.key_value_columns.on_rank(share.tensor_parallel)
    distance = share.tensor_parallel * c - 1
    forward = (c - 1) * machine.send_time(block, distance)
    trades = share.cp_comm_type == ContextExchange.A2A
    machine.unused(trades, "message")
    traded = _head_exchange(share, op) if np.any(trades & (c > 1)) else np.zeros(())
    forward, backward = (
        np.where(
            trades,
            traded,
            exposed_time(
                communication=ring, computation=computed, interference=overlap.interference
            ),
        )
        for ring, computed in ((forward, core.forward), (2 * forward, core.backward))
    )
    return Operator(
        name="attention_context_parallel",
        module="attention",
        part="context_parallel",
        forward=forward,
        backward=backward,
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
    there, back = (
        share.machine.collective("all_to_all", share.number_bytes * share.tokens * width, group)
        for width in (read, written)
    )
    return there + back


def _prefill(share: BatchShare, op: AttentionCore) -> Operator:
    """Return the attention kernel over the prompt tokens of a serving step."""
    batch = share.batch
    keys = batch.prefill_keys if op.causal else 2 * batch.prefill_keys - 1
    begin = share.machine.mark
    time, flops = _prefill_kernel(
        share,
        op,
        keys=visible_tokens(share, keys, op),
        heads=op.heads / share.tensor_parallel,
        key_value_heads=share.key_value_heads(op.key_value_heads),
        qk_dim=op.qk_dim,
        v_dim=op.v_dim,
    )
    if op.index_topk and op.latent_width and not op.compress_ratio:
        # Prompts with no more keys than an indexer chooses have them all, by the usual kernel.
        is_sparse = 2 * batch.prefill_keys - 1 > op.index_topk
        share.machine.unused(is_sparse, since=begin)
        begin = share.machine.mark
        sparse_time, sparse_flops = _sparse_prefill(share, op)
        share.machine.unused(~is_sparse, since=begin)
        time = np.where(is_sparse, sparse_time, time)
        flops = np.where(is_sparse, sparse_flops, flops)
    return Operator(name="attention_prefill", module=op.module, forward=time, flops=flops)


def _prefill_kernel(
    share: BatchShare,
    op: AttentionCore,
    *,
    keys: Numeric,
    heads: Numeric,
    key_value_heads: Numeric,
    qk_dim: int,
    v_dim: int,
) -> tuple[FloatArray, FloatArray]:
    """Return seconds and FLOPs of one kernel over the prompt tokens and what they have cached."""
    batch, tokens = share.batch, share.prompt_tokens
    prompts = batch.prompts * share.prompt_share
    flops, moved = fused_work(
        tokens=tokens,
        keys=keys,
        heads=heads,
        key_value_heads=key_value_heads,
        qk_dim=qk_dim,
        v_dim=v_dim,
    )
    cached = prompts * batch.prefill_cached * cached_bytes(share, op)
    time = share.kernels.prefill_attention(
        flops=flops,
        num_bytes=moved + cached,
        prompts=prompts,
        heads=heads,
        queries=tokens / np.maximum(prompts, 1e-9),
        head_dim=qk_dim,
        sinks=op.sinks,
    )
    return time, flops


def _sparse_prefill(share: BatchShare, op: AttentionCore) -> tuple[FloatArray, FloatArray]:
    """Return seconds and FLOPs of the kernel of latent attention over chosen keys of prompts.

    As in training (`_fused_attention`), all heads share a latent key. Kernels compute whole blocks
    of heads, the FLOPs are those of the heads that there are.
    """
    heads = np.asarray(op.heads / share.tensor_parallel)
    block = share.kernels.sparse_heads
    padded = np.ceil(heads / block - 1e-9) * block
    time, flops = _prefill_kernel(
        share,
        op,
        keys=float(op.index_topk),
        heads=padded,
        key_value_heads=1,
        qk_dim=op.latent_width,
        v_dim=op.latent_rank,
    )
    return time, flops * (heads / padded)


def _decode(share: BatchShare, op: AttentionCore) -> Operator:
    """Return the attention kernel over the decoding sequences of a serving step."""
    heads, sequences = op.heads / share.tensor_parallel, share.decoding
    queries = sequences * share.batch.tokens_per_sequence
    keys = visible_tokens(share, share.batch.context, op)
    qk, v = _cached_dims(share, op)
    group = heads / share.key_value_heads(op.key_value_heads)
    if _caches_latent(share, op):
        qk, v, group = op.latent_width, op.latent_rank, np.ones(())
    flops = attention_core_flops(
        num_queries=queries, keys_per_query=keys, num_heads=heads, qk_head_dim=qk, v_head_dim=v
    )
    attended = cached_bytes(share, op)
    if not op.compress_ratio:
        attended = attended - index_bytes(op) / cache_shards(share, op)
    time = share.kernels.decode_attention(
        sequences=sequences,
        context=keys,
        cache_bytes_per_token=attended * (1 - share.configurations.kv_offload),
        heads=heads,
        group=group,
        query_bytes=2.0 * queries * heads * (qk + v),
        flops=flops,
        cache=share.configurations.kv_cache,
    )
    unpacking = share.kernels.cache_unpacking(sequences * keys * attended, share.cache_bytes)
    return Operator(
        name="attention_decode", module=op.module, forward=time + unpacking, flops=flops
    )


def index_bytes(op: AttentionCore) -> float:
    """Bytes of an indexer's key of one token, or of one entry, in the cache."""
    return (_INDEX_BYTES if op.latent_width else _PLAIN_INDEX_BYTES) * op.index_dim


def cached_bytes(share: BatchShare, op: AttentionCore | None) -> FloatArray:
    """Return KV-cache bytes per token and layer of one sequence on one rank.

    What sees later tokens, too, is computed at once and keeps none.
    """
    if op is None or not op.causal:
        return np.zeros(())
    shards = cache_shards(share, op)
    if _caches_latent(share, op):
        latent = mla_kv_cache_bytes_per_token(
            kv_lora_rank=op.latent_rank,
            qk_rope_head_dim=op.rope_dim,
            element_bytes=share.cache_bytes,
        )
        # With compressed entries the indexer has one key per entry.
        return (latent if op.compress_ratio else latent + index_bytes(op)) / shards
    key_dim, value_dim = _cached_dims(share, op)
    cached = index_bytes(op) + kv_cache_bytes_per_token(
        key_value_heads=share.key_value_heads(op.key_value_heads),
        qk_head_dim=key_dim,
        v_head_dim=value_dim,
        element_bytes=share.cache_bytes,
    )
    return cached / shards


def _caches_latent(share: BatchShare, op: AttentionCore) -> bool:
    """Return True if the cache holds the latent and not the keys and values expanded from it."""
    return bool(op.latent_width) and not share.inputs.engine.memory.expanded_latent_width


def _cached_dims(share: BatchShare, op: AttentionCore) -> tuple[int, int]:
    """Return the widths of a cached key and value of a head."""
    width = share.inputs.engine.memory.expanded_latent_width if op.latent_width else 0
    return (width, width) if width else (op.qk_dim, op.v_dim)


def cache_shards(share: BatchShare, op: AttentionCore) -> FloatArray:
    """Return the parts that ranks hold of a sequence's cache; at most as many as copies [1]_.

    References
    ----------
    .. [1] github.com/vllm-project/vllm/pull/23734: decode context parallelism.
    """
    heads = 1 if _caches_latent(share, op) else op.key_value_heads
    copies = np.maximum(share.tensor_parallel / heads, 1.0)
    return np.minimum(share.inputs.workload.decode_context_parallel, copies)


def _prompt_exchange(share: BatchShare, op: AttentionCore) -> Operator:
    """Return the gathering of the keys and values of the prompt tokens that other ranks compute.

    Two chunks of each prompt, one from either end, make causal work equal [1]_.

    References
    ----------
    .. [1] vllm/v1/worker/gpu/pcp_manager.py; docs.sglang.io, Prefill Context Parallelism.
    """
    ranks = share.configurations.context_parallel
    width = op.latent_width or share.key_value_heads(op.key_value_heads) * (op.qk_dim + op.v_dim)
    num_bytes = share.prompt_tokens * ranks * (2.0 * width + index_bytes(op))
    group = CommunicationGroup(size=ranks, stride=share.tensor_parallel)
    time = np.where(ranks > 1, share.machine.collective("all_gather", num_bytes, group), 0.0)
    return Operator(name="prompt_exchange", module=op.module, forward=time)


def _decode_exchange(share: BatchShare, op: AttentionCore) -> Operator:
    """Return the gathering of queries, and of outputs, of ranks that hold parts of a cache."""
    shards = cache_shards(share, op)
    heads = op.heads / share.tensor_parallel * shards
    queries = share.decoding * share.batch.tokens_per_sequence
    qk, v = (op.latent_width, op.latent_rank) if op.latent_width else (op.qk_dim, op.v_dim)
    group = CommunicationGroup(size=shards, stride=1)
    gathered = share.machine.collective("all_gather", 2.0 * queries * heads * qk, group)
    # Outputs are added in 16 bit, weighed by their sums.
    scattered = share.machine.collective("reduce_scatter", 2.0 * queries * heads * v, group)
    time = np.where(shards > 1, gathered + scattered, 0.0)
    return Operator(name="attention_decode_exchange", module=op.module, forward=time)


def visible_tokens(share: BatchShare, context: Numeric, op: AttentionCore) -> FloatArray:
    """Cached tokens that a query attends to: at most a window, or the chosen tokens or entries."""
    limit = window(share.inputs, op) or op.index_topk or np.inf
    return np.minimum(context, limit) + op.compressed_keys(context)


def window(inputs: ServingInputs, op: AttentionCore) -> int | None:
    """Most tokens of a sequence that the cache stores; None if unlimited."""
    has_window = inputs.engine.sliding_windows or op.compress_ratio
    return op.sliding_window if has_window else None


def state_bytes(share: BatchShare, op: Scan | None) -> FloatArray:
    """Return bytes per layer of one sequence's linear-attention state on one rank."""
    if op is None:
        return np.zeros(())
    held = _STATE_BYTES * op.state + 2.0 * op.taps * op.mixed
    return np.asarray(held / share.tensor_parallel)
