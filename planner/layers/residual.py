"""What stands around blocks: norms and sums, streams, embeddings of each layer of its own.

Alternating updates are streams of which a layer computes one [3]_, with a learned residual beside
it [4]_; embeddings of layers gate a projection behind their blocks [5]_.

References
----------
.. [3] C. Baykal et al., "Alternating updates for efficient transformers," 2023, NeurIPS, section 3.
.. [4] transformers 5.24.0, models/gemma3n/modeling_gemma3n.py: Gemma3nTextAltUp,
   Gemma3nTextLaurelBlock, Gemma3nTextModel.
.. [5] transformers 5.24.0, models/gemma4/modeling_gemma4.py: Gemma4TextModel.get_per_layer_inputs
   and project_per_layer_inputs, Gemma4TextDecoderLayer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.layers.operators import (
    Element,
    Elementwise,
    Holder,
    Lookup,
    Op,
    Product,
    Split,
    Spread,
    kept,
    plain,
    whole,
)
from planner.specs.model import LayerGroup, ModelSpec

RMS_NORM = (18, 42)
"""Forward 18: a copy in fp32 3, its square 4, the mean 2, the product with the inverse root 4, the
cast 3, the product with the weights 2 [1]_. Backward 42: the weights and what they multiply 6, a
cast 3, the product 4, the gradient of the root 8, that of the square 12, their sum 6, a cast 3."""

ROTARY = (10, 10)
"""Casts 3 and 3, and a complex product 4 [2]_; two products, a negated half, a concatenation and a
sum are as many [1]_."""

GATED = (5, 9)
"""A function of the gate 2, its product with the other half 3; backward three kernels of 3 [1]_."""


def norm(name: str, width: int, sets: int, bias: bool, blocks: tuple[str, ...] = ()) -> Elementwise:
    """A norm with so many sets of weights in all, of one number per channel, or two with bias.

    RMS norms have no bias [1]_; PyTorch has one kernel of the others. Eager kernels keep the input
    in fp32 and the normed numbers in place of the input in 16 bit. A layer with more norms than
    blocks has several sets in one. ``blocks``: the feed-forward that it stands before, as
    recomputation calls it.

    References
    ----------
    .. [1] B. Zhang and R. Sennrich, "Root mean square layer normalization," 2019,
       arXiv:1910.07467, equation 4.
    """
    own = kept(width, Element.RESIDUAL, Spread.TOKENS)
    in_fp32 = kept(width, Element.FP32, Spread.TOKENS, ("layernorm", *blocks), eager=True)
    keeps = (own,) if bias else (own, in_fp32)
    return Elementwise(
        name=name,
        module="norm",
        columns=plain(width),
        spread=Spread.TOKENS,
        forward=2,
        backward=3,
        eager=None if bias else RMS_NORM,
        weights=norm_weights(width, sets, bias),
        holder=Holder.NORMS,
        repeated_by=("layernorm", *blocks),
        in_feed_forward=bool(blocks),
        keeps=keeps if sets else (),
    )


def norm_weights(width: int, sets: int, bias: bool) -> int:
    """Parameters of so many norms."""
    return sets * width * (2 if bias else 1)


def residual(name: str, width: int) -> Elementwise:
    """Adding what a block made to what it read, after dropout if there is one."""
    return Elementwise(
        name=name,
        module="residual",
        columns=plain(width),
        spread=Spread.TOKENS,
        forward=3,
        backward=3,
        keeps=(kept(width, Element.DROPOUT_MASK, Spread.TOKENS),),
    )


def streams(name: str, width: int, number: int) -> Iterator[Op]:
    """What makes the input of a block of several residual streams; nothing where there is one.

    A projection of all n streams gives n weights of what enters the block, n of what leaves it, and
    n^2 that mix the streams [1]_. A fused kernel reads the streams and writes the input; behind the
    block, it reads streams and output and writes streams. The gradient reads and writes each of
    these twice.

    References
    ----------
    .. [1] Z. Xie et al., "mHC: Manifold-constrained hyper-connections," 2025, arXiv:2512.24880,
       equations 7-9 and section 4.3; biases and scales as in transformers 5.24.0,
       DeepseekV4HyperConnection.
    """
    if number == 1:
        return
    mixes = (2 + number) * number
    yield _mixes(name, width, number, mixes, weights=mixes + 3)
    forward = 3 * number + 2
    yield Elementwise(
        name=f"{name}_mixed",
        module="residual_streams",
        columns=plain(width),
        spread=Spread.TOKENS,
        forward=forward,
        backward=2 * forward,
        keeps=(kept((number - 1) * width, Element.RESIDUAL, Spread.TOKENS),),
    )


def sources(name: str, width: int, number: int) -> Iterator[Op]:
    """What makes the input of a block of sums of blocks before it; nothing where there is none.

    Each sum is normed and scored by one vector, and they are added up by the softmax of these
    scores [1]_. A fused kernel reads them once and writes the input; the gradient reads and writes
    each of them. Sums are kept once for many layers, which is too little to count.

    References
    ----------
    .. [1] Kimi team, "Attention residuals," 2026, arXiv:2603.15031, block attention residuals;
       weights as the tensors of moonshotai/Kimi-K3: a norm and a vector before each block.
    """
    if not number:
        return
    yield Elementwise(
        name=name,
        module="residual_streams",
        columns=plain(width),
        spread=Spread.TOKENS,
        forward=number + 1,
        backward=2 * (number + 1),
        weights=2 * width,
        holder=Holder.NORMS,
    )


def one_of_streams(width: int, number: int) -> Iterator[Op]:
    """What makes one stream of several after the last layer; nothing where there is one."""
    if number == 1:
        return
    yield _mixes("final_streams", width, number, number, weights=number + 1)


def _mixes(name: str, width: int, number: int, mixes: int, weights: int) -> Product:
    return Product(
        name=name,
        module="residual_streams",
        depth=number * width,
        columns=plain(mixes),
        split=Split.NONE,
        rows=Spread.TOKENS,
        weights=weights,
        holder=Holder.NORMS,
        sharded=False,
        sixteen_bit=True,
        reads="residual_streams",
    )


def added(name: str, width: int, number: int) -> Iterator[Op]:
    """The residual after a block; of several streams it is part of what mixes them."""
    if number == 1:
        yield residual(name, width)


def predicted(h: int, number: int) -> Iterator[Op]:
    """Every stream as a mix of all of them, by weights of the one that is computed [4]_."""
    if number < 2:
        return
    yield _product("altup_router", h, number, weights=h)
    yield _product("altup_prediction", number, number**2)
    yield _mixed("altup_predicted", h, number)


def corrected(h: int, number: int) -> Iterator[Op]:
    """What the layer changed, added to every stream by weights of the result [4]_."""
    if number < 2:
        return
    yield replace(_product("altup_router_of_result", h, number), tied=True)
    yield _product("altup_correction", number, number, weights=h)
    yield _mixed("altup_corrected", h, number)


def altup_ends(name: str, h: int, number: int) -> Iterator[Op]:
    """The projections that make other streams of the first, or one of all."""
    if number > 1:
        yield replace(_product(name, h, (number - 1) * h), holder=Holder.FEED_FORWARD)


def laurel(h: int, group: LayerGroup) -> Iterator[Op]:
    """A product of low rank with the input of the attention, and a norm behind it [4]_."""
    if rank := group.laurel_rank:
        yield _product("laurel_down", h, rank)
        yield replace(_product("laurel_up", rank, h), keeps=(kept(rank, spread=Spread.TOKENS),))
        yield norm("laurel_norm", h, 1, bias=False)


def _product(name: str, depth: int, columns: int, weights: int = 0) -> Product:
    """A product that every rank computes of the tokens it holds."""
    found = whole(name, "residual_streams", depth, columns, Holder.NORMS, name)
    return replace(found, weights=weights, sharded=False, sixteen_bit=True)


def _mixed(name: str, h: int, number: int) -> Elementwise:
    """A fused kernel that reads all streams and writes them; its gradient does so twice."""
    return Elementwise(
        name=name,
        module="residual_streams",
        columns=plain(h),
        spread=Spread.TOKENS,
        forward=2 * number,
        backward=4 * number,
        keeps=(kept((number - 1) * h, Element.RESIDUAL, Spread.TOKENS),),
    )


def per_layer_embedding(model: ModelSpec) -> Iterator[Op]:
    """One table of the inputs of all layers, and the projection of the embedding that is added."""
    width = model.per_layer_inputs
    if not width:
        return
    yield Lookup(
        name="per_layer_embedding",
        module="embedding",
        columns=plain(width),
        spread=Spread.TOKENS,
        forward=2,
        backward=5,
        weights=model.vocab_size_per_layer_input * width,
        holder=Holder.EMBEDDING,
        sharded=True,
    )
    each = max(group.hidden_size_per_layer_input for group in model.layer_groups)
    yield Product(
        name="per_layer_projection",
        module="embedding",
        depth=model.hidden_size,
        columns=plain(width),
        weights=each,
        holder=Holder.FEED_FORWARD,
        reads="embedding",
    )


def per_layer_block(h: int, group: LayerGroup) -> Iterator[Op]:
    """Down to the width of the layer's input, times this input, back, and a norm."""
    width = group.hidden_size_per_layer_input
    if not width:
        return
    yield _whole("per_layer_gate", h, width, h)
    yield Elementwise(
        name="per_layer_activation",
        module="activation",
        columns=plain(width),
        spread=Spread.TENSOR,
        forward=3,
        backward=5,
        eager=GATED,
        keeps=(kept(2 * width),),
    )
    yield _whole("per_layer_output", width, h, width)
    yield norm("per_layer_norm", h, 1, bias=False)


def _whole(name: str, depth: int, columns: int, keeps: int) -> Product:
    """A projection that every rank has whole."""
    found = whole(name, "feed_forward", depth, columns, Holder.FEED_FORWARD, name)
    return replace(found, sharded=False, keeps=(kept(keeps, spread=Spread.TOKENS),))
