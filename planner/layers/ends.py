"""Operators at the two ends of a model: embedding, final norm, logits, loss, later tokens.

References
----------
.. [1] O. Press and L. Wolf, "Using the output embedding to improve language models," 2017,
   arXiv:1608.05859.
.. [2] D. Narayanan et al., "Efficient large-scale language model training on GPU clusters using
   Megatron-LM," 2021, arXiv:2104.04473, equation 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.base.enums import PositionEmbedding
from planner.layers.operators import (
    Holder,
    Lookup,
    Loss,
    Op,
    Product,
    Split,
    VocabularyReduce,
    Weights,
)
from planner.layers.residual import norm, norm_weights
from planner.layers.sizes import Spread, plain
from planner.specs.model import ModelSpec


def embedding(model: ModelSpec) -> Iterator[Op]:
    """Lookup of tokens and of learned positions [2]_, and the norm after it."""
    h = model.hidden_size
    yield Lookup(
        name="embedding",
        module="embedding",
        columns=plain(h),
        spread=Spread.TOKENS,
        forward=2,
        backward=5,
        weights=(model.vocab_size + _learned_positions(model)) * h,
        holder=Holder.EMBEDDING,
        sharded=True,
    )
    if model.embedding_norm:
        weights = norm_weights(h, 1, model.final_norm_bias)
        yield Weights(name="embedding_norm", module="norm", weights=weights)
    yield VocabularyReduce(name="embedding_tensor_parallel", module="embedding", backward=False)


def logits(model: ModelSpec) -> Iterator[Op]:
    """Final norm, logits, which may be tied to the embedding [1]_, and cross-entropy.

    Labels in their place are a product that every rank computes, and no softmax.
    """
    yield norm("final_norm", model.hidden_size, 1, model.final_norm_bias)
    if model.num_labels:
        yield Product(
            name="score",
            module="logits",
            depth=model.hidden_size,
            columns=plain(model.num_labels),
            split=Split.NONE,
            sharded=False,
            holder=Holder.LOGITS,
            sixteen_bit=True,
        )
        return
    yield Product(
        name="logits",
        module="logits",
        depth=model.hidden_size,
        columns=plain(model.vocab_size),
        bias=model.vocab_size if model.logits_bias else 0,
        tied=model.tie_word_embeddings,
        holder=Holder.LOGITS,
        sixteen_bit=True,
    )
    yield Loss(name="loss", module="loss", columns=plain(model.vocab_size))
    yield VocabularyReduce(name="logits_tensor_parallel", module="logits", backward=True)


def prediction(model: ModelSpec) -> Iterator[Op]:
    """What a module of multi-token prediction has beside its layers.

    Two norms, the projection of state and embedding to one state, and logits of its own tokens by
    the model's matrix.
    """
    h = model.hidden_size
    yield replace(
        norm("prediction_norms", 2 * h, 1, model.final_norm_bias), holder=Holder.PREDICTION
    )
    yield Product(
        name="prediction_projection",
        module="prediction",
        depth=2 * h,
        columns=plain(h),
        holder=Holder.PREDICTION,
    )
    for op in logits(model):
        if isinstance(op, Product):
            yield replace(op, tied=True, bias=0)
        else:
            yield replace(op, holder=Holder.PREDICTION)


def _learned_positions(model: ModelSpec) -> int:
    if model.position_embedding is not PositionEmbedding.LEARNED:
        return 0
    return (model.max_position_embeddings or 0) + model.position_embedding_offset
