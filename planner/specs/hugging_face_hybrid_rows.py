"""Families that mix attention with linear attention or Mamba-2, described by rows of a table."""

from __future__ import annotations

from dataclasses import replace

from planner.specs.hugging_face_reader import ConfigReader
from planner.specs.hugging_face_rows import (
    BIASED,
    DENSE,
    Decoder,
    Family,
    Fields,
    Only,
    all_but_last_of,
    always,
    among_experts,
    experts,
    flag,
    size,
)


def _mamba_head(config: ConfigReader) -> int:
    """Width of a head, which ``auto`` makes a share of the expanded hidden size."""
    if config.values.get("mamba_d_head", "auto") != "auto":
        return config.size("mamba_d_head")
    expanded = config.size("mamba_expand", 2) * config.size("hidden_size")
    return max(expanded // config.size("mamba_n_heads", 128), 1)


_MAMBA: Fields = {
    "kind": "mamba2",
    "linear_num_key_heads": size("mamba_n_groups", 1),
    "linear_num_value_heads": size("mamba_n_heads", 128),
    "linear_key_head_dim": size("mamba_d_state", 256),
    "linear_value_head_dim": _mamba_head,
    "linear_conv_kernel_dim": size("mamba_d_conv", 4),
}
_MAMBA_BIASES = (
    Only(key="mamba_proj_bias", value=False, default=False, why="biases of Mamba-2"),
    Only(key="mamba_conv_bias", value=True, default=True, why="a convolution without bias"),
)
_DELTA_NET: Fields = {
    "kind": "linear",
    "linear_num_key_heads": size("linear_num_key_heads"),
    "linear_num_value_heads": size("linear_num_value_heads"),
    "linear_key_head_dim": size("linear_key_head_dim"),
    "linear_value_head_dim": size("linear_value_head_dim"),
    "linear_conv_kernel_dim": size("linear_conv_kernel_dim", 4),
}


def _modern_bamba(config: ConfigReader) -> ConfigReader:
    """The layers of attention as numbers, the others Mamba-2."""
    chosen = config.sequence("attn_layer_indices") or ()
    kinds = [
        "full_attention" if layer in chosen else "linear_attention"
        for layer in range(config.layers())
    ]
    return config.replaced({"layer_types": kinds})


def _modern_olmo_hybrid(config: ConfigReader) -> ConfigReader:
    """Heads and widths that the family derives from one another where its config is silent."""
    heads = config.size("num_attention_heads")
    keys = config.optional_size("linear_num_key_heads") or heads
    width = config.optional_size("linear_key_head_dim")
    width = width or max(3 * config.size("hidden_size") // (4 * keys), 1)
    return config.or_else(
        {
            "linear_num_key_heads": keys,
            "linear_num_value_heads": heads,
            "linear_key_head_dim": width,
            "linear_value_head_dim": 2 * width,
        }
    )


def _position(config: ConfigReader) -> str:
    return "rotary" if config.values.get("position_embedding_type") == "rope" else "none"


_QWEN_ATTENTION: Fields = {
    **BIASED,
    "qk_norm": True,
    "attn_output_gate": flag("attn_output_gate", True),
}
_QWEN_EXPERTS = experts(
    shared_intermediate_size=size("shared_expert_intermediate_size"), shared_expert_gate=True
)
_QWEN3_5 = Decoder(
    attention=_QWEN_ATTENTION,
    state=_DELTA_NET,
    states=all_but_last_of(4, key="full_attention_interval"),
)

HYBRID_ROWS: dict[str, Family] = {
    "bamba": Decoder(
        attention=BIASED,
        state=_MAMBA,
        states=always,
        feed_forward={**DENSE, "bias": flag("mlp_bias")},
        modern=_modern_bamba,
        only=_MAMBA_BIASES,
        defaults={"num_key_value_heads": 8},
    ),
    "granitemoehybrid": Decoder(
        attention=BIASED,
        state=_MAMBA,
        states=always,
        feed_forward={"intermediate_size": size("shared_intermediate_size", 1024)},
        experts=experts(
            width="intermediate_size",
            shared_intermediate_size=size("shared_intermediate_size", 1024, least=0),
        ),
        sparse=lambda config, _: config.size("num_local_experts", 8, least=0) > 0,
        model={"position_embedding": _position},
        only=_MAMBA_BIASES,
    ),
    "mamba2": Decoder(
        state={
            "kind": "mamba2",
            "linear_num_key_heads": size("n_groups", 8),
            "linear_num_value_heads": size("num_heads", 128),
            "linear_key_head_dim": size("state_size", 128),
            "linear_value_head_dim": size("head_dim", 64),
            "linear_conv_kernel_dim": size("conv_kernel", 4),
        },
        states=always,
        feed_forward={},
        layer={"norms_per_layer": 1},
        model={"position_embedding": "none"},
        only=(
            Only(key="use_bias", value=False, default=False, why="biases of Mamba-2"),
            Only(key="use_conv_bias", value=True, default=True, why="a convolution without bias"),
        ),
        defaults={"head_dim": 64},
    ),
    "olmo_hybrid": Decoder(
        attention={**BIASED, "qk_norm": True, "qk_norm_per_head": True},
        state=_DELTA_NET,
        states=all_but_last_of(4, key=""),
        modern=_modern_olmo_hybrid,
    ),
    "qwen3_5_moe_text": replace(_QWEN3_5, experts=_QWEN_EXPERTS),
    "qwen3_5_text": _QWEN3_5,
    "qwen3_next": replace(_QWEN3_5, experts=_QWEN_EXPERTS, sparse=among_experts),
}
