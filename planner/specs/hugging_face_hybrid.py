"""Families that mix linear with full attention: Qwen3-Next and Qwen3.5."""

from __future__ import annotations

from collections.abc import Callable

from planner.specs import hugging_face_layers as layers
from planner.specs.hugging_face_layers import Table
from planner.specs.hugging_face_reader import ConfigReader


def _qwen3_next(config: ConfigReader) -> Table:
    if config.sequence("mlp_only_layers") or config.size("decoder_sparse_step", 1) != 1:
        config.fault("decoder_sparse_step", "must be 1: layers without experts are not supported")
    return _hybrid(config, _experts(config))


def _qwen3_5(config: ConfigReader) -> Table:
    return _hybrid(config, layers.dense(config))


def _qwen3_5_moe(config: ConfigReader) -> Table:
    return _hybrid(config, _experts(config))


def _experts(config: ConfigReader) -> Table:
    return {
        "num_experts": config.size("num_experts"),
        "num_experts_per_tok": config.size("num_experts_per_tok"),
        "moe_intermediate_size": config.size("moe_intermediate_size"),
        "shared_intermediate_size": config.size("shared_expert_intermediate_size"),
        "shared_expert_gate": True,
    }


def _hybrid(config: ConfigReader, feed_forward: Table) -> Table:
    def build(is_linear: bool) -> Table:
        return layers.group(config, _linear(config) if is_linear else _full(config), feed_forward)

    every = config.size("full_attention_interval", 4)
    kinds = {"full_attention": False, "linear_attention": True}
    is_linear = layers.told_apart(
        config, "layer_types", kinds, lambda layer: (layer + 1) % every != 0
    )
    return layers.decoder(config, layers.groups(is_linear, build))


def _full(config: ConfigReader) -> Table:
    return layers.attention(
        config,
        qk_norm=True,
        attn_output_gate=config.flag("attn_output_gate", True),
        **layers.biased(config),
    )


def _linear(config: ConfigReader) -> Table:
    return layers.attention(
        config,
        kind="linear",
        linear_num_key_heads=config.size("linear_num_key_heads"),
        linear_num_value_heads=config.size("linear_num_value_heads"),
        linear_key_head_dim=config.size("linear_key_head_dim"),
        linear_value_head_dim=config.size("linear_value_head_dim"),
        linear_conv_kernel_dim=config.size("linear_conv_kernel_dim", 4),
    )


HYBRID_FAMILIES: dict[str, Callable[[ConfigReader], Table]] = {
    "qwen3_5_moe_text": _qwen3_5_moe,
    "qwen3_5_text": _qwen3_5,
    "qwen3_next": _qwen3_next,
}
