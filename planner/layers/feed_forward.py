"""The feed-forward block and the operators around blocks: experts, norms, residual streams.

Alternating updates keep several streams and compute one per layer [3]_, with a learned residual
added [4]_. Per-layer embeddings gate a projection after the blocks [5]_.

References
----------
.. [3] C. Baykal et al., "Alternating updates for efficient transformers," 2023, NeurIPS, section 3.
.. [4] transformers 5.24.0, models/gemma3n/modeling_gemma3n.py: Gemma3nTextAltUp,
   Gemma3nTextLaurelBlock, Gemma3nTextModel.
.. [5] transformers 5.24.0, models/gemma4/modeling_gemma4.py: Gemma4TextModel.get_per_layer_inputs
   and project_per_layer_inputs, Gemma4TextDecoderLayer.
.. [6] N. Shazeer, "GLU variants improve transformer," 2020, arXiv:2002.05202, equation 6.
.. [7] A. Q. Jiang et al., "Mixtral of experts," 2024, arXiv:2401.04088, section 2.1.
.. [8] DeepSeek-AI, "DeepSeek-V3 technical report," 2024, arXiv:2412.19437, equations 13-16.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.base.enums import AdapterTargets
from planner.base.software_enums import MLPWI, MLPWO
from planner.layers.operators import (
    BlockExchange,
    ColumnPart,
    Columns,
    Element,
    Elementwise,
    ExpertBias,
    ExpertExchange,
    Experts,
    LayerOperator,
    Lookup,
    MatrixProduct,
    MatrixSplit,
    ParameterPart,
    Permute,
    RankSpread,
    Weights,
    even_columns,
    saved_tensor,
    unsharded_product,
)
from planner.specs.model import FeedForwardSpec, LayerGroup, ModelSpec

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
    """Return a normalization operator with ``sets`` sets of weights of ``width`` elements.

    RMS norms have no bias [1]_; PyTorch has one kernel of the others. Eager kernels keep the input
    in fp32 and the normed numbers in place of the input in 16 bit. A layer with more norms than
    blocks has several sets in one. ``blocks``: the feed-forward that it stands before, as
    recomputation calls it.

    References
    ----------
    .. [1] B. Zhang and R. Sennrich, "Root mean square layer normalization," 2019,
       arXiv:1910.07467, equation 4.
    """
    saved_input = saved_tensor(width, Element.RESIDUAL, RankSpread.TOKENS)
    in_fp32 = saved_tensor(
        width, Element.FP32, RankSpread.TOKENS, ("layernorm", *blocks), eager=True
    )
    keeps = (saved_input,) if bias else (saved_input, in_fp32)
    return Elementwise(
        name=name,
        module="norm",
        columns=even_columns(width),
        spread=RankSpread.TOKENS,
        forward=2,
        backward=3,
        eager=None if bias else RMS_NORM,
        weights=norm_weights(width, sets, bias),
        holder=ParameterPart.NORMS,
        repeated_by=("layernorm", *blocks),
        in_feed_forward=bool(blocks),
        keeps=keeps if sets else (),
    )


def norm_weights(width: int, sets: int, bias: bool) -> int:
    """Parameters of norms."""
    return sets * width * (2 if bias else 1)


def residual(name: str, width: int) -> Elementwise:
    """Return the residual addition of a block, with dropout if any."""
    return Elementwise(
        name=name,
        module="residual",
        columns=even_columns(width),
        spread=RankSpread.TOKENS,
        forward=3,
        backward=3,
        keeps=(saved_tensor(width, Element.DROPOUT_MASK, RankSpread.TOKENS),),
    )


def streams(name: str, width: int, number: int) -> Iterator[LayerOperator]:
    """Yield operators that mix several residual streams into a block's input; none for one.

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
        columns=even_columns(width),
        spread=RankSpread.TOKENS,
        forward=forward,
        backward=2 * forward,
        keeps=(saved_tensor((number - 1) * width, Element.RESIDUAL, RankSpread.TOKENS),),
    )


