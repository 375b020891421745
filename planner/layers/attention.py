"""Attention as operators: multi-head, grouped-query, latent, sparse, linear and state-space.

Compressed attention caches one head that is both keys and values, and summaries of it. Queries
come from a latent. A query attends to near tokens within a window. Far tokens are summarized: each
run of tokens has one entry, and an indexer may choose among the entries. Heads leave through a
projection that is block-diagonal in groups of heads [10]_.

References
----------
.. [1] J. Ainslie et al., "GQA: Training generalized multi-query transformer models from
   multi-head checkpoints," 2023, arXiv:2305.13245, section 2.2.
.. [2] DeepSeek-AI, "DeepSeek-V2: A strong, economical, and efficient mixture-of-experts language
   model," 2024, arXiv:2405.04434, equations 37-47.
.. [3] DeepSeek-AI, "DeepSeek-V3.2: Pushing the frontier of open large language models," 2025,
   arXiv:2512.02556, equation 1.
.. [4] Z. Qiu et al., "Gated attention for large language models: Non-linearity, sparsity, and
   attention-sink-free," 2025, arXiv:2505.06708, section 2.2.
.. [5] transformers 5.24.0, models/minimax_m3_vl/modeling_minimax_m3_vl.py, MiniMaxM3VLIndexer.
.. [6] Kimi team, "Kimi Linear: An expressive, efficient attention architecture," 2025,
   arXiv:2510.26692, section 4; sizes as in transformers 5.24.0, KimiLinearDeltaAttention.
.. [7] transformers 5.24.0, models/lfm2/modeling_lfm2.py, Lfm2ShortConv.
.. [8] A. Gu and T. Dao, "Mamba: Linear-time sequence modeling with selective state spaces," 2023,
   arXiv:2312.00752, section 3; sizes as in transformers 5.24.0, MambaMixer.
.. [9] transformers 5.24.0, models/falcon_h1/modeling_falcon_h1.py, FalconH1DecoderLayer.
.. [10] DeepSeek-AI, "DeepSeek-V4," 2026, sections 2.3.1 and 2.3.2, as transformers 5.24.0 has it in
   models/deepseek_v4/modeling_deepseek_v4.py.
.. [11] StepFun, "Step-3 is large yet affordable: Model-system co-design for cost-effective
   decoding," 2025, arXiv:2507.19427, section 2.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.base.enums import AdapterTargets, AttentionKind
from planner.base.software_enums import CONTEXT, OUT_PROJ, QKV_PROJ
from planner.layers.feed_forward import (
    GATED,
    ROTARY,
    added,
    altup_predict,
    laurel,
    norm,
    sources,
    streams,
)
from planner.layers.operators import (
    AttentionCore,
    BlockExchange,
    ColumnPart,
    Columns,
    Element,
    Elementwise,
    HeadExchange,
    IndexScores,
    LayerOperator,
    MatrixProduct,
    MatrixSplit,
    ParameterPart,
    RankSpread,
    SavedTensor,
    Scan,
    Weights,
    columns,
    even_columns,
    saved_tensor,
    unsharded_product,
)
from planner.specs.attention import AttentionSpec
from planner.specs.model import LayerGroup


def linear_attention(h: int, attention: AttentionSpec) -> Iterator[LayerOperator]:
    """Yield linear attention: projection, convolution, scan, gated norm, output."""
    scan = scan_of(attention)
    yield MatrixProduct(
        name="linear_qkvz",
        module="qkv",
        depth=h,
        columns=columns(
            ColumnPart(name="qkvz", count=scan.projected, adapter=AdapterTargets.ATTENTION)
        ),
        holder=ParameterPart.ATTENTION,
        reads="residual",
        keeps=(saved_tensor(h, Element.ATTENTION_INPUT, RankSpread.TOKENS, ("layernorm",)),),
        makes=QKV_PROJ,
    )
    yield from _gates(attention)
    if scan.taps:
        # One filter per channel over the taps, with a bias in Mamba.
        weights = scan.mixed * (scan.taps + (0 if scan.delta_rule else 1))
        yield _elementwise("convolution", scan.mixed, 2, 4, weights, kept_width=scan.projected)
    if scan.by_channel:
        yield from _time_steps(scan, attention.linear_gate_rank)
    yield scan
    if not scan.by_channel:
        # The delta net has one norm for all heads, others one per head.
        normed = scan.value_dim if scan.delta_rule else scan.values
        yield _elementwise("gated_norm", scan.values, 3, 5, normed, kept_width=scan.values)
    yield _attention_output(h, scan.values)
    yield HeadExchange(
        name="attention_context_parallel",
        module="attention",
        columns=even_columns(scan.projected + scan.values),
    )


def _gates(attention: AttentionSpec) -> Iterator[LayerOperator]:
    """Yield the low-rank projections for decay and output gate per channel [6]_."""
    rank, heads = attention.linear_gate_rank, attention.linear_num_value_heads
    if not rank or attention.kind is AttentionKind.MAMBA1:
        return
    latents = {"decay_up": attention.linear_key_head_dim}
    latents |= {} if attention.linear_full_gate else {"gate_up": attention.linear_value_head_dim}
    for name, width in latents.items():
        yield MatrixProduct(
            name=name,
            module="qkv",
            depth=rank,
            columns=columns(ColumnPart(name=name, count=heads, width=width)),
            holder=ParameterPart.ATTENTION,
            reads=name,
            keeps=(saved_tensor(rank, spread=RankSpread.TOKENS),),
        )


def _time_steps(scan: Scan, rank: int) -> Iterator[LayerOperator]:
    """Yield Mamba-1's projections to keys, queries and time steps [8]_.

    Ranks add up the former, which is too little to count as an exchange.
    """
    yield MatrixProduct(
        name="scan_inputs",
        module="qkv",
        depth=scan.mixed,
        columns=even_columns(rank + 2 * scan.keys),
        split=MatrixSplit.ROWS,
        holder=ParameterPart.ATTENTION,
        reads="mixed",
        keeps=(saved_tensor(scan.mixed),),
    )
    yield MatrixProduct(
        name="time_steps",
        module="qkv",
        depth=rank,
        columns=even_columns(scan.values),
        bias=scan.values,
        holder=ParameterPart.ATTENTION,
        reads="time_step_latent",
        keeps=(saved_tensor(rank + 2 * scan.keys, spread=RankSpread.TOKENS),),
    )


def short_convolution(h: int, attention: AttentionSpec) -> Iterator[LayerOperator]:
    """Yield a gated short convolution over the last tokens [7]_."""
    yield MatrixProduct(
        name="convolution_in",
        module="qkv",
        depth=h,
        columns=columns(ColumnPart(name="in", count=3 * h, adapter=AdapterTargets.ATTENTION)),
        holder=ParameterPart.ATTENTION,
        reads="residual",
        keeps=(block_input(h),),
        makes=QKV_PROJ,
    )
    weights = h * attention.linear_conv_kernel_dim
    # Both gates and the input are read; forward two products and the filters between them.
    yield _elementwise("convolution", h, 4, 8, weights, kept_width=3 * h)
    yield _attention_output(h, h)


def scan_of(attention: AttentionSpec) -> Scan:
    """Return the scan operator of linear attention or Mamba.

    With a decay per channel biases are per channel, too [6]_. Mamba-1 has decays of each number of
    the state and a skip per channel; lightning attention has no weights.
    """
    kind, heads = attention.kind, attention.linear_num_value_heads
    by_channel = attention.linear_gate_rank or attention.linear_channel_decay
    weights = {
        AttentionKind.LINEAR: heads * (attention.linear_key_head_dim + 1 if by_channel else 2),
        AttentionKind.MAMBA1: heads * (attention.linear_key_head_dim + 1),
        AttentionKind.MAMBA2: 3 * heads,
    }
    return Scan(
        name="linear_scan",
        module="attention",
        heads=heads,
        key_heads=attention.linear_num_key_heads,
        key_dim=attention.linear_key_head_dim,
        value_dim=attention.linear_value_head_dim,
        taps=attention.linear_conv_kernel_dim,
        projected=attention.linear_projected,
        delta_rule=kind is AttentionKind.LINEAR,
        by_channel=kind is AttentionKind.MAMBA1,
        weights=weights.get(kind, 0),
        holder=ParameterPart.ATTENTION,
        sharded=True,
        keeps=(saved_tensor(attention.linear_mixed),),
        makes=CONTEXT,
    )


def _elementwise(
    name: str, width: int, forward: int, backward: int, weights: int, kept_width: int
) -> Elementwise:
    """Return an element-wise operator; ``forward``, ``backward``: tensors read or written."""
    return Elementwise(
        name=name,
        module="attention",
        columns=even_columns(width),
        spread=RankSpread.TENSOR,
        forward=forward,
        backward=backward,
        weights=weights,
        holder=ParameterPart.ATTENTION,
        sharded=True,
        keeps=(saved_tensor(kept_width),),
    )


def attention_block(h: int, group: LayerGroup, rotary: bool) -> Iterator[LayerOperator]:
    """Yield a layer's attention block from norm to residual; none without attention."""
    if not (attention := group.attention):
        return
    has_all_norms = group.parallel_residual or not group.feed_forward
    sets = group.norms_per_layer - (0 if has_all_norms else group.norms_per_layer // 2)
    yield from streams("attention_streams", h, group.residual_streams)
    yield from sources("attention_sources", h, group.residual_sources)
    yield from altup_predict(h, group.altup_num_inputs)
    yield norm("attention_norm", h, sets, group.norm_bias)
    yield from laurel(h, group)
    for mixer in group.mixers:
        if mixer.kind is AttentionKind.CONVOLUTION:
            inside = short_convolution(h, mixer)
        elif mixer.has_state:
            inside = linear_attention(h, mixer)
        elif mixer.kind is AttentionKind.COMPRESSED:
            inside = compressed_attention(h, mixer, block_input(h), rotary)
        else:
            inside = _softmax_attention(h, mixer, rotary)
        if mixer is not attention:
            # It reads an input that the attention saves already [9]_.
            inside = (
                replace(
                    op,
                    name=op.name.replace("attention", "state"),
                    keeps=tuple(k for k in op.keeps if k.element is not Element.ATTENTION_INPUT),
                )
                for op in inside
            )
        yield from map(_in_attention, inside)
    yield from added("attention_residual", h, group.residual_streams)
    yield _in_attention(
        BlockExchange(name="attention_tensor_parallel", module="attention", makes=OUT_PROJ)
    )


def _in_attention(op: LayerOperator) -> LayerOperator:
    """Return the operator marked as recomputed with the attention module."""
    keeps = tuple(
        each if "layernorm" in each.remade_by else each.also_by("attention") for each in op.keeps
    )
    return replace(op, keeps=keeps, repeated_by=("attention", *op.repeated_by))


def value_dim(attention: AttentionSpec) -> int:
    """Size of a value head."""
    return attention.v_head_dim or attention.head_dim


def _softmax_attention(h: int, attention: AttentionSpec, rotary: bool) -> Iterator[LayerOperator]:
    """Yield softmax attention from the projections to the output projection."""
    values = attention.num_attention_heads * value_dim(attention)
    is_latent = attention.kind is AttentionKind.LATENT
    yield from (_latent if is_latent else _projections)(h, attention)
    if rotary:
        yield _rotary(attention, is_latent)
    yield from _indexer(h, attention)
    yield _core(attention, is_latent)
    if attention.attn_output_gate:
        yield Elementwise(
            name="output_gate",
            module="attention",
            columns=even_columns(values),
            spread=RankSpread.TENSOR,
            forward=3,
            backward=5,
            eager=GATED,
            keeps=(saved_tensor(2 * values), saved_tensor(values, eager=True)),
        )
    yield _attention_output(h, values, bias=h if attention.output_bias else 0)


def _attention_output(h: int, width: int, *, bias: int = 0, reads: str = "values") -> MatrixProduct:
    """Return the output projection from all heads' values to the residual stream."""
    return MatrixProduct(
        name="attention_output",
        module="attention_output",
        depth=width,
        columns=columns(ColumnPart(name="output", count=h, adapter=AdapterTargets.ATTENTION)),
        split=MatrixSplit.ROWS,
        bias=bias,
        holder=ParameterPart.ATTENTION,
        reads=reads,
        keeps=(saved_tensor(width),),
        makes=OUT_PROJ,
    )


def block_input(h: int) -> SavedTensor:
    """The normed input of an attention block, which its projections need."""
    return saved_tensor(h, Element.ATTENTION_INPUT, RankSpread.TOKENS, ("layernorm",))


def _projections(h: int, attention: AttentionSpec) -> Iterator[LayerOperator]:
    """Yield query, key and value projections as one product [1]_, with output gate [4]_.

    Low-rank queries come from a latent (multi-matrix factorization attention [11]_).
    """
    a, g, d = attention.num_attention_heads, attention.num_key_value_heads, attention.head_dim
    parts = [
        ColumnPart(name="q", count=a, width=d, adapter=AdapterTargets.QUERY_VALUE),
        ColumnPart(name="k", count=g, width=d, copied=True, adapter=AdapterTargets.ATTENTION),
        ColumnPart(name="v", count=g, width=d, copied=True, adapter=AdapterTargets.QUERY_VALUE),
    ]
    if attention.shares_cache:
        parts, g = parts[:1], 0
    if attention.q_lora_rank:
        yield from _low_rank_queries(h, attention)
        parts = parts[1:]
    if attention.attn_output_gate:
        parts.append(ColumnPart(name="gate", count=a, width=d))
    yield MatrixProduct(
        name="qkv",
        module="qkv",
        depth=h,
        columns=Columns(tuple(parts)),
        bias=(a + 2 * g) * d if attention.qkv_bias else 0,
        holder=ParameterPart.ATTENTION,
        reads="residual",
        joined=len(parts) if attention.q_lora_rank else 3 if g else 1,
        keeps=(block_input(h),),
        makes=QKV_PROJ,
    )
    heads_normed = (a + g) if attention.qk_norm_per_head else 2 if g else 1
    normed = d * heads_normed if attention.qk_norm else 0
    sinks = a if attention.sinks else 0
    if normed + sinks:
        yield Weights(
            name="head_norms",
            module="attention",
            weights=normed + sinks,
            holder=ParameterPart.ATTENTION,
            sharded=True,
        )


def _low_rank_queries(h: int, attention: AttentionSpec) -> Iterator[LayerOperator]:
    """Yield the projection of queries, by way of a normed latent if they have one."""
    rank, read = attention.q_lora_rank, (block_input(h),)
    if rank:
        yield down("q_down", h, rank, read)
    yield MatrixProduct(
        name="q_up",
        module="qkv",
        depth=rank or h,
        columns=columns(
            ColumnPart(
                name="q",
                count=attention.num_attention_heads,
                width=attention.head_dim,
                adapter=AdapterTargets.QUERY_VALUE,
            )
        ),
        weights=rank,
        holder=ParameterPart.ATTENTION,
        reads="query_latent",
        repeated_by=("mla_up_proj",),
        keeps=(saved_tensor(rank, spread=RankSpread.TOKENS),) if rank else read,
        makes=QKV_PROJ,
    )


def _latent(h: int, attention: AttentionSpec) -> Iterator[LayerOperator]:
    """Yield MLA's projections to latents, their norms, and projections up to heads [2]_."""
    a, d, rope = attention.num_attention_heads, attention.head_dim, attention.qk_rope_head_dim
    rank_kv = attention.kv_lora_rank
    up = d - rope + value_dim(attention)
    yield from _low_rank_queries(h, attention)
    if not attention.shares_cache:
        yield down("kv_down", h, rank_kv + rope, ())
    yield MatrixProduct(
        name="kv_up",
        module="qkv",
        depth=rank_kv,
        columns=columns(
            ColumnPart(name="kv", count=a, width=up, adapter=AdapterTargets.QUERY_VALUE)
        ),
        weights=0 if attention.shares_cache else rank_kv,
        holder=ParameterPart.ATTENTION,
        reads="key_latent",
        repeated_by=("mla_up_proj",),
        keeps=(saved_tensor(rank_kv + rope, spread=RankSpread.TOKENS),),
        makes=QKV_PROJ,
    )
    if attention.attn_output_gate:
        gate = ColumnPart(name="gate", count=a, width=value_dim(attention))
        yield MatrixProduct(
            name="gate_projection",
            module="qkv",
            depth=h,
            columns=columns(gate),
            holder=ParameterPart.ATTENTION,
            reads="residual",
        )


def _rotary(attention: AttentionSpec, is_latent: bool) -> LayerOperator:
    """Return the rotary embedding of queries and keys."""
    rotated = attention.qk_rope_head_dim or attention.head_dim
    parts = [ColumnPart(name="q", count=attention.num_attention_heads, width=rotated)]
    if not (is_latent or attention.shares_cache):
        heads = attention.num_key_value_heads
        parts.append(ColumnPart(name="k", count=heads, width=rotated, copied=True))
    return Elementwise(
        name="rope",
        module="rope",
        columns=Columns(tuple(parts)),
        spread=RankSpread.TENSOR,
        forward=2,
        backward=2,
        eager=ROTARY,
        makes=QKV_PROJ,
    )


def _indexer(h: int, attention: AttentionSpec) -> Iterator[LayerOperator]:
    """Yield the indexer of sparse attention [3]_; none in layers that share another's keys.

    Queries come from the query latent; one key head has a layer norm with a bias; each query head
    has a weight per token. Without a latent queries come from the residual stream, and queries and
    keys have a norm each, as those of MiniMax-M3 [5]_.
    """
    if not attention.index_n_heads:
        return
    heads, d = attention.index_n_heads, attention.index_head_dim
    is_latent = attention.kind is AttentionKind.LATENT
    yield MatrixProduct(
        name="index_q",
        module="indexer",
        depth=attention.q_lora_rank or h,
        columns=columns(ColumnPart(name="index", count=heads, width=d)),
        split=MatrixSplit.NONE,
        holder=ParameterPart.ATTENTION,
        reads="query_latent" if attention.q_lora_rank else "residual",
    )
    yield IndexScores(
        name="index_scores",
        module="indexer",
        heads=heads,
        head_dim=d,
        compress_ratio=attention.index_kpool or 1,
        weights=h * d + 2 * d + (h * heads if is_latent else 0),
        holder=ParameterPart.ATTENTION,
        sharded=True,
    )


def _core(attention: AttentionSpec, is_latent: bool) -> AttentionCore:
    """Return the attention core (scores, softmax, values) with its saved tensors."""
    a, g = attention.num_attention_heads, attention.num_key_value_heads
    d, dv = attention.head_dim, value_dim(attention)
    read = columns(
        ColumnPart(name="q", count=a, width=d),
        ColumnPart(name="kv", count=g, width=d + dv, copied=True),
    )
    return AttentionCore(
        name="attention_core",
        module="attention",
        heads=a,
        key_value_heads=g,
        qk_dim=d,
        v_dim=dv,
        latent_width=attention.kv_lora_rank + attention.qk_rope_head_dim if is_latent else 0,
        rope_dim=attention.qk_rope_head_dim,
        sliding_window=attention.sliding_window,
        index_topk=attention.index_topk,
        index_dim=attention.index_head_dim // (attention.index_kpool or 1),
        shares_cache=attention.shares_cache,
        causal=attention.causal,
        sinks=attention.sinks,
        keeps=(
            saved_tensor(read, remade_by=("mla_up_proj",) if is_latent else ()),
            saved_tensor(a, Element.STATISTIC),
            saved_tensor(a, Element.SCORE, remade_by=("core_attn",)),
        ),
        makes=CONTEXT,
    )


def compressed_attention(
    h: int, attention: AttentionSpec, read: SavedTensor, rotary: bool
) -> Iterator[LayerOperator]:
    """Yield compressed attention from projections to output; ``read``: its input."""
    a, d, rank = attention.num_attention_heads, attention.head_dim, attention.q_lora_rank
    yield down("q_down", h, rank, (read,))
    yield MatrixProduct(
        name="q_up",
        module="qkv",
        depth=rank,
        columns=columns(ColumnPart(name="q", count=a, width=d, adapter=AdapterTargets.QUERY_VALUE)),
        weights=rank,
        holder=ParameterPart.ATTENTION,
        reads="query_latent",
        keeps=(saved_tensor(rank, spread=RankSpread.TOKENS),),
        makes=QKV_PROJ,
    )
    yield down("kv_down", h, d, ())
    yield from _compressor(h, attention)
    if rotary:
        yield Elementwise(
            name="rope",
            module="rope",
            columns=columns(ColumnPart(name="q", count=a, width=attention.qk_rope_head_dim)),
            spread=RankSpread.TENSOR,
            # Rotation of queries, and inverse rotation of outputs, since the values are keys.
            forward=4,
            backward=4,
            eager=ROTARY,
            makes=QKV_PROJ,
        )
    yield from _compressed_indexer(h, attention)
    yield _compressed_core(attention)
    yield from _output(h, attention)


def down(name: str, h: int, width: int, keeps: tuple[SavedTensor, ...] = ()) -> MatrixProduct:
    """A projection to a latent: each rank makes all of it, of the tokens it holds."""
    return replace(
        unsharded_product(name, "qkv", h, width, ParameterPart.ATTENTION, "residual"), keeps=keeps
    )


def _compressor(h: int, attention: AttentionSpec) -> Iterator[LayerOperator]:
    """Yield the products that compress runs of tokens to one key-value entry."""
    d, ratio = attention.head_dim, attention.compress_ratio
    norms = d + (attention.num_attention_heads if attention.sinks else 0)
    if ratio:
        # Runs overlap where an indexer chooses.
        wide = (2 if attention.index_topk else 1) * d
        yield down("compress_down", h, 2 * wide, ())
        norms += ratio * wide + d
        if attention.index_topk:
            yield down("index_down", h, 2 * 2 * attention.index_head_dim, ())
    yield Weights(
        name="head_norms",
        module="attention",
        weights=norms,
        holder=ParameterPart.ATTENTION,
        sharded=True,
    )


def _compressed_indexer(h: int, attention: AttentionSpec) -> Iterator[LayerOperator]:
    """Yield the indexer over compressed entries, with separate compressed keys."""
    if not attention.index_topk:
        return
    heads, d = attention.index_n_heads, attention.index_head_dim
    yield MatrixProduct(
        name="index_q",
        module="indexer",
        depth=attention.q_lora_rank,
        columns=columns(ColumnPart(name="index", count=heads, width=d)),
        split=MatrixSplit.NONE,
        holder=ParameterPart.ATTENTION,
        reads="query_latent",
    )
    yield IndexScores(
        name="index_scores",
        module="indexer",
        heads=heads,
        head_dim=d,
        compress_ratio=attention.compress_ratio,
        weights=attention.compress_ratio * 2 * d + d + h * heads,
        holder=ParameterPart.ATTENTION,
        sharded=True,
    )


def _compressed_core(attention: AttentionSpec) -> AttentionCore:
    """Return the attention core over compressed keys, where one latent is both key and value."""
    a, d = attention.num_attention_heads, attention.head_dim
    return AttentionCore(
        name="attention_core",
        module="attention",
        heads=a,
        key_value_heads=1,
        qk_dim=d,
        v_dim=d,
        latent_width=d,
        sliding_window=attention.sliding_window,
        index_topk=attention.index_topk,
        index_dim=attention.index_head_dim,
        compress_ratio=attention.compress_ratio,
        keeps=(
            saved_tensor(
                columns(
                    ColumnPart(name="q", count=a, width=d), ColumnPart(name="kv", count=1, width=d)
                )
            ),
            saved_tensor(a, Element.STATISTIC),
            saved_tensor(a, Element.SCORE, remade_by=("core_attn",)),
        ),
        makes=CONTEXT,
    )


def _output(h: int, attention: AttentionSpec) -> Iterator[LayerOperator]:
    """Yield the grouped output projection: heads to group outputs, then to the residual."""
    values = attention.num_attention_heads * attention.head_dim
    groups, rank = attention.o_groups, attention.o_lora_rank
    yield MatrixProduct(
        name="output_down",
        module="attention_output",
        depth=values // groups,
        columns=columns(ColumnPart(name="groups", count=groups, width=rank)),
        holder=ParameterPart.ATTENTION,
        reads="values",
        keeps=(saved_tensor(values),),
    )
    yield _attention_output(h, groups * rank, reads="output_groups")
