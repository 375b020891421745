"""Linear attention (the gated delta net [1]_) and Mamba-2 [2]_ as operators.

References
----------
.. [1] S. Yang et al., "Gated delta networks: Improving Mamba2 with delta rule," 2024,
   arXiv:2412.06464.
.. [2] T. Dao and A. Gu, "Transformers are SSMs," 2024, arXiv:2405.21060, section 7.
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.base.enums import AdapterTargets, AttentionKind
from planner.base.software_enums import CONTEXT, OUT_PROJ, QKV_PROJ
from planner.layers.operators import (
    Elementwise,
    HeadExchange,
    Holder,
    Op,
    Product,
    Scan,
    Split,
)
from planner.layers.sizes import Element, Part, Spread, columns, kept, plain
from planner.specs.model import AttentionSpec


def linear_attention(h: int, attention: AttentionSpec) -> Iterator[Op]:
    """Projection, convolution, scan, gated norm and output projection; their exchange."""
    scan = scan_of(attention)
    yield Product(
        name="linear_qkvz",
        module="qkv",
        depth=h,
        columns=columns(Part(name="qkvz", count=scan.projected, adapter=AdapterTargets.ATTENTION)),
        holder=Holder.ATTENTION,
        reads="residual",
        keeps=(kept(h, Element.ATTENTION_INPUT, Spread.TOKENS, remade=True),),
        makes=QKV_PROJ,
    )
    # One filter per channel over the taps; that of Mamba-2 has a bias.
    weights = scan.mixed * (scan.taps + (0 if scan.delta_rule else 1))
    yield _elementwise("convolution", scan.mixed, 2, 4, weights, kept_width=scan.projected)
    yield scan
    # The delta net has one norm for all heads, Mamba-2 one per head.
    normed = scan.value_dim if scan.delta_rule else scan.values
    yield _elementwise("gated_norm", scan.values, 3, 5, normed, kept_width=scan.values)
    yield Product(
        name="attention_output",
        module="attention_output",
        depth=scan.values,
        columns=columns(Part(name="output", count=h, adapter=AdapterTargets.ATTENTION)),
        split=Split.ROWS,
        holder=Holder.ATTENTION,
        reads="values",
        keeps=(kept(scan.values),),
        makes=OUT_PROJ,
    )
    yield HeadExchange(
        name="attention_context_parallel",
        module="attention",
        columns=plain(scan.projected + scan.values),
    )


def scan_of(attention: AttentionSpec) -> Scan:
    """The scan alone: decay and step bias per head, and a skip in Mamba-2."""
    delta_rule = attention.kind is AttentionKind.LINEAR
    heads = attention.linear_num_value_heads
    return Scan(
        name="linear_scan",
        module="attention",
        heads=heads,
        key_heads=attention.linear_num_key_heads,
        key_dim=attention.linear_key_head_dim,
        value_dim=attention.linear_value_head_dim,
        taps=attention.linear_conv_kernel_dim,
        projected=attention.linear_projected,
        delta_rule=delta_rule,
        weights=(2 if delta_rule else 3) * heads,
        holder=Holder.ATTENTION,
        sharded=True,
        keeps=(kept(attention.linear_mixed),),
        makes=CONTEXT,
    )


def _elementwise(
    name: str, width: int, forward: int, backward: int, weights: int, kept_width: int
) -> Elementwise:
    return Elementwise(
        name=name,
        module="attention",
        columns=plain(width),
        spread=Spread.TENSOR,
        forward=forward,
        backward=backward,
        weights=weights,
        holder=Holder.ATTENTION,
        sharded=True,
        keeps=(kept(kept_width),),
    )