def sources(name: str, width: int, number: int) -> Iterator[LayerOperator]:
    """Yield operators that sum earlier blocks into a block's input; none if ``number`` is 0.

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
        columns=even_columns(width),
        spread=RankSpread.TOKENS,
        forward=number + 1,
        backward=2 * (number + 1),
        weights=2 * width,
        holder=ParameterPart.NORMS,
    )


def one_of_streams(width: int, number: int) -> Iterator[LayerOperator]:
    """Operators that mix several streams into one after the last layer; none for one stream."""
    if number == 1:
        return
    yield _mixes("final_streams", width, number, number, weights=number + 1)


def _mixes(name: str, width: int, number: int, mixes: int, weights: int) -> MatrixProduct:
    """Return the product that computes ``mixes`` coefficients from ``number`` residual streams."""
    return MatrixProduct(
        name=name,
        module="residual_streams",
        depth=number * width,
        columns=even_columns(mixes),
        split=MatrixSplit.NONE,
        rows=RankSpread.TOKENS,
        weights=weights,
        holder=ParameterPart.NORMS,
        sharded=False,
        sixteen_bit=True,
        reads="residual_streams",
    )


def added(name: str, width: int, number: int) -> Iterator[LayerOperator]:
    """The residual after a block; with several streams part of their mixing."""
    if number == 1:
        yield residual(name, width)


def altup_predict(h: int, number: int) -> Iterator[LayerOperator]:
    """Yield the AltUp prediction of each stream as a mix of all streams [4]_."""
    if number < 2:
        return
    yield _product("altup_router", h, number, weights=h)
    yield _product("altup_prediction", number, number**2)
    yield _mixed("altup_predicted", h, number)


def altup_correct(h: int, number: int) -> Iterator[LayerOperator]:
    """Yield the AltUp correction of each stream by the layer's output [4]_."""
    if number < 2:
        return
    yield replace(_product("altup_router_of_result", h, number), tied=True)
    yield _product("altup_correction", number, number, weights=h)
    yield _mixed("altup_corrected", h, number)


def altup_ends(name: str, h: int, number: int) -> Iterator[LayerOperator]:
    """Projections that make the other streams from the first, or one from all."""
    if number > 1:
        yield replace(_product(name, h, (number - 1) * h), holder=ParameterPart.FEED_FORWARD)


def laurel(h: int, group: LayerGroup) -> Iterator[LayerOperator]:
    """Yield the low-rank LAuReL branch parallel to attention, and its norm [4]_."""
    if rank := group.laurel_rank:
        yield _product("laurel_down", h, rank)
        yield replace(
            _product("laurel_up", rank, h), keeps=(saved_tensor(rank, spread=RankSpread.TOKENS),)
        )
        yield norm("laurel_norm", h, 1, bias=False)


def _product(name: str, depth: int, columns: int, weights: int = 0) -> MatrixProduct:
    """A product that every rank computes for its tokens."""
    product = unsharded_product(name, "residual_streams", depth, columns, ParameterPart.NORMS, name)
    return replace(product, weights=weights, sharded=False, sixteen_bit=True)


def _mixed(name: str, h: int, number: int) -> Elementwise:
    """Return a fused element-wise kernel over all streams; its backward moves twice the data."""
    return Elementwise(
        name=name,
        module="residual_streams",
        columns=even_columns(h),
        spread=RankSpread.TOKENS,
        forward=2 * number,
        backward=4 * number,
        keeps=(saved_tensor((number - 1) * h, Element.RESIDUAL, RankSpread.TOKENS),),
    )


def per_layer_embedding(model: ModelSpec) -> Iterator[LayerOperator]:
    """Yield the lookup of per-layer inputs, and the projection added to them."""
    width = model.per_layer_inputs
    if not width:
        return
    yield Lookup(
        name="per_layer_embedding",
        module="embedding",
        columns=even_columns(width),
        spread=RankSpread.TOKENS,
        forward=2,
        backward=5,
        weights=model.vocab_size_per_layer_input * width,
        holder=ParameterPart.EMBEDDING,
        sharded=True,
    )
    each = max(group.hidden_size_per_layer_input for group in model.layer_groups)
    yield MatrixProduct(
        name="per_layer_projection",
        module="embedding",
        depth=model.hidden_size,
        columns=even_columns(width),
        weights=each,
        holder=ParameterPart.FEED_FORWARD,
        reads="embedding",
    )


