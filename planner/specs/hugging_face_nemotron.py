"""Nemotron-H, Nemotron Nano 2 and Nemotron 3: Mamba-2, attention and feed-forward layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.specs import hugging_face_layers as layers
from planner.specs.hugging_face_layers import Table
from planner.specs.hugging_face_reader import ConfigReader
from planner.specs.model_checks import MOST_LAYERS

_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_ONE_BLOCK = {"norms_per_layer": 1}
_RENAMED = {"linear_attention": "mamba", "full_attention": "attention"}


def _nemotron_h(config: ConfigReader) -> Table:
    for key in ("use_bias", "mamba_proj_bias"):
        config.refuse(key, only=False)
    config.refuse("use_conv_bias", only=True)
    blocks: dict[str, Callable[[ConfigReader], Table]] = {
        "mamba": _mamba,
        "attention": _attention,
        "mlp": _mlp,
        "moe": _experts,
    }
    groups = layers.groups(_kinds(config), lambda kind: blocks[kind](config) | _ONE_BLOCK)
    return layers.decoder(config, groups, position_embedding="none")


def _kinds(config: ConfigReader) -> Sequence[str]:
    """The kind of every layer, from the letters of a pattern or from a list of words."""
    pattern = config.values.get("hybrid_override_pattern")
    words = config.sequence("layers_block_type")
    if words is None and isinstance(pattern, str):
        words = [_LETTERS.get(letter, letter) for letter in pattern]
    kinds = [_RENAMED.get(str(word), str(word)) for word in words or ()]
    if not kinds:
        config.fault("hybrid_override_pattern", "is missing, and so is layers_block_type")
    elif set(kinds) - set(_LETTERS.values()):
        config.fault("hybrid_override_pattern", "may only name M, *, - and E")
    elif len(kinds) > MOST_LAYERS:
        config.fault("hybrid_override_pattern", f"names more than {MOST_LAYERS} layers")
    elif config.optional_size("num_hidden_layers") not in (None, len(kinds)):
        config.fault("num_hidden_layers", f"contradicts the pattern of {len(kinds)} layers")
    else:
        return kinds
    return ["attention"]


def _mamba(config: ConfigReader) -> Table:
    mamba = layers.attention(
        config,
        kind="mamba2",
        linear_num_key_heads=config.size("n_groups", 8),
        linear_num_value_heads=config.size("mamba_num_heads", 128),
        linear_key_head_dim=config.size("ssm_state_size", 128),
        linear_value_head_dim=config.size("mamba_head_dim", 64),
        linear_conv_kernel_dim=config.size("conv_kernel", 4),
    )
    return {"attention": mamba | _head_dim(config)}


def _attention(config: ConfigReader) -> Table:
    attention = layers.attention(config, **layers.biased(config))
    return {"attention": attention | _head_dim(config)}


def _head_dim(config: ConfigReader) -> Table:
    """Earlier files call it ``attention_head_dim``."""
    older = config.optional_size("attention_head_dim")
    return {"head_dim": config.optional_size("head_dim") or older or 128}


def _mlp(config: ConfigReader) -> Table:
    bias = config.flag("mlp_bias", False)
    return {"feed_forward": layers.dense(config, gated=False, bias=bias)}


def _experts(config: ConfigReader) -> Table:
    shared = config.size("n_shared_experts", 1, least=0)
    width = config.size("moe_shared_expert_intermediate_size", least=0) if shared else 0
    experts = {
        "gated": False,
        "bias": config.flag("mlp_bias", False),
        "num_experts": config.size("n_routed_experts"),
        "num_experts_per_tok": config.size("num_experts_per_tok"),
        "moe_intermediate_size": config.size("moe_intermediate_size"),
        "moe_latent_size": config.optional_size("moe_latent_size") or 0,
        "shared_intermediate_size": shared * width,
        "router_bias": True,
    }
    return {"feed_forward": experts}


NEMOTRON_FAMILIES: dict[str, Callable[[ConfigReader], Table]] = {"nemotron_h": _nemotron_h}
