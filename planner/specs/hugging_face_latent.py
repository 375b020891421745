"""Families of latent attention: DeepSeek, Kimi, and GLM from its fifth generation on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from planner.specs import hugging_face_layers as layers
from planner.specs.hugging_face_layers import Table
from planner.specs.hugging_face_reader import ConfigReader

# What transformers' GlmMoeDsaConfig has where config.json is silent.
_GLM_DENSE_LAYERS = 3
_INDEX_TOPK = 2048
_INDEX_HEAD_DIM = 128


def _deepseek_v2(config: ConfigReader) -> Table:
    noaux = config.values.get("topk_method") == "noaux_tc"
    return _decoder(config, latent_attention(config), _with_experts(config), router_bias=noaux)


def _deepseek_v3(config: ConfigReader) -> Table:
    return _decoder(config, latent_attention(config), _with_experts(config))


def _deepseek_v32(config: ConfigReader) -> Table:
    attention = latent_attention(config) | _indexer(config, num_heads=64)
    return _decoder(config, attention, _with_experts(config))


def _glm_moe_dsa(config: ConfigReader) -> Table:
    attention = latent_attention(config) | _indexer(config, num_heads=32)
    return _decoder(config, attention, _glm_experts(config, dense=_GLM_DENSE_LAYERS))


def _glm4_moe_lite(config: ConfigReader) -> Table:
    return _decoder(config, latent_attention(config), _glm_experts(config, dense=1))


def _glm_experts(config: ConfigReader, dense: int) -> list[bool]:
    first = config.size("first_k_dense_replace", dense, least=0)
    kinds = {"dense": False, "sparse": True}
    return layers.told_apart(config, "mlp_layer_types", kinds, lambda layer: layer >= first)


def _decoder(
    config: ConfigReader, attention: Table, has_experts: Sequence[bool], router_bias: bool = True
) -> Table:
    def build(with_experts: bool) -> Table:
        return layers.group(config, attention, experts if with_experts else layers.dense(config))

    config.refuse("attention_bias", only=False)
    one, shared = config.size("moe_intermediate_size"), config.size("n_shared_experts", 0, least=0)
    experts = {
        "num_experts": config.size("n_routed_experts"),
        "num_experts_per_tok": config.size("num_experts_per_tok"),
        "moe_intermediate_size": one,
        "shared_intermediate_size": shared * one,
        "router_bias": router_bias,
    }
    return layers.decoder(config, layers.groups(has_experts, build))


def _with_experts(config: ConfigReader) -> list[bool]:
    first = config.size("first_k_dense_replace", 0, least=0)
    step = config.size("moe_layer_freq", 1)
    return [layer >= first and layer % step == 0 for layer in range(config.layers())]


def latent_attention(config: ConfigReader, **fields: Any) -> Table:
    """Latent attention by the names of DeepSeek; ``fields`` are what the family fixes."""
    heads = config.size("num_attention_heads")
    rotary = config.size("qk_rope_head_dim")
    return {
        "kind": "latent",
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": config.size("qk_nope_head_dim") + rotary,
        "qk_rope_head_dim": rotary,
        "v_head_dim": config.size("v_head_dim"),
        "q_lora_rank": config.size("q_lora_rank", 0, least=0),
        "kv_lora_rank": config.size("kv_lora_rank"),
        **fields,
    }


def _indexer(config: ConfigReader, num_heads: int) -> Table:
    """The indexer of sparse attention, one in every layer."""
    own = {"full": True, "shared": False}
    every = config.size("index_topk_freq", 1) == 1
    if not (every and all(layers.told_apart(config, "indexer_types", own, lambda _: True))):
        config.fault("indexer_types", "other than full in every layer are not supported")
    return {
        "index_n_heads": config.size("index_n_heads", num_heads),
        "index_head_dim": config.size("index_head_dim", _INDEX_HEAD_DIM),
        "index_topk": config.size("index_topk", _INDEX_TOPK),
    }


LATENT_FAMILIES: dict[str, Callable[[ConfigReader], Table]] = {
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "deepseek_v32": _deepseek_v32,
    "glm4_moe_lite": _glm4_moe_lite,
    "glm_moe_dsa": _glm_moe_dsa,
    "kimi_k2": _deepseek_v3,
}