def per_layer_block(h: int, group: LayerGroup) -> Iterator[LayerOperator]:
    """Yield the block that gates with a per-layer input: down, multiply, up, norm."""
    width = group.hidden_size_per_layer_input
    if not width:
        return
    yield _unsharded_projection("per_layer_gate", h, width, h)
    yield Elementwise(
        name="per_layer_activation",
        module="activation",
        columns=even_columns(width),
        spread=RankSpread.TENSOR,
        forward=3,
        backward=5,
        eager=GATED,
        keeps=(saved_tensor(2 * width),),
    )
    yield _unsharded_projection("per_layer_output", width, h, width)
    yield norm("per_layer_norm", h, 1, bias=False)


def _unsharded_projection(name: str, depth: int, columns: int, keeps: int) -> MatrixProduct:
    """Return a matrix product that every tensor-parallel rank computes in full."""
    projection = unsharded_product(
        name, "feed_forward", depth, columns, ParameterPart.FEED_FORWARD, name
    )
    return replace(
        projection, sharded=False, keeps=(saved_tensor(keeps, spread=RankSpread.TOKENS),)
    )


def feed_forward_block(h: int, group: LayerGroup) -> Iterator[LayerOperator]:
    """Yield a layer's feed-forward block from norm to residual; none without one."""
    if not (feed_forward := group.feed_forward):
        return
    if not group.parallel_residual:
        sets = group.norms_per_layer if not group.attention else group.norms_per_layer // 2
        yield from map(_inside, streams("feed_forward_streams", h, group.residual_streams))
        yield from map(_inside, sources("feed_forward_sources", h, group.residual_sources))
        yield norm("feed_forward_norm", h, sets, group.norm_bias, (_module(feed_forward),))
    # A norm after the block reads the block's output.
    unread = group.norms_per_layer <= 2
    for op in _from_input_to_output(h, feed_forward):
        yield replace(
            op,
            in_feed_forward=True,
            unread=unread and op.makes == MLPWO,
            repeated_by=(_module(feed_forward), *op.repeated_by),
            keeps=tuple(each.also_by(_module(feed_forward)) for each in op.keeps),
        )
    yield from added("feed_forward_residual", h, group.residual_streams)


def _inside(op: LayerOperator) -> LayerOperator:
    return replace(op, in_feed_forward=True)


def _module(feed_forward: FeedForwardSpec) -> str:
    """Module name of the block for recomputation."""
    return "moe" if feed_forward.num_experts else "mlp"


def _from_input_to_output(h: int, feed_forward: FeedForwardSpec) -> Iterator[LayerOperator]:
    """Yield the feed-forward operators without norm and residual."""
    operators: list[LayerOperator] = []
    if feed_forward.num_experts:
        operators += _experts(h, feed_forward)
    if feed_forward.shared_width:
        for op in _dense(h, feed_forward, feed_forward.shared_width):
            if feed_forward.num_experts:  # every token visits these
                keeps = tuple(each.also_by("shared_experts") for each in op.keeps)
                repeated = ("shared_experts", *op.repeated_by)
                op = replace(op, keeps=keeps, repeated_by=repeated)
            operators.append(op)
    read = saved_tensor(h, Element.FEED_FORWARD_INPUT, RankSpread.TOKENS, ("layernorm",))
    first, *others = operators
    yield replace(first, keeps=(read, *first.keeps))
    yield from others


def _dense(h: int, feed_forward: FeedForwardSpec, width: int) -> Iterator[LayerOperator]:
    """Yield a dense feed-forward block: input matrices, activation, output matrix [6]_."""
    names = ("gate", "up") if feed_forward.gated else ("up",)
    inputs = len(names)
    adapter = AdapterTargets.ALL_LINEAR
    yield MatrixProduct(
        name="_".join(names),
        module="feed_forward",
        depth=h,
        columns=Columns(tuple(ColumnPart(name=n, count=width, adapter=adapter) for n in names)),
        bias=inputs * width if feed_forward.bias else 0,
        holder=ParameterPart.FEED_FORWARD,
        reads="feed_forward",
        joined=inputs,
        makes=MLPWI,
    )
    keeps = [saved_tensor(inputs * width, Element.ACTIVATION_INPUT)]
    if feed_forward.gated:  # eager kernels keep the function of the gate, too, for the product
        keeps.append(saved_tensor(width, remade_by=("mlp_act",), eager=True))
    yield Elementwise(
        name="activation",
        module="activation",
        columns=even_columns(width),
        spread=RankSpread.TENSOR,
        forward=inputs + 1,
        backward=2 * inputs + 1,
        eager=GATED if feed_forward.gated else None,
        keeps=tuple(keeps),
        repeated_by=("mlp_act",),
    )
    yield MatrixProduct(
        name="down",
        module="feed_forward",
        depth=width,
        columns=Columns((ColumnPart(name="down", count=h, adapter=adapter),)),
        split=MatrixSplit.ROWS,
        bias=h if feed_forward.bias else 0,
        holder=ParameterPart.FEED_FORWARD,
        reads="activation",
        keeps=(saved_tensor(width, Element.DOWN_INPUT, remade_by=("mlp_act",)),),
        makes=MLPWO,
    )
    yield BlockExchange(name="feed_forward_tensor_parallel", module="feed_forward", makes=MLPWO)


