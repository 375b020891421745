"""A model's shape in flat words, as options of frameworks say it, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.base.enums import AttentionKind, PositionEmbedding
from planner.errors import LaunchError
from planner.specs.load import check_spec
from planner.specs.model import LayerGroup, ModelSpec, Placement


def shape_of(model: ModelSpec) -> dict[str, Any]:
    """Sizes by the words of ``config.json``; those that a model lacks are None.

    Of windowed layers every ``window_skip``-th sees all tokens.
    ``num_dense_layers`` come before those with experts; ``norm_bias`` is that of LayerNorm.
    ``qk_nope_head_dim`` and ``qk_rope_head_dim`` are those of latent attention alone.

    Raises
    ------
    LaunchError
        Its layers differ in more than dense layers before those with experts.
    """
    model, skip = _one_window(model)
    dense, main = _groups(model)
    attention, forward = main.attention, main.feed_forward
    if attention is None or forward is None or attention.has_state:
        raise LaunchError(f"{model.name}: its layers differ; only a checkpoint can describe them.")
    is_latent = attention.kind is AttentionKind.LATENT
    rope = attention.qk_rope_head_dim
    experts = forward.num_experts
    plain = dense.feed_forward if dense and dense.feed_forward else forward
    return {
        "num_hidden_layers": model.num_hidden_layers - _later_layers(model),
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "tie_word_embeddings": model.tie_word_embeddings,
        "position_embedding": str(model.position_embedding),
        "max_position_embeddings": model.max_position_embeddings,
        "num_attention_heads": attention.num_attention_heads,
        "num_key_value_heads": attention.num_key_value_heads,
        "head_dim": None if is_latent else attention.head_dim,
        "qkv_bias": attention.qkv_bias,
        "output_bias": attention.output_bias,
        "qk_norm": attention.qk_norm,
        "sliding_window": attention.sliding_window,
        "window_skip": skip,
        "sinks": attention.sinks,
        "attn_output_gate": attention.attn_output_gate,
        "norm_bias": main.norm_bias,
        "intermediate_size": plain.intermediate_size or None,
        "gated": forward.gated,
        "mlp_bias": forward.bias,
        "num_experts": experts or None,
        "num_experts_per_tok": forward.num_experts_per_tok or None,
        "moe_intermediate_size": forward.moe_intermediate_size or None,
        "shared_intermediate_size": forward.shared_intermediate_size or None,
        "shared_expert_gate": forward.shared_expert_gate,
        "moe_latent_size": forward.moe_latent_size or None,
        "router_bias": forward.router_bias,
        "num_dense_layers": dense.num_hidden_layers if dense else 0,
        "q_lora_rank": (attention.q_lora_rank or None) if is_latent else None,
        "kv_lora_rank": attention.kv_lora_rank if is_latent else None,
        "qk_nope_head_dim": attention.head_dim - rope if is_latent else None,
        "qk_rope_head_dim": rope if is_latent else None,
        "v_head_dim": attention.v_head_dim if is_latent else None,
    }


def _one_window(model: ModelSpec) -> tuple[ModelSpec, int | None]:
    """The model with one window in all layers, and which of them see all tokens: every n-th."""
    if len(model.layer_groups) != 2:
        return model, None
    near, far = model.layer_groups
    layers = model.num_hidden_layers
    every = layers // far.num_hidden_layers
    if near.attention is None or far.attention is None or model.mtp_num_layers:
        return model, None
    alike = far.attention == replace(near.attention, sliding_window=None)
    if not alike or near.attention.sliding_window is None or near.feed_forward != far.feed_forward:
        return model, None
    if layers // every != far.num_hidden_layers:
        return model, None
    return replace(model, layer_groups=(replace(near, num_hidden_layers=layers),)), every


def _later_layers(model: ModelSpec) -> int:
    """Layers of modules of multi-token prediction among the groups."""
    return model.mtp_num_layers


def _groups(model: ModelSpec) -> tuple[LayerGroup | None, LayerGroup]:
    """The dense layers in front, if others follow, and those others."""
    first, *rest = model.layer_groups
    kinds = [first, *(group for group in rest if group.feed_forward != first.feed_forward)]
    if len(kinds) > 2 or any(group.attention != first.attention for group in rest):
        raise LaunchError(f"{model.name}: its layers differ; only a checkpoint can describe them.")
    if len(kinds) == 1:
        return None, first
    if first.num_experts:
        raise LaunchError(f"{model.name}: dense layers after those with experts are not described.")
    return first, kinds[1]


def model_of(shape: Mapping[str, Any], name: str, source: str) -> ModelSpec:
    """The model of such words; the inverse of `shape_of`.

    Raises
    ------
    SpecError
        The words make no model.
    """
    attention = _attention(shape)
    experts = int(shape.get("num_experts") or 0)
    layers = int(shape["num_hidden_layers"])
    dense = layers if not experts else int(shape.get("num_dense_layers") or 0)
    later = int(shape.get("mtp_num_layers") or 0)
    groups: list[dict[str, Any]] = []
    for number, has_experts in ((dense, False), (layers - dense, True)):
        if number > 0:
            groups.append(
                {
                    "num_hidden_layers": number,
                    "attention": attention,
                    "feed_forward": _feed_forward(shape, has_experts),
                    "norm_bias": bool(shape.get("norm_bias")),
                }
            )
    skip = int(shape.get("window_skip") or 0)
    if skip > 1 and len(groups) == 1 and shape.get("sliding_window"):
        groups = _two_windows(groups[0], layers // skip)
    table = {
        "name": name,
        "source": source,
        "hidden_size": int(shape["hidden_size"]),
        "vocab_size": int(shape["vocab_size"]),
        "layer_groups": groups,
        "tie_word_embeddings": bool(shape.get("tie_word_embeddings")),
        "position_embedding": PositionEmbedding(shape.get("position_embedding") or "rotary"),
        "max_position_embeddings": shape.get("max_position_embeddings"),
        "final_norm_bias": bool(shape.get("norm_bias")),
        "num_nextn_predict_layers": later,
    }
    return check_spec(ModelSpec, table, where=source)


def _two_windows(group: dict[str, Any], full: int) -> list[dict[str, Any]]:
    """Layers of which so many see all tokens."""
    far = {**group["attention"], "sliding_window": None}
    each = {**group, "placement": Placement.INTERLEAVED}
    number = group["num_hidden_layers"] - full
    return [
        {**each, "num_hidden_layers": number},
        {**each, "num_hidden_layers": full, "attention": far},
    ]


def _attention(shape: Mapping[str, Any]) -> dict[str, Any]:
    heads = int(shape["num_attention_heads"])
    common: dict[str, Any] = {
        "num_attention_heads": heads,
        "num_key_value_heads": int(shape.get("num_key_value_heads") or heads),
        "qkv_bias": bool(shape.get("qkv_bias")),
        "output_bias": bool(shape.get("output_bias")),
        "qk_norm": bool(shape.get("qk_norm")),
        "sliding_window": shape.get("sliding_window"),
        "sinks": bool(shape.get("sinks")),
        "attn_output_gate": bool(shape.get("attn_output_gate")),
    }
    if not shape.get("kv_lora_rank"):
        size = int(shape.get("head_dim") or int(shape["hidden_size"]) // max(heads, 1))
        return {**common, "head_dim": size}
    rope = int(shape["qk_rope_head_dim"])
    return {
        **common,
        "kind": AttentionKind.LATENT,
        "head_dim": int(shape["qk_nope_head_dim"]) + rope,
        "qk_rope_head_dim": rope,
        "v_head_dim": int(shape["v_head_dim"]),
        "q_lora_rank": int(shape.get("q_lora_rank") or 0),
        "kv_lora_rank": int(shape["kv_lora_rank"]),
    }


def _feed_forward(shape: Mapping[str, Any], has_experts: bool) -> dict[str, Any]:
    words = {"gated": bool(shape.get("gated", True)), "bias": bool(shape.get("mlp_bias"))}
    if not has_experts:
        return {**words, "intermediate_size": int(shape.get("intermediate_size") or 0)}
    of_experts = shape.get("moe_intermediate_size") or shape.get("intermediate_size") or 0
    return {
        **words,
        "num_experts": int(shape["num_experts"]),
        "num_experts_per_tok": int(shape.get("num_experts_per_tok") or 2),
        "moe_intermediate_size": int(of_experts),
        "moe_latent_size": int(shape.get("moe_latent_size") or 0),
        "shared_intermediate_size": int(shape.get("shared_intermediate_size") or 0),
        "shared_expert_gate": bool(shape.get("shared_expert_gate")),
        "router_bias": bool(shape.get("router_bias")),
    }
