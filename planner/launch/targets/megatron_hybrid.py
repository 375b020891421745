"""Models whose layers differ in kind, as Megatron-Core's hybrid model says them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.base.enums import AttentionKind
from planner.errors import LaunchError
from planner.estimators.stages import chunk_split, layer_kinds
from planner.launch.targets.megatron_shape import shape_words
from planner.specs.model import AttentionSpec, FeedForwardSpec, LayerGroup, ModelSpec

PROGRAM = "pretrain_hybrid.py"
_ATTENTION = {
    AttentionKind.MAMBA2: "M",
    AttentionKind.LINEAR: "G",
    AttentionKind.STANDARD: "*",
    AttentionKind.LATENT: "+",
}


def is_hybrid(model: ModelSpec) -> bool:
    """Whether some layers have a state, or lack attention or a feed-forward block."""
    return any(
        group.attention is None or group.feed_forward is None or group.attention.has_state
        for group in model.layer_groups
    )


def hybrid_words(model: ModelSpec, tensor: int, pipeline: int, virtual: int) -> dict[str, Any]:
    """What the rows of the table take for such a model; its pattern holds the pipeline's split.

    Raises
    ------
    LaunchError
        Layers of one kind differ among themselves, or it has modules of multi-token prediction.
    """
    if model.mtp_num_layers:
        raise LaunchError(
            f"{model.name}: the pattern of its modules of multi-token prediction is not in the "
            "plan: plan it with --mtp-num-layers 0."
        )
    dense = _only(model, (ff for ff in model.feed_forwards if not ff.num_experts))
    experts = _only(model, (ff for ff in model.feed_forwards if ff.num_experts))
    full = _only(model, (each for each in model.attentions if not each.has_state))
    state = _only(model, (each for each in model.attentions if each.has_state))
    attention = full or _standing_in(state)
    blocks = [ff for ff in (dense, experts) if ff is not None]
    groups = tuple(
        LayerGroup(
            num_hidden_layers=1,
            attention=attention,
            feed_forward=block,
            norm_bias=model.layer_groups[0].norm_bias,
        )
        for block in blocks or [FeedForwardSpec(intermediate_size=4 * model.hidden_size)]
    )
    shape = shape_words(replace(model, layer_groups=groups), tensor)
    return {
        **shape,
        "num_hidden_layers": None,  # the pattern counts them
        "moe_layer_freq": None,
        "hybrid_pattern": _pattern(model, pipeline, virtual),
        **_state_words(state),
        **dict.fromkeys(("virtual_pipeline", "pipeline_layout")),
        **dict.fromkeys(("embedding_in_split", "loss_in_split")),
    }


def _only(model: ModelSpec, found: Iterator[Any]) -> Any:
    several = list(dict.fromkeys(found))
    if len(several) > 1:
        raise LaunchError(
            f"{model.name}: blocks of one kind differ, which no argument of Megatron-LM says."
        )
    return several[0] if several else None


def _standing_in(state: AttentionSpec) -> AttentionSpec:
    """The heads that Megatron-LM asks for where no layer has attention."""
    return AttentionSpec(
        num_attention_heads=state.num_attention_heads,
        num_key_value_heads=state.num_key_value_heads,
        head_dim=state.head_dim,
    )


def _pattern(model: ModelSpec, pipeline: int, virtual: int) -> str:
    symbols = [_symbols(group) for group in model.layer_groups]
    layers = [symbols[kind] for kind in layer_kinds(model.layer_groups)]
    sizes, start, chunks = chunk_split(model, pipeline, virtual), 0, []
    for size in sizes:
        chunks.append("".join(layers[start : start + size]))
        start += size
    return "|".join(chunks)


def _symbols(group: LayerGroup) -> str:
    attention = "" if group.attention is None else _ATTENTION[group.attention.kind]
    forward = "" if group.feed_forward is None else "E" if group.num_experts else "-"
    return attention + forward


def _state_words(state: AttentionSpec | None) -> dict[str, Any]:
    if state is None:
        return {}
    kind = "mamba" if state.kind is AttentionKind.MAMBA2 else "delta"
    return {
        f"{kind}_state": state.linear_key_head_dim,
        f"{kind}_head_dim": state.linear_value_head_dim,
        f"{kind}_groups": state.linear_num_key_heads,
        f"{kind}_heads": state.linear_num_value_heads,
        f"{kind}_kernel": state.linear_conv_kernel_dim,
    }