def _experts(h: int, feed_forward: FeedForwardSpec) -> Iterator[LayerOperator]:
    """Yield a mixture-of-experts block: router, dispatch, experts, combine [7]_."""
    k, width = feed_forward.num_experts_per_tok, feed_forward.expert_inputs(h)
    yield from _router(h, feed_forward)
    if feed_forward.moe_latent_size:
        yield _latent("latent_down", h, width)
        yield replace(
            _latent("latent_up", width, h), keeps=(saved_tensor(width, spread=RankSpread.TOKENS),)
        )
    yield Permute(name="permute", module="experts", columns=even_columns(width), per_token=k)
    yield _routed(feed_forward, k, width)
    if feed_forward.bias:
        yield ExpertBias(
            name="expert_bias", module="experts", columns=even_columns(width), per_token=k
        )
    yield ExpertExchange(
        name="experts_all_to_all", module="experts", columns=even_columns(width), per_token=k
    )


def _router(h: int, feed_forward: FeedForwardSpec) -> Iterator[LayerOperator]:
    """Yield the router scores of all experts, unsharded; bias for load balancing [8]_."""
    experts = feed_forward.num_experts
    yield MatrixProduct(
        name="router",
        module="router",
        depth=h,
        columns=even_columns(experts),
        split=MatrixSplit.NONE,
        rows=RankSpread.TOKENS,
        bias=experts if feed_forward.router_bias else 0,
        holder=ParameterPart.ROUTER,
        sharded=False,
        sixteen_bit=True,
        reads="feed_forward",
        # Logits and probabilities.
        keeps=(saved_tensor(2 * experts, Element.FP32, RankSpread.TOKENS),),
    )
    if feed_forward.shared_expert_gate:
        yield Weights(
            name="shared_expert_gate", module="router", weights=h, holder=ParameterPart.ROUTER
        )


def _latent(name: str, depth: int, width: int) -> MatrixProduct:
    """Return an unsharded projection to the experts' latent input or back."""
    reads = "feed_forward" if name == "latent_down" else "expert_outputs"
    return replace(
        unsharded_product(name, "experts", depth, width, ParameterPart.ROUTER, reads), sharded=False
    )


def _routed(feed_forward: FeedForwardSpec, k: int, inputs: int) -> Experts:
    """Return the matrices of the routed experts with the tensors saved for backward."""
    width, of_activation = feed_forward.moe_intermediate_size, 2 if feed_forward.gated else 1
    bias = of_activation * width + inputs if feed_forward.bias else 0
    element, spread = Element.FEED_FORWARD_INPUT, RankSpread.EXPERTS
    return Experts(
        name="experts",
        module="experts",
        num_experts=feed_forward.num_experts,
        per_token=k,
        n_group=feed_forward.n_group,
        topk_group=feed_forward.topk_group,
        depth=inputs,
        width=width,
        matrices=of_activation + 1,
        bias=bias,
        holder=ParameterPart.EXPERTS,
        keeps=(
            saved_tensor(k * inputs, element, spread),
            saved_tensor(k * inputs, Element.EXPERT_OUTPUT, spread),
            saved_tensor(k * of_activation * width, Element.ACTIVATION_INPUT, spread),
            saved_tensor(k * width, Element.DOWN_INPUT, spread, ("moe_act",)),
        ),
    )
