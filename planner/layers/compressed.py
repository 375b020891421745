"""Attention to few numbers of a token: one head that is both keys and values, and its summaries.

Queries come from a latent. What is near is attended to within a window; of what is far, each run
of tokens leaves one entry, of which an indexer may choose. Heads leave through a projection that is
diagonal in groups of them [1]_.

References
----------
.. [1] DeepSeek-AI, "DeepSeek-V4," 2026, sections 2.3.1 and 2.3.2, as transformers 5.24.0 has it in
   models/deepseek_v4/modeling_deepseek_v4.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.base.enums import AdapterTargets
from planner.base.software_enums import CONTEXT, OUT_PROJ, QKV_PROJ
from planner.layers.operators import (
    AttentionCore,
    Element,
    Elementwise,
    Holder,
    IndexScores,
    Kept,
    Op,
    Part,
    Product,
    Split,
    Spread,
    Weights,
    columns,
    kept,
    whole,
)
from planner.layers.residual import ROTARY
from planner.specs.model import AttentionSpec


def compressed_attention(
    h: int, attention: AttentionSpec, read: Kept, rotary: bool
) -> Iterator[Op]:
    """From the projections to the output; ``read`` is what the first of them keeps."""
    a, d, rank = attention.num_attention_heads, attention.head_dim, attention.q_lora_rank
    yield down("q_down", h, rank, (read,))
    yield Product(
        name="q_up",
        module="qkv",
        depth=rank,
        columns=columns(Part(name="q", count=a, width=d, adapter=AdapterTargets.QUERY_VALUE)),
        weights=rank,
        holder=Holder.ATTENTION,
        reads="query_latent",
        keeps=(kept(rank, spread=Spread.TOKENS),),
        makes=QKV_PROJ,
    )
    yield down("kv_down", h, d, ())
    yield from _compressor(h, attention)
    if rotary:
        yield Elementwise(
            name="rope",
            module="rope",
            columns=columns(Part(name="q", count=a, width=attention.qk_rope_head_dim)),
            spread=Spread.TENSOR,
            # Of queries, and back of the outputs, whose values are keys, too.
            forward=4,
            backward=4,
            eager=ROTARY,
            makes=QKV_PROJ,
        )
    yield from _indexer(h, attention)
    yield _core(attention)
    yield from _output(h, attention)


def down(name: str, h: int, width: int, keeps: tuple[Kept, ...] = ()) -> Product:
    """A projection to a latent: each rank makes all of it, of the tokens it holds."""
    return replace(whole(name, "qkv", h, width, Holder.ATTENTION, "residual"), keeps=keeps)


def _compressor(h: int, attention: AttentionSpec) -> Iterator[Op]:
    """Numbers and gates of each token, which the entry of its run is the weighted sum of."""
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
        name="head_norms", module="attention", weights=norms, holder=Holder.ATTENTION, sharded=True
    )


def _indexer(h: int, attention: AttentionSpec) -> Iterator[Op]:
    """What chooses among the entries: its keys are compressed in the same way."""
    if not attention.index_topk:
        return
    heads, d = attention.index_n_heads, attention.index_head_dim
    yield Product(
        name="index_q",
        module="indexer",
        depth=attention.q_lora_rank,
        columns=columns(Part(name="index", count=heads, width=d)),
        split=Split.NONE,
        holder=Holder.ATTENTION,
        reads="query_latent",
    )
    yield IndexScores(
        name="index_scores",
        module="indexer",
        heads=heads,
        head_dim=d,
        compress_ratio=attention.compress_ratio,
        weights=attention.compress_ratio * 2 * d + d + h * heads,
        holder=Holder.ATTENTION,
        sharded=True,
    )


def _core(attention: AttentionSpec) -> AttentionCore:
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
            kept(columns(Part(name="q", count=a, width=d), Part(name="kv", count=1, width=d))),
            kept(a, Element.STATISTIC),
            kept(a, Element.SCORE, remade_by=("core_attn",)),
        ),
        makes=CONTEXT,
    )


def _output(h: int, attention: AttentionSpec) -> Iterator[Op]:
    """Each group of heads to its own numbers, and all of these to the residual stream."""
    values = attention.num_attention_heads * attention.head_dim
    groups, rank = attention.o_groups, attention.o_lora_rank
    yield Product(
        name="output_down",
        module="attention_output",
        depth=values // groups,
        columns=columns(Part(name="groups", count=groups, width=rank)),
        holder=Holder.ATTENTION,
        reads="values",
        keeps=(kept(values),),
    )
    yield Product(
        name="attention_output",
        module="attention_output",
        depth=groups * rank,
        columns=columns(Part(name="output", count=h, adapter=AdapterTargets.ATTENTION)),
        split=Split.ROWS,
        holder=Holder.ATTENTION,
        reads="output_groups",
        keeps=(kept(groups * rank),),
        makes=OUT_PROJ,
    )
