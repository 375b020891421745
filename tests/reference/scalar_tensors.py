"""Tensors that full recomputation keeps, as the policies of MaxText name them."""

from __future__ import annotations

from scalar_compile import kept_activations
from scalar_machine import (
    Layout,
    World,
    expert_load,
    key_heads,
    own_tokens,
    tokens,
    value_dim,
)
from scalar_state import State

from planner.specs.model import LayerGroup

MADE_BY = {
    "qkv_proj": ("qkv", "q_up", "kv_up", "rope", "in_projection"),
    "context": ("core", "ring", "merges", "scan"),
    "out_proj": ("attention_output", "out_projection", "attention_tensor_parallel"),
    "mlpwi": ("up",),
    "mlpwo": ("down", "feed_forward_tensor_parallel"),
}
"""The operators that make each."""
TENSORS = ("layer_input", *MADE_BY)


def named(word: str) -> set[str]:
    return set(word.split("+")) - {"none"}


def kept(layout: Layout) -> set[str]:
    return named(layout.saved_tensors) | named(layout.offloaded_tensors)


def repeated_share(world: World, layout: Layout, group: LayerGroup, name: str) -> float:
    """Of an operator of a layer that is repeated whole."""
    tensors = kept(layout)
    if name == "experts":
        matrices = 3 if group.feed_forward.gated else 2
        first, last = (matrices - 1) * ("mlpwi" not in tensors), "mlpwo" not in tensors
        return (first + last) / matrices
    followed = group.norms_per_layer > 2  # by a norm, which reads it
    if (
        name in MADE_BY["mlpwo"]
        and world.framework.execution.full_recompute_skips_last_product
        and not followed
    ):
        return 0.0
    return float(not any(name in MADE_BY[tensor] for tensor in tensors & set(MADE_BY)))


def tensor_bytes(world: World, layout: Layout, group: LayerGroup, tensors: set[str]) -> float:
    """Two bytes a number, and four of each softmax."""
    h, own, n = world.model.hidden_size, own_tokens(world, layout), tokens(world, layout)
    t, attention, mlp = layout.tensor_parallel, group.attention, group.feed_forward
    sizes = {"layer_input": 2 * own * h} | dict.fromkeys(MADE_BY, 0.0)
    if attention and attention.kind in ("linear", "mamba2"):
        state = State.of(attention)
        sizes["qkv_proj"], sizes["context"] = (
            2 * n * width / t for width in (state.projected, state.inner)
        )
        sizes["out_proj"] = 2 * own * h
    elif attention:
        a, d, dv = attention.num_attention_heads / t, attention.head_dim, value_dim(attention)
        if attention.kind == "latent":
            width = a * d + a * (d - attention.qk_rope_head_dim + dv)
        else:
            width = a * d + key_heads(attention, layout) * (d + dv)
            width += a * d if attention.attn_output_gate else 0
        sizes["qkv_proj"] = 2 * n * width
        sizes["context"] = n * a * (2 * dv + (4 if layout.fused else 0))
        sizes["out_proj"] = 2 * own * h
    if mlp:
        inputs = 2 if mlp.gated else 1
        wide = mlp.shared_intermediate_size if mlp.num_experts else mlp.intermediate_size
        if wide:
            sizes["mlpwi"] += 2 * n * inputs * wide / t
            sizes["mlpwo"] += 2 * own * h
        if mlp.num_experts:
            sent = 2 * own * mlp.num_experts_per_tok * expert_load(layout)
            sizes["mlpwi"] += sent * inputs * mlp.moe_intermediate_size
            sizes["mlpwo"] += sent * layout.expert_tensor_parallel * (mlp.moe_latent_size or h)
    return sum(sizes[name] for name in tensors) * kept_activations(world, layout)
