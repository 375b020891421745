"""The feed-forward block as operators: dense, shared experts, routed experts.

References
----------
.. [1] N. Shazeer, "GLU variants improve transformer," 2020, arXiv:2002.05202, equation 6.
.. [2] A. Q. Jiang et al., "Mixtral of experts," 2024, arXiv:2401.04088, section 2.1.
.. [3] DeepSeek-AI, "DeepSeek-V3 technical report," 2024, arXiv:2412.19437, equations 13-16.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.base.enums import AdapterTargets
from planner.base.software_enums import MLPWI, MLPWO
from planner.layers.operators import (
    BlockExchange,
    Columns,
    Element,
    Elementwise,
    ExpertBias,
    ExpertExchange,
    Experts,
    Holder,
    Op,
    Part,
    Permute,
    Product,
    Split,
    Spread,
    Weights,
    kept,
    plain,
    whole,
)
from planner.layers.residual import GATED, added, norm, sources, streams
from planner.specs.model import FeedForwardSpec, LayerGroup


def feed_forward_block(h: int, group: LayerGroup) -> Iterator[Op]:
    """From the norm before the feed-forward to the residual after it; nothing where it has none."""
    if not (feed_forward := group.feed_forward):
        return
    if not group.parallel_residual:
        sets = group.norms_per_layer if not group.attention else group.norms_per_layer // 2
        yield from map(_inside, streams("feed_forward_streams", h, group.residual_streams))
        yield from map(_inside, sources("feed_forward_sources", h, group.residual_sources))
        yield norm("feed_forward_norm", h, sets, group.norm_bias, (_module(feed_forward),))
    # A norm after the block reads what it made.
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


def _inside(op: Op) -> Op:
    return replace(op, in_feed_forward=True)


def _module(feed_forward: FeedForwardSpec) -> str:
    """What recomputation calls the block."""
    return "moe" if feed_forward.num_experts else "mlp"


def _from_input_to_output(h: int, feed_forward: FeedForwardSpec) -> Iterator[Op]:
    """The block without norm and residual; its first product keeps what all of it reads."""
    operators: list[Op] = []
    if feed_forward.num_experts:
        operators += _experts(h, feed_forward)
    if feed_forward.shared_width:
        dense = _dense(h, feed_forward, feed_forward.shared_width)
        operators += map(_shared, dense) if feed_forward.num_experts else dense
    read = kept(h, Element.FEED_FORWARD_INPUT, Spread.TOKENS, ("layernorm",))
    first, *others = operators
    yield replace(first, keeps=(read, *first.keeps))
    yield from others


def _shared(op: Op) -> Op:
    """An operator of the experts that every token visits."""
    keeps = tuple(each.also_by("shared_experts") for each in op.keeps)
    return replace(op, keeps=keeps, repeated_by=("shared_experts", *op.repeated_by))


def _dense(h: int, feed_forward: FeedForwardSpec, width: int) -> Iterator[Op]:
    """Every matrix beside the last, a function of their outputs, the last [1]_."""
    names = ("gate", "up") if feed_forward.gated else ("up",)
    inputs = len(names)
    adapter = AdapterTargets.ALL_LINEAR
    yield Product(
        name="_".join(names),
        module="feed_forward",
        depth=h,
        columns=Columns(tuple(Part(name=n, count=width, adapter=adapter) for n in names)),
        bias=inputs * width if feed_forward.bias else 0,
        holder=Holder.FEED_FORWARD,
        reads="feed_forward",
        joined=inputs,
        makes=MLPWI,
    )
    keeps = [kept(inputs * width, Element.ACTIVATION_INPUT)]
    if feed_forward.gated:  # eager kernels keep the function of the gate, too, for the product
        keeps.append(kept(width, remade_by=("mlp_act",), eager=True))
    yield Elementwise(
        name="activation",
        module="activation",
        columns=plain(width),
        spread=Spread.TENSOR,
        forward=inputs + 1,
        backward=2 * inputs + 1,
        eager=GATED if feed_forward.gated else None,
        keeps=tuple(keeps),
        repeated_by=("mlp_act",),
    )
    yield Product(
        name="down",
        module="feed_forward",
        depth=width,
        columns=Columns((Part(name="down", count=h, adapter=adapter),)),
        split=Split.ROWS,
        bias=h if feed_forward.bias else 0,
        holder=Holder.FEED_FORWARD,
        reads="activation",
        keeps=(kept(width, Element.DOWN_INPUT, remade_by=("mlp_act",)),),
        makes=MLPWO,
    )
    yield BlockExchange(name="feed_forward_tensor_parallel", module="feed_forward", makes=MLPWO)


def _experts(h: int, feed_forward: FeedForwardSpec) -> Iterator[Op]:
    """Router, dispatch, routed experts, combine [2]_."""
    k, width = feed_forward.num_experts_per_tok, feed_forward.expert_inputs(h)
    yield from _router(h, feed_forward)
    if feed_forward.moe_latent_size:
        yield _latent("latent_down", h, width)
        yield replace(_latent("latent_up", width, h), keeps=(kept(width, spread=Spread.TOKENS),))
    yield Permute(name="permute", module="experts", columns=plain(width), per_token=k)
    yield _routed(feed_forward, k, width)
    if feed_forward.bias:
        yield ExpertBias(name="expert_bias", module="experts", columns=plain(width), per_token=k)
    yield ExpertExchange(
        name="experts_all_to_all", module="experts", columns=plain(width), per_token=k
    )


def _router(h: int, feed_forward: FeedForwardSpec) -> Iterator[Op]:
    """Scores of all experts, whole on every rank; the bias may steer the load only [3]_."""
    experts = feed_forward.num_experts
    yield Product(
        name="router",
        module="router",
        depth=h,
        columns=plain(experts),
        split=Split.NONE,
        rows=Spread.TOKENS,
        bias=experts if feed_forward.router_bias else 0,
        holder=Holder.ROUTER,
        sharded=False,
        sixteen_bit=True,
        reads="feed_forward",
        # Logits and probabilities.
        keeps=(kept(2 * experts, Element.FP32, Spread.TOKENS),),
    )
    if feed_forward.shared_expert_gate:
        yield Weights(name="shared_expert_gate", module="router", weights=h, holder=Holder.ROUTER)


def _latent(name: str, depth: int, width: int) -> Product:
    """A projection to what experts read, or back, whole on every rank."""
    reads = "feed_forward" if name == "latent_down" else "expert_outputs"
    return replace(whole(name, "experts", depth, width, Holder.ROUTER, reads), sharded=False)


def _routed(feed_forward: FeedForwardSpec, k: int, inputs: int) -> Experts:
    """Matrices of the experts, which keep what was sent to them and what they made of it."""
    width, of_activation = feed_forward.moe_intermediate_size, 2 if feed_forward.gated else 1
    bias = of_activation * width + inputs if feed_forward.bias else 0
    element, spread = Element.FEED_FORWARD_INPUT, Spread.EXPERTS
    return Experts(
        name="experts",
        module="experts",
        num_experts=feed_forward.num_experts,
        per_token=k,
        depth=inputs,
        width=width,
        matrices=of_activation + 1,
        bias=bias,
        holder=Holder.EXPERTS,
        keeps=(
            kept(k * inputs, element, spread),
            kept(k * inputs, Element.EXPERT_OUTPUT, spread),
            kept(k * of_activation * width, Element.ACTIVATION_INPUT, spread),
            kept(k * width, Element.DOWN_INPUT, spread, ("moe_act",)),
        ),
    )
