"""Modules of a layer that the backward pass computes again by themselves."""

from __future__ import annotations

from scalar_machine import Layout
from scalar_tensors import named

from planner.specs.model import LayerGroup, ModelSpec

_CORE = ("softmax", "score_mask", "score_dropout")
_LATENT = ("queries", "keys", "values")
_DENSE = ("activation_inputs", "down_input")
_EXPERTS = (
    *("expert_latents", "dispatched", "expert_outputs", "expert_activation_inputs"),
    *("expert_down_inputs", "router_logits_and_scores"),
)
_SHARED = ("up", "activation", "down", "feed_forward_tensor_parallel")
_AROUND = ("attention_norm", "attention_residual", "feed_forward_norm", "feed_forward_residual")


def modules(layout: Layout) -> set[str]:
    """Those that are named; none where a framework says what its selective recomputation is."""
    return named(layout.recompute_modules) if layout.recompute == "selective" else set()


def block(group: LayerGroup) -> str:
    return "moe" if group.feed_forward and group.feed_forward.num_experts else "mlp"


def known(model: ModelSpec) -> set[str]:
    """Those that a model has."""
    found = {"layernorm"}
    for group in model.layer_groups:
        if group.attention:
            found.add("attention")
            found |= set() if group.attention.has_state else {"core_attn"}
            found |= {"mla_up_proj"} if group.attention.kind == "latent" else set()
        if mlp := group.feed_forward:
            found |= {"moe", "moe_act"} if mlp.num_experts else {"mlp", "mlp_act"}
            if mlp.num_experts and mlp.shared_intermediate_size:
                found |= {"shared_experts", "mlp_act"}
    return found


def remade(group: LayerGroup, name: str, kept: str) -> bool:
    """Whether a module makes again what ``kept`` is a name of."""
    attention = group.attention
    if kept in ("norm_inputs", "dropout_masks") or kept.endswith("_adapter_input"):
        return False
    if kept == "projection_input":
        return name == "layernorm"
    if kept == "block_input":
        return name in ("layernorm", block(group))
    if kept in _DENSE:
        own = {block(group)} | ({"shared_experts"} if block(group) == "moe" else set())
        return name in own | ({"mlp_act"} if kept == "down_input" else set())
    if kept in _EXPERTS:
        return name == "moe" or (name == "moe_act" and kept == "expert_down_inputs")
    is_latent = attention is not None and attention.kind == "latent"
    if name == "mla_up_proj":
        return is_latent and kept in _LATENT
    return name == "attention" or (name == "core_attn" and kept in _CORE)


def repeated(group: LayerGroup, names: set[str], op: str, *, in_attention: bool) -> float:
    """Whether an operator of a layer is repeated, 1 or 0, parts of it aside."""
    if op in _AROUND:
        before = {"attention_norm": "layernorm", "feed_forward_norm": block(group)}
        return float(op in before and bool(names & {"layernorm", before[op]}))
    by = {"attention"} if in_attention else {block(group)}
    by |= {"mla_up_proj"} if op in ("q_up", "kv_up") else set()
    if op in _SHARED and block(group) == "moe":
        by.add("shared_experts")
    by |= {"mlp_act"} if op == "activation" else set()
    return float(bool(names & by))
