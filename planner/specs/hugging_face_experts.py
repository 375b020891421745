"""Families of experts behind attention with keys and values per head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from planner.specs import hugging_face_layers as layers
from planner.specs.hugging_face_layers import Table
from planner.specs.hugging_face_reader import ConfigReader


def _routed(config: ConfigReader, experts: str, chosen: str, width: str, **fields: Any) -> Table:
    """A mixture of experts by the names that the family gives it."""
    return {
        "num_experts": config.size(experts),
        "num_experts_per_tok": config.size(chosen),
        "moe_intermediate_size": config.size(width),
        **fields,
    }


def _decoder(
    config: ConfigReader,
    attention: Table,
    experts: Table,
    has_experts: Sequence[bool] | None = None,
    group: Table | None = None,
    **fields: Any,
) -> Table:
    def build(with_experts: bool) -> Table:
        mlp = experts if with_experts else layers.dense(config, bias=experts.get("bias", False))
        return layers.group(config, attention, mlp, **(group or {}))

    kinds = [True] * config.layers() if has_experts is None else has_experts
    return layers.decoder(config, layers.groups(kinds, build), **fields)


def _after_dense(config: ConfigReader, default: int) -> list[bool]:
    """For every layer, whether it has experts: all after the first, dense ones."""
    first = config.size("first_k_dense_replace", default, least=0)
    return [layer >= first for layer in range(config.layers())]


def _deepseek_experts(config: ConfigReader, shared: int, **fields: Any) -> Table:
    """Experts by the names of DeepSeek, with ``shared`` shared ones by default."""
    width = config.size("moe_intermediate_size")
    number = config.size("n_shared_experts", shared, least=0)
    table = _routed(config, "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size")
    return table | {"shared_intermediate_size": number * width, **fields}


def _glm4_moe(config: ConfigReader) -> Table:
    norm = config.flag("use_qk_norm", False)
    return _glm_layers(config, config.flag("attention_bias", False), norm)


def _glm4v_moe_text(config: ConfigReader) -> Table:
    return _glm_layers(config, config.flag("attention_bias", True), norm=False)


def _glm_layers(config: ConfigReader, bias: bool, norm: bool) -> Table:
    attention = layers.attention(config, qkv_bias=bias, qk_norm=norm)
    experts = _deepseek_experts(config, shared=1, router_bias=True)
    return _decoder(config, attention, experts, _after_dense(config, default=1))


def _dots1(config: ConfigReader) -> Table:
    first = config.size("max_window_layers", 62, least=0)
    window = config.optional_size("sliding_window")
    if any(layers.windowed(config, lambda layer: window is not None and layer >= first)):
        config.fault("layer_types", "other than full_attention are not supported")
    attention = layers.attention(config, qk_norm=True, **layers.biased(config))
    experts = _deepseek_experts(config, shared=0, router_bias=True)
    return _decoder(config, attention, experts, _after_dense(config, default=0))


def _deepseek(config: ConfigReader) -> Table:
    step = config.size("moe_layer_freq", 1)
    kinds = [
        after and layer % step == 0 for layer, after in enumerate(_after_dense(config, default=0))
    ]
    attention = layers.attention(config, **layers.biased(config))
    return _decoder(config, attention, _deepseek_experts(config, shared=0), kinds)


def _olmoe(config: ConfigReader) -> Table:
    attention = layers.attention(
        config, qk_norm=True, qk_norm_per_head=True, **layers.biased(config)
    )
    experts = _routed(config, "num_experts", "num_experts_per_tok", "intermediate_size")
    return _decoder(config, attention, experts)


def _granitemoe(config: ConfigReader) -> Table:
    shared = config.size("shared_intermediate_size", 0, least=0)
    experts = _routed(
        config,
        "num_local_experts",
        "num_experts_per_tok",
        "intermediate_size",
        shared_intermediate_size=shared,
    )
    return _decoder(config, layers.attention(config, **layers.biased(config)), experts)


def _phimoe(config: ConfigReader) -> Table:
    window = config.optional_size("sliding_window")
    attention = layers.attention(config, sliding_window=window, **layers.biased(config))
    experts = _routed(config, "num_local_experts", "num_experts_per_tok", "intermediate_size")
    return _decoder(
        config,
        attention,
        experts,
        group={"norm_bias": True},
        final_norm_bias=True,
        logits_bias=config.flag("lm_head_bias", False),
    )


def _dbrx(config: ConfigReader) -> Table:
    inner, experts = config.table("attn_config"), config.table("ffn_config")
    attention = layers.attention(config, num_key_value_heads=inner.size("kv_n_heads", 1))
    table = _routed(experts, "moe_num_experts", "moe_top_k", "ffn_hidden_size")
    return _decoder(config, attention, table)


def _ernie4_5_moe(config: ConfigReader) -> Table:
    bias, width = config.flag("use_bias", False), config.size("moe_intermediate_size")
    experts = _routed(
        config,
        "moe_num_experts",
        "moe_k",
        "moe_intermediate_size",
        shared_intermediate_size=config.size("moe_num_shared_experts", 2, least=0) * width,
        router_bias=True,
        bias=bias,
    )
    attention = layers.attention(config, qkv_bias=bias, output_bias=bias)
    kinds = _ernie_experts(config)
    return _decoder(config, attention, experts, kinds, tied=True, logits_bias=bias)


def _ernie_experts(config: ConfigReader) -> list[bool]:
    first = config.size("moe_layer_start_index", 1, least=0)
    end = config.size("moe_layer_end_index", -1, least=-1)
    last = config.layers() - 1 if end == -1 else end
    step = config.size("moe_layer_interval", 1)
    return [first <= layer <= last and (layer + 1) % step == 0 for layer in range(config.layers())]


def _hunyuan_v1_moe(config: ConfigReader) -> Table:
    config.refuse("use_cla", only=False)
    config.refuse("use_mixed_mlp_moe", only=True)
    if config.size("moe_layer_num_skipped", 0, least=0):
        config.fault("moe_layer_num_skipped", "other than 0 is not supported")
    norm = config.flag("use_qk_norm", True)
    width = _alike(config, "moe_intermediate_size", config.size("intermediate_size"))
    experts = {
        "num_experts": _alike(config, "num_experts"),
        "num_experts_per_tok": _alike(config, "moe_topk"),
        "moe_intermediate_size": width,
        "shared_intermediate_size": _alike(config, "num_shared_expert", 1) * width,
    }
    return _decoder(
        config, layers.attention(config, qk_norm=norm, **layers.biased(config)), experts
    )


def _alike(config: ConfigReader, key: str, default: int | None = None) -> int:
    """A size that may be a list with one entry per layer, where all are the same."""
    if not isinstance(config.values.get(key), list):
        return config.size(key, default)
    entries = config.sequence(key, config.layers()) or [1]
    if any(entry != entries[0] for entry in entries):
        config.fault(key, "must be the same in all layers")
    return ConfigReader({key: entries[0]}, config.faults, config.prefix).size(key)


EXPERT_FAMILIES: dict[str, Callable[[ConfigReader], Table]] = {
    "dbrx": _dbrx,
    "deepseek": _deepseek,
    "dots1": _dots1,
    "ernie4_5_moe": _ernie4_5_moe,
    "glm4_moe": _glm4_moe,
    "glm4v_moe_text": _glm4v_moe_text,
    "granitemoe": _granitemoe,
    "granitemoeshared": _granitemoe,
    "hunyuan_v1_moe": _hunyuan_v1_moe,
    "olmoe": _olmoe,
    "phimoe": _phimoe,
}
