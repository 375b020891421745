"""Dense families with code in ``transformers``, and the text part of those that also see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from planner.specs import hugging_face_layers as layers
from planner.specs.hugging_face_layers import Table
from planner.specs.hugging_face_reader import ConfigReader

# What transformers' Gemma3TextConfig has where config.json is silent.
_GEMMA3 = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
}


def _with_windows(
    config: ConfigReader,
    is_windowed: Sequence[bool],
    group: Table | None = None,
    **attention: Any,
) -> list[Table]:
    """Groups of dense layers that differ in their window alone."""

    def build(windowed: bool) -> Table:
        own = layers.attention(config, sliding_window=window if windowed else None, **attention)
        return layers.group(config, own, layers.dense(config), **(group or {}))

    window = config.optional_size("sliding_window")
    if window is None:
        is_windowed = [False] * len(is_windowed)
    return layers.groups(is_windowed, build)


def _all_but_every(config: ConfigReader, key: str, default: int) -> list[bool]:
    """For every layer, whether it attends within a window: all but one in ``key``."""
    every = config.size(key, default)
    return layers.windowed(config, lambda layer: (layer + 1) % every != 0)


def _same_layers(config: ConfigReader, mlp: Table | None = None, **attention: Any) -> Table:
    """Full attention and an MLP in all layers; ``mlp`` and ``attention`` say how they are."""
    feed_forward = layers.dense(config, **(mlp or {}))
    group = layers.group(config, layers.attention(config, **attention), feed_forward)
    return layers.decoder(config, [group])


def _gemma3_text(config: ConfigReader) -> Table:
    config = config.or_else({**_GEMMA3, "sliding_window": 4096})
    groups = _with_windows(
        config,
        _all_but_every(config, "sliding_window_pattern", 6),
        {"norms_per_layer": 4},
        qk_norm=True,
        **layers.biased(config),
    )
    return layers.decoder(config, groups, tied=True)


def _glm(config: ConfigReader) -> Table:
    return _glm_layers(config, norms=2)


def _glm4(config: ConfigReader) -> Table:
    return _glm_layers(config, norms=4)


def _glm_layers(config: ConfigReader, norms: int) -> Table:
    attention = layers.attention(config, qkv_bias=config.flag("attention_bias", True))
    group = layers.group(config, attention, layers.dense(config), norms_per_layer=norms)
    return layers.decoder(config, [group])


def _ministral(config: ConfigReader) -> Table:
    return layers.decoder(config, _with_windows(config, layers.windowed(config, lambda _: True)))


def _ministral3(config: ConfigReader) -> Table:
    return layers.decoder(config, _with_windows(config, [True] * config.layers()))


def _olmo2(config: ConfigReader) -> Table:
    return layers.decoder(config, _olmo_groups(config, [False] * config.layers()))


def _olmo3(config: ConfigReader) -> Table:
    config = config.or_else({"sliding_window": 4096})
    is_windowed = layers.windowed(config, lambda layer: (layer + 1) % 4 != 0)
    return layers.decoder(config, _olmo_groups(config, is_windowed))


def _olmo_groups(config: ConfigReader, is_windowed: Sequence[bool]) -> list[Table]:
    return _with_windows(
        config, is_windowed, qk_norm=True, qk_norm_per_head=True, **layers.biased(config)
    )


def _seed_oss(config: ConfigReader) -> Table:
    bias = config.flag("attention_bias", True)
    output_bias = config.flag("attention_out_bias", False)
    mlp = {"bias": config.flag("mlp_bias", False)}
    return _same_layers(config, mlp, qkv_bias=bias, output_bias=output_bias)


def _ernie4_5(config: ConfigReader) -> Table:
    bias = config.flag("use_bias", False)
    attention = layers.attention(config, qkv_bias=bias, output_bias=bias)
    group = layers.group(config, attention, layers.dense(config, bias=bias))
    return layers.decoder(config, [group], tied=True)


def _internlm3(config: ConfigReader) -> Table:
    bias = config.flag("bias", False)
    qkv_bias = config.flag("qkv_bias", False)
    return _same_layers(config, {"bias": bias}, qkv_bias=qkv_bias, output_bias=bias)


def _hunyuan_v1_dense(config: ConfigReader) -> Table:
    config.refuse("use_cla", only=False)
    bias, norm = config.flag("attention_bias", False), config.flag("use_qk_norm", True)
    return _same_layers(config, qkv_bias=bias, output_bias=bias, qk_norm=norm)


def _smollm3(config: ConfigReader) -> Table:
    for key in ("attention_bias", "mlp_bias"):
        config.refuse(key, only=False)
    return layers.decoder(config, _with_windows(config, _smollm3_windows(config)), tied=True)


def _smollm3_windows(config: ConfigReader) -> list[bool]:
    if not config.flag("use_sliding_window", False):
        return [False] * config.layers()
    every = config.size("no_rope_layer_interval", 4)
    has_rope = config.sequence("no_rope_layers", config.layers())
    if has_rope is None:
        return layers.windowed(config, lambda layer: (layer + 1) % every == 0)
    return layers.windowed(config, lambda layer: not has_rope[layer])


def _exaone4(config: ConfigReader) -> Table:
    pattern = config.values.get("sliding_window_pattern")
    if pattern == 0:  # transformers 5 says so that there are no windows
        kinds = layers.windowed(config, lambda _: False)
    elif isinstance(pattern, str) and pattern:
        kinds = layers.windowed(config, lambda layer: pattern[layer % len(pattern)] == "L")
    else:
        kinds = _all_but_every(config, "sliding_window_pattern", 4)
    return layers.decoder(config, _with_windows(config, kinds, qk_norm=True))


def _cohere2(config: ConfigReader) -> Table:
    group = {"norms_per_layer": 1, "parallel_residual": True}
    config.refuse("use_qk_norm", only=False)
    config = config.or_else({"sliding_window": 4096})
    kinds = _all_but_every(config, "sliding_window_pattern", 4)
    groups = _with_windows(config, kinds, group, **layers.biased(config))
    return layers.decoder(config, groups, tied=True)


def _starcoder2(config: ConfigReader) -> Table:
    bias = config.flag("use_bias", True)
    window = config.optional_size("sliding_window")
    attention = layers.attention(config, qkv_bias=bias, output_bias=bias, sliding_window=window)
    return layers.layer_norm_decoder(config, attention, config.size("intermediate_size"), bias=bias)


def _gpt_bigcode(config: ConfigReader) -> Table:
    shared = 1 if config.flag("multi_query", True) else None
    return layers.layer_norm_decoder(
        config,
        layers.attention(config, num_key_value_heads=shared, qkv_bias=True, output_bias=True),
        config.optional_size("n_inner") or 4 * config.size("hidden_size"),
        position_embedding="learned",
        max_position_embeddings=config.size("max_position_embeddings", 1024),
    )


def _nemotron(config: ConfigReader) -> Table:
    return layers.layer_norm_decoder(
        config,
        layers.attention(config, **layers.biased(config)),
        config.size("intermediate_size"),
        bias=config.flag("mlp_bias", False),
        tied=False,
    )


def _arcee(config: ConfigReader) -> Table:
    mlp = {"gated": False, "bias": config.flag("mlp_bias", False)}
    return _same_layers(config, mlp, **layers.biased(config))


def _stablelm(config: ConfigReader) -> Table:
    norm, parallel = (config.flag(key, False) for key in ("qk_layernorm", "use_parallel_residual"))
    attention = layers.attention(
        config,
        qkv_bias=config.flag("use_qkv_bias", False),
        qk_norm=norm,
        qk_norm_per_head=norm,
    )
    norms = {"norm_bias": True, "norms_per_layer": 1 if parallel else 2}
    group = layers.group(
        config, attention, layers.dense(config), parallel_residual=parallel, **norms
    )
    return layers.decoder(config, [group], final_norm_bias=True)


def _qwen2_text(config: ConfigReader) -> Table:
    config.refuse("use_sliding_window", only=False)
    return _same_layers(config, qkv_bias=True)


def _qwen3_text(config: ConfigReader) -> Table:
    return _same_layers(config, qk_norm=True, **layers.biased(config))


DENSE_FAMILIES: dict[str, Callable[[ConfigReader], Table]] = {
    "arcee": _arcee,
    "cohere2": _cohere2,
    "ernie4_5": _ernie4_5,
    "exaone4": _exaone4,
    "gemma3_text": _gemma3_text,
    "glm": _glm,
    "glm4": _glm4,
    "glm4v_text": _glm4,
    "gpt_bigcode": _gpt_bigcode,
    "hunyuan_v1_dense": _hunyuan_v1_dense,
    "internlm3": _internlm3,
    "ministral": _ministral,
    "ministral3": _ministral3,
    "nemotron": _nemotron,
    "olmo2": _olmo2,
    "olmo3": _olmo3,
    "qwen2_5_vl_text": _qwen2_text,
    "qwen2_vl_text": _qwen2_text,
    "qwen3_vl_text": _qwen3_text,
    "seed_oss": _seed_oss,
    "smollm3": _smollm3,
    "stablelm": _stablelm,
    "starcoder2": _starcoder2,
}
