"""Dense families whose code comes with the checkpoint and not with ``transformers``."""

from __future__ import annotations

from collections.abc import Callable

from planner.specs import hugging_face_layers as layers
from planner.specs.hugging_face_layers import Table
from planner.specs.hugging_face_reader import ConfigReader

# Of the Baichuan models that share a model_type, those of this width have rotary positions.
_ROTARY_BAICHUAN = 4096


def _plain(config: ConfigReader, bias: bool = False) -> Table:
    """Llama's layers; ``bias`` is that of the four projections of attention."""
    attention = layers.attention(config, qkv_bias=bias, output_bias=bias)
    return layers.decoder(config, [layers.group(config, attention, layers.dense(config))])


def _internlm(config: ConfigReader) -> Table:
    return _plain(config, config.flag("bias", True))


def _baichuan(config: ConfigReader) -> Table:
    config = config.or_else({"max_position_embeddings": config.optional_size("model_max_length")})
    rotary = config.size("hidden_size") == _ROTARY_BAICHUAN
    return _plain(config) | {"position_embedding": "rotary" if rotary else "alibi"}


def _chatglm(config: ConfigReader) -> Table:
    for key, only in (("add_bias_linear", False), ("rmsnorm", True), ("post_layer_norm", True)):
        config.refuse(key, only=only)
    several = config.flag("multi_query_attention", False)
    names = {
        "vocab_size": config.size("padded_vocab_size"),
        "intermediate_size": config.size("ffn_hidden_size"),
        "head_dim": config.size("kv_channels", 128),
        "max_position_embeddings": config.optional_size("seq_length"),
    }
    config = config.or_else(names)
    shared = config.size("multi_query_group_num", 1) if several else None
    bias = config.flag("add_qkv_bias", False)
    attention = layers.attention(config, num_key_value_heads=shared, qkv_bias=bias)
    return layers.decoder(config, [layers.group(config, attention, layers.dense(config))])


def _qwen(config: ConfigReader) -> Table:
    config.refuse("no_bias", only=True)
    config = config.or_else(
        {
            "head_dim": config.optional_size("kv_channels"),
            "max_position_embeddings": config.optional_size("seq_length"),
        }
    )
    both = config.size("intermediate_size", least=2)
    if both % 2:
        config.fault("intermediate_size", f"{both} is not twice a whole number")
    mlp = {"intermediate_size": both // 2}
    return layers.decoder(
        config, [layers.group(config, layers.attention(config, qkv_bias=True), mlp)]
    )


REMOTE_FAMILIES: dict[str, Callable[[ConfigReader], Table]] = {
    "aquila": _plain,
    "baichuan": _baichuan,
    "chatglm": _chatglm,
    "exaone": _plain,
    "internlm": _internlm,
    "internlm2": _internlm,
    "qwen": _qwen,
    "xverse": _plain,
}
