"""Embeddings of each layer of its own, which gate a projection behind its blocks [1]_.

References
----------
.. [1] transformers 5.24.0, models/gemma4/modeling_gemma4.py: Gemma4TextModel.get_per_layer_inputs
   and project_per_layer_inputs, Gemma4TextDecoderLayer.
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.layers.operators import (
    Elementwise,
    Holder,
    Lookup,
    Op,
    Product,
    Split,
    Spread,
    kept,
    plain,
)
from planner.layers.residual import GATED, norm
from planner.specs.model import LayerGroup, ModelSpec


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
    return Product(
        name=name,
        module="feed_forward",
        depth=depth,
        columns=plain(columns),
        split=Split.NONE,
        rows=Spread.TOKENS,
        holder=Holder.FEED_FORWARD,
        sharded=False,
        reads=name,
        keeps=(kept(keeps, spread=Spread.TOKENS),),
    )
