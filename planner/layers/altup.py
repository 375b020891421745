"""Alternating updates: streams of which a layer computes one, and a learned residual beside it.

References
----------
.. [1] C. Baykal et al., "Alternating updates for efficient transformers," 2023, NeurIPS, section 3.
.. [2] transformers 5.24.0, models/gemma3n/modeling_gemma3n.py: Gemma3nTextAltUp,
   Gemma3nTextLaurelBlock, Gemma3nTextModel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.layers.operators import (
    Element,
    Elementwise,
    Holder,
    Op,
    Product,
    Split,
    Spread,
    kept,
    plain,
)
from planner.layers.residual import norm
from planner.specs.model import LayerGroup


def predicted(h: int, number: int) -> Iterator[Op]:
    """Every stream as a mix of all of them, by weights of the one that is computed [2]_."""
    if number < 2:
        return
    yield _product("altup_router", h, number, weights=h)
    yield _product("altup_prediction", number, number**2)
    yield _mixed("altup_predicted", h, number)


def corrected(h: int, number: int) -> Iterator[Op]:
    """What the layer changed, added to every stream by weights of the result [2]_."""
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
    """A product of low rank with the input of the attention, and a norm behind it [2]_."""
    if rank := group.laurel_rank:
        yield _product("laurel_down", h, rank)
        yield replace(_product("laurel_up", rank, h), keeps=(kept(rank, spread=Spread.TOKENS),))
        yield norm("laurel_norm", h, 1, bias=False)


def _product(name: str, depth: int, columns: int, weights: int = 0) -> Product:
    """A product that every rank computes of the tokens it holds."""
    return Product(
        name=name,
        module="residual_streams",
        depth=depth,
        columns=plain(columns),
        split=Split.NONE,
        rows=Spread.TOKENS,
        weights=weights,
        holder=Holder.NORMS,
        sharded=False,
        sixteen_bit=True,
        reads=name,
    )


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
