"""Modules and heads that draft for a model, as models of a layer.

References
----------
.. [1] Y. Li et al., "EAGLE: Speculative sampling requires rethinking feature uncertainty," 2024,
   arXiv:2401.15077, section 3.
.. [2] Y. Li et al., "EAGLE-3," 2025, arXiv:2503.01840, section 3.
"""

from __future__ import annotations

from dataclasses import replace

from planner.specs.drafting import DraftMethod
from planner.specs.model import FeedForwardSpec, ModelSpec
from planner.specs.multi_token import module_of

_VOCABULARY = 32_000  # draft_vocab_size of the heads that the authors of EAGLE-3 publish
_WIDE = 4  # of a dense layer over the residual stream, where the model has only experts


def head_of(model: ModelSpec, method: DraftMethod) -> ModelSpec | None:
    """What drafts for a model in this way; None where it is no part of the model or trained on it.

    A head is a dense layer like the model's in 16 bit, over the state of the model and the
    embedding of the token [1]_; that of EAGLE-3 has logits of its own over a part of the tokens
    [2]_. Embedding and other logits are the model's.
    """
    if method is DraftMethod.MTP:
        return module_of(model)
    if method not in (DraftMethod.EAGLE, DraftMethod.EAGLE3):
        return None
    groups = module_of(model).layer_groups
    attention = next(group.attention for group in groups if group.attention)
    width = max((each.intermediate_size for each in model.feed_forwards), default=0)
    dense = FeedForwardSpec(intermediate_size=width or _WIDE * model.hidden_size)
    layer = replace(groups[-1], attention=attention, feed_forward=dense, norms_per_layer=2)
    own = method is DraftMethod.EAGLE3
    return replace(
        model,
        name=f"{model.name} {method} head",
        layer_groups=(layer,),
        vocab_size=min(_VOCABULARY, model.vocab_size) if own else model.vocab_size,
        tie_word_embeddings=False,
        quantization=None,
        expert_quantization=None,
        checkpoints=(),
    )
