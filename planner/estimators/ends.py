"""Operators at the two ends of the model: embedding, final norm, logits, loss, later tokens."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.estimators.operators import Operator, elementwise, linear
from planner.estimators.share import Share


def embedding_block(share: Share) -> Iterator[Operator]:
    """Lookup of the token embeddings, on the first stage."""
    elements = share.own_tokens * share.hidden_size
    lookup = elementwise(
        share, "embedding", "embedding", elements=elements, forward_bytes=4, backward_bytes=10
    )
    workload = share.setting.workload
    if workload.is_frozen and not workload.saves_ends:
        lookup = Operator(**{**vars(lookup), "backward": np.zeros(())})
    yield _not_repeated(lookup)
    yield _vocabulary_reduce(share, "embedding_tensor_parallel", "embedding", backward=False)


def logits_block(share: Share) -> Iterator[Operator]:
    """Final norm, logits and cross-entropy, on the last stage."""
    h, machine = share.hidden_size, share.setting.machine
    columns = share.setting.model.vocab_size / share.tensor_parallel
    norm = elementwise(
        share,
        "final_norm",
        "norm",
        elements=share.own_tokens * h,
        forward_bytes=4,
        backward_bytes=6,
    )
    yield _not_repeated(norm)
    yield linear(
        share,
        "logits",
        "logits",
        rows=share.tokens,
        columns=columns,
        depth=h,
        repeatable=False,
        sixteen_bit=True,
        saved=share.setting.workload.saves_ends,
    )
    passes = share.setting.framework.execution.loss_passes
    traffic = machine.memory_time(2.0 * passes * share.tokens * columns)
    yield Operator(
        name="loss",
        module="loss",
        forward=traffic / 2,
        backward=traffic / 2,
        flops=np.zeros(()),
        repeatable=False,
    )
    yield _vocabulary_reduce(share, "logits_tensor_parallel", "logits", backward=True)


def prediction_block(share: Share) -> Iterator[Operator]:
    """What a module of multi-token prediction has beside its layers, on the last stage.

    Two norms, the projection of state and embedding to one state, and logits of its own tokens.
    """
    h = share.hidden_size
    inputs = 2.0 * share.own_tokens * h
    norms = elementwise(
        share, "prediction_norms", "norm", elements=inputs, forward_bytes=4, backward_bytes=6
    )
    yield _not_repeated(norms)
    yield linear(
        share,
        "prediction_projection",
        "prediction",
        rows=share.tokens,
        columns=h / share.tensor_parallel,
        depth=2 * h,
        repeatable=False,
    )
    yield from logits_block(share)


def _not_repeated(operator: Operator) -> Operator:
    return Operator(**{**vars(operator), "repeatable": False})


def _vocabulary_reduce(share: Share, name: str, module: str, backward: bool) -> Operator:
    """Sum over the vocabulary shards: of embeddings forward, of input gradients backward."""
    reduce = share.setting.machine.collective(
        "all_reduce", 2.0 * share.tokens * share.hidden_size, share.tensor_group
    )
    nothing = np.zeros(())
    return Operator(
        name=name,
        module=module,
        part="tensor_parallel",
        repeatable=False,
        flops=nothing,
        forward=nothing if backward else reduce,
        backward=reduce if backward else nothing,
    )
