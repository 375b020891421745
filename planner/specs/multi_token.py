"""Multi-token prediction: modules after the last layer that predict later tokens."""

from __future__ import annotations

from dataclasses import replace

from planner.specs.model import LayerGroup, ModelSpec


def with_mtp(model: ModelSpec, count: int) -> ModelSpec:
    """The model with ``count`` modules of multi-token prediction [1]_ among its layers.

    A module projects the last hidden state and the embedding of the next token to one state,
    has a layer with attention over all tokens and a feed-forward, and shares embedding and logits.
    Where attention and feed-forward are layers of their own it has one of each.

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V3," 2024, arXiv:2412.19437, section 2.2.
    """
    if count == 0:
        return model
    chosen = _of_module(model.layer_groups)
    groups = tuple(
        replace(group, num_hidden_layers=group.num_hidden_layers + count)
        if index in chosen
        else group
        for index, group in enumerate(model.layer_groups)
    )
    return replace(model, layer_groups=groups, mtp_num_layers=model.mtp_num_layers + count)


def module_of(model: ModelSpec) -> ModelSpec:
    """A module alone: its layers, with what they lack beside them shared with the model."""
    groups = tuple(
        replace(model.layer_groups[index], num_hidden_layers=1)
        for index in sorted(_of_module(model.layer_groups))
    )
    return replace(model, name=f"{model.name} module", layer_groups=groups, checkpoints=())


def _of_module(groups: tuple[LayerGroup, ...]) -> set[int]:
    """The groups of which a module has a layer: the last of each kind that it needs."""
    attention = max(range(len(groups)), key=lambda index: (_attends(groups[index]), index))
    feed_forward = max(
        range(len(groups)), key=lambda index: (groups[index].feed_forward is not None, index)
    )
    whole = groups[attention].feed_forward is not None
    return {attention} if whole else {attention, feed_forward}


def _attends(group: LayerGroup) -> int:
    """3 with attention over all tokens, 2 over a window, 1 over a state, 0 without."""
    if group.attention is None:
        return 0
    if group.attention.has_state:
        return 1
    return 2 if group.attention.sliding_window else 3
