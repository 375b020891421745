"""Families with experts whose layers a row of a table describes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.specs import hugging_face_layers as layers
from planner.specs.hugging_face_latent import latent_attention
from planner.specs.hugging_face_layers import Table
from planner.specs.hugging_face_modern import (
    modern_dots,
    modern_gemma4,
    modern_laguna,
    modern_mimo,
    modern_minimax,
    modern_step,
)
from planner.specs.hugging_face_reader import ConfigReader
from planner.specs.hugging_face_rows import (
    BIASED,
    TIED,
    Decoder,
    Family,
    Fields,
    Only,
    after,
    all_but_every_from_last,
    all_but_first_of,
    all_but_last_of,
    among_experts,
    experts,
    flag,
    never,
    size,
    times,
)

_GATES = "The output gates of attention, one number per head, are not counted."
_LATENT_BIAS = Only(key="attention_bias", value=False, default=False, why="biases of latents")
_SHARED: Fields = {
    "shared_intermediate_size": times("n_shared_experts", "moe_intermediate_size", 1),
    "router_bias": True,
}


def _dense_after(config: ConfigReader) -> int:
    return config.optional_size("prefix_dense_intermediate_size") or config.size(
        "intermediate_size"
    )


def _unequal_heads(config: ConfigReader, **fields: Any) -> Table:
    """Attention whose values have another width per head than keys, which a mean stands for."""
    key, value = config.size("head_dim", 192), config.size("v_head_dim", 128)
    if (key + value) % 2:
        config.fault("v_head_dim", f"{value} and head_dim {key} have no whole mean")
    return layers.attention(config, **fields) | {"head_dim": (key + value) // 2}


def _gate_per_number(config: ConfigReader) -> bool:
    return config.values.get("gating") not in (None, True, "per-head")


def _windows_of_flint(config: ConfigReader, layer: int) -> bool:
    return layer >= 2 and layer % 4 != 1 and layer != config.layers() - 1


def _heads_of_mimo(config: ConfigReader) -> int:
    own = config.optional_size("swa_num_key_value_heads")
    return own or 2 * config.size("num_key_value_heads", 4)


def _heads_of_step(config: ConfigReader) -> int:
    other = config.table("attention_other_setting").optional_size("num_attention_heads")
    own = config.optional_size("num_sliding_attention_heads")
    return own or other or config.size("num_attention_heads")


_GEMMA4 = Decoder(
    attention={**BIASED, "qk_norm": True},
    windows=all_but_last_of(6),
    experts=experts(shared_intermediate_size=size("intermediate_size")),
    sparse=lambda config, _: config.flag("enable_moe_block", False),
    layer={"norms_per_layer": 4},
    sparse_layer={"norms_per_layer": 7},
    model=TIED,
    defaults={"sliding_window": 512, "head_dim": 256, "num_key_value_heads": 4},
    modern=modern_gemma4,
    only=(
        Only(key="hidden_size_per_layer_input", value=0, default=256, why="embeddings per layer"),
        Only(key="num_kv_shared_layers", value=0, default=0, why="layers that share their cache"),
    ),
    note=(
        "Where keys are also the values, a projection of values is counted all the same; "
        "scales of residuals and experts are not."
    ),
)

_QWEN3_SEEING = Decoder(
    attention={**BIASED, "qk_norm": True},
    experts=experts(),
    sparse=among_experts,
)

EXPERT_ROWS: dict[str, Family] = {
    "afmoe": Decoder(
        attention={**BIASED, "qk_norm": True, "attn_output_gate": True},
        windows=all_but_last_of(4, key="global_attn_every_n_layers"),
        experts=experts(
            shared_intermediate_size=times("n_shared_experts", "moe_intermediate_size", 2),
            router_bias=True,
        ),
        sparse=after("num_dense_layers", 1),
        layer={"norms_per_layer": 4},
        defaults={"sliding_window": 1024, "head_dim": 128},
    ),
    "aria_text": Decoder(
        attention=BIASED,
        experts=experts(
            width="intermediate_size",
            shared_intermediate_size=times("n_shared_experts", "intermediate_size", 2),
        ),
        only=(Only(key="mlp_bias", value=False, default=False, why="biases of shared experts"),),
    ),
    "axk1": Decoder(
        base=latent_attention,
        experts=experts(**_SHARED),
        sparse=after("first_k_dense_replace", 1),
        sparse_layer={"norms_per_layer": 3},
        only=(
            _LATENT_BIAS,
            Only(key="moe_layer_freq", value=1, default=1, why="dense layers among experts"),
        ),
        defaults={"q_lora_rank": 1536},
    ),
    "beam": Decoder(
        attention={**BIASED, "qk_norm": True, "attn_output_gate": True},
        windows=all_but_last_of(6),
        experts=experts(router_bias=True),
        sparse=after("first_k_dense_replace", 3),
        layer={"norms_per_layer": 4},
        defaults={"num_key_value_heads": 8, "sliding_window": 512, "head_dim": 128},
        note="The biases of the output gates, one number per head, are not counted.",
    ),
    "cohere2_moe": Decoder(
        attention=BIASED,
        windows=all_but_last_of(4),
        experts=experts(
            width="intermediate_size",
            shared_intermediate_size=times("n_shared_experts", "intermediate_size", 0),
        ),
        feed_forward={"intermediate_size": _dense_after},
        sparse=after("first_k_dense_replace", 0),
        layer={"norms_per_layer": 1, "parallel_residual": True},
        model=TIED,
        defaults={"sliding_window": 4096, "head_dim": 128},
    ),
    "dots3_note_text": Decoder(
        base=latent_attention,
        attention={
            "index_n_heads": size("index_n_heads", 64),
            "index_head_dim": size("index_head_dim", 128),
            "index_topk": size("index_topk", 2048),
        },
        windows=never,
        in_windows={"index_n_heads": 0, "index_head_dim": 0, "index_topk": 0},
        experts=experts(
            shared_intermediate_size=times(
                "n_shared_experts", "shared_experts_intermediate_size", 1
            ),
            router_bias=True,
        ),
        sparse=after("first_k_dense_replace", 1),
        defaults={
            "sliding_window": 512,
            "q_lora_rank": 1024,
            "shared_experts_intermediate_size": 1536,
        },
        modern=modern_dots,
        only=(
            _LATENT_BIAS,
            Only(key="use_dsa", value=True, default=True, why="no indexer"),
            Only(key="use_sliding_window", value=True, default=True, why="no windows"),
            Only(key="moe_layer_freq", value=1, default=1, why="dense layers among experts"),
        ),
        note=f"{_GATES} Nor are the norms of the rotary part of keys.",
    ),
    "exaone_moe": Decoder(
        attention={"qk_norm": True},
        windows=all_but_last_of(4),
        experts=experts(**_SHARED),
        sparse=after("first_k_dense_replace", 1),
        defaults={"sliding_window": 4096},
    ),
    "flex_olmo": Decoder(
        attention={**BIASED, "qk_norm": True, "qk_norm_per_head": True},
        experts=experts(width="intermediate_size"),
    ),
    "deepseek_ocr2_text": Decoder(
        attention=BIASED,
        experts=experts(
            shared_intermediate_size=times("n_shared_experts", "moe_intermediate_size", 2)
        ),
        sparse=after("first_k_dense_replace", 0),
        only=(Only(key="mlp_bias", value=False, default=False, why="biases of shared experts"),),
    ),
    "flint": Decoder(
        attention={**BIASED, "qk_norm": True, "sinks": True},
        windows=_windows_of_flint,
        experts=experts(shared_intermediate_size=size("shared_expert_intermediate_size", 1024)),
        sparse=among_experts,
        defaults={
            "num_key_value_heads": 4,
            "sliding_window": 513,
            "head_dim": 128,
            "mlp_only_layers": [0, 1],
        },
    ),
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": replace(
        _GEMMA4,
        defaults={
            "num_key_value_heads": 4,
            "sliding_window": 1024,
            "head_dim": 256,
            "hidden_size_per_layer_input": 0,
        },
    ),
    "granitemoe_swa": Decoder(
        attention={**BIASED, "sinks": True},
        windows=all_but_first_of(4),
        experts=experts(
            width="intermediate_size",
            shared_intermediate_size=size("shared_intermediate_size", 0, least=0),
        ),
        defaults={"sliding_window": 128},
    ),
    "hy_v3": Decoder(
        attention={**BIASED, "qk_norm": True},
        experts=experts(
            shared_intermediate_size=times("n_shared_experts", "moe_intermediate_size", 1, least=1),
            router_bias=True,
        ),
        sparse=after("first_k_dense_replace", 1),
        defaults={"num_key_value_heads": 8, "head_dim": 128},
        only=(Only(key="mlp_bias", value=False, default=False, why="biases of shared experts"),),
    ),
    "kolibri1": Decoder(
        attention={"qk_norm": True},
        windows=all_but_last_of(5),
        experts=experts(
            shared_intermediate_size=size("shared_expert_intermediate_size", 512),
            router_bias=True,
        ),
        layer={"norms_per_layer": 4},
        defaults={"num_key_value_heads": 4, "sliding_window": 513, "head_dim": 128},
    ),
    "laguna": Decoder(
        attention={**BIASED, "qk_norm": True, "attn_output_gate": _gate_per_number},
        windows=never,
        experts=experts(
            shared_intermediate_size=size("shared_expert_intermediate_size", 512),
            router_bias=True,
        ),
        sparse=after("first_k_dense_replace", 1),
        defaults={"sliding_window": 512, "head_dim": 128, "num_key_value_heads": 8},
        modern=modern_laguna,
        note=_GATES,
    ),
    "mellum": Decoder(
        attention={**BIASED, "qk_norm": True},
        windows=never,
        experts=experts(),
        defaults={"num_key_value_heads": 4, "sliding_window": 1024, "head_dim": 128},
    ),
    "mimo_v2_flash": Decoder(
        attention={"qkv_bias": flag("attention_bias")},
        base=_unequal_heads,
        windows=lambda _, layer: layer > 0 and (layer + 1) % 6 != 0,
        in_windows={"sinks": True, "num_key_value_heads": _heads_of_mimo},
        experts=experts(router_bias=True),
        sparse=after("first_k_dense_replace", 1),
        defaults={"sliding_window": 129, "num_key_value_heads": 4},
        modern=modern_mimo,
        note="Keys and values differ in width per head: head_dim is their mean.",
    ),
    "minimax_m3_vl_text": Decoder(
        attention={"qk_norm": True},
        feed_forward={"intermediate_size": size("dense_intermediate_size", 12288)},
        experts=experts(
            width="intermediate_size",
            shared_intermediate_size=size("shared_intermediate_size", 3072),
            router_bias=True,
        ),
        defaults={"num_key_value_heads": 4, "head_dim": 128},
        modern=modern_minimax,
    ),
    "mistral4": Decoder(
        base=latent_attention,
        experts=experts(
            shared_intermediate_size=times("n_shared_experts", "moe_intermediate_size", 1)
        ),
        sparse=after("first_k_dense_replace", 0),
        only=(_LATENT_BIAS,),
        defaults={"q_lora_rank": 1024},
    ),
    "muse_spark_text": Decoder(
        attention={**BIASED, "attn_output_gate": True},
        windows=all_but_every_from_last(4),
        experts=experts(moe_latent_size=size("moe_hidden_size", 4096), router_bias=True),
        layer={"norms_per_layer": 5},
        sparse_layer={"norms_per_layer": 6},
        defaults={"num_key_value_heads": 16, "sliding_window": 2048, "head_dim": 64},
        note="Gates of residuals are counted as norms; those of the experts as one.",
    ),
    "qwen3_omni_moe_text": _QWEN3_SEEING,
    "qwen3_vl_moe_text": _QWEN3_SEEING,
    "solar_open": Decoder(
        attention={"qkv_bias": flag("attention_bias")},
        experts=experts(**_SHARED),
        defaults={"num_key_value_heads": 8, "head_dim": 128},
    ),
    "step3p5": Decoder(
        attention={**BIASED, "qk_norm": True},
        windows=never,
        in_windows={"num_attention_heads": _heads_of_step},
        experts=experts(
            shared_intermediate_size=size("share_expert_dim", 1280),
            router_bias=True,
        ),
        defaults={"head_dim": 128, "num_key_value_heads": 8},
        modern=modern_step,
        note=_GATES,
    ),
}
