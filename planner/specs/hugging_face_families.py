"""What each ``model_type`` of Hugging Face means: from ``config.json`` to a model table.

One function per family. It says what the family's code in ``transformers`` fixes and
reads what the config may change, with the defaults of ``transformers``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.specs import hugging_face_layers as layers
from planner.specs.hugging_face_composites import composites
from planner.specs.hugging_face_defaults import with_defaults
from planner.specs.hugging_face_dense import DENSE_FAMILIES
from planner.specs.hugging_face_dense_rows import DENSE_ROWS
from planner.specs.hugging_face_expert_rows import EXPERT_ROWS
from planner.specs.hugging_face_experts import EXPERT_FAMILIES
from planner.specs.hugging_face_hybrid_rows import HYBRID_ROWS
from planner.specs.hugging_face_latent import LATENT_FAMILIES
from planner.specs.hugging_face_layers import Table
from planner.specs.hugging_face_nemotron import NEMOTRON_FAMILIES
from planner.specs.hugging_face_reader import ConfigReader
from planner.specs.hugging_face_remote import REMOTE_FAMILIES


def _with_experts(config: ConfigReader) -> list[bool]:
    """For every layer of a Qwen mixture of experts, whether it has experts."""
    dense = config.sequence("mlp_only_layers") or ()
    step = config.size("decoder_sparse_step", 1)
    return [layer not in dense and (layer + 1) % step == 0 for layer in range(config.layers())]


def _llama(config: ConfigReader) -> Table:
    attention = layers.attention(config, **layers.biased(config))
    mlp = layers.dense(config, bias=config.flag("mlp_bias", False))
    return layers.decoder(config, [layers.group(config, attention, mlp)])


def _mistral(config: ConfigReader) -> Table:
    attention = layers.attention(config, sliding_window=config.optional_size("sliding_window"))
    return layers.decoder(config, [layers.group(config, attention, layers.dense(config))])


def _mixtral(config: ConfigReader) -> Table:
    attention = layers.attention(config, sliding_window=config.optional_size("sliding_window"))
    experts = {
        "num_experts": config.size("num_local_experts"),
        "num_experts_per_tok": config.size("num_experts_per_tok"),
        "moe_intermediate_size": config.size("intermediate_size"),
    }
    return layers.decoder(config, [layers.group(config, attention, experts)])


def _qwen(config: ConfigReader, **attention: Any) -> Table:
    def build(windowed: bool) -> Table:
        window = config.optional_size("sliding_window") if windowed else None
        return layers.group(
            config, layers.attention(config, sliding_window=window, **attention), mlp
        )

    mlp = layers.dense(config)
    return layers.decoder(config, layers.groups(_qwen_windows(config), build))


def _qwen_windows(config: ConfigReader) -> list[bool]:
    if not config.flag("use_sliding_window", False):
        return [False] * config.layers()
    first = config.size("max_window_layers", 28, least=0)
    return layers.windowed(config, lambda layer: layer >= first)


def _qwen2(config: ConfigReader) -> Table:
    return _qwen(config, qkv_bias=True)


def _qwen3(config: ConfigReader) -> Table:
    return _qwen(config, qk_norm=True, **layers.biased(config))


def _qwen_experts(config: ConfigReader, attention: Table, shared: Table) -> Table:
    def build(has_experts: bool) -> Table:
        return layers.group(config, attention, experts if has_experts else layers.dense(config))

    config.refuse("use_sliding_window", only=False)
    experts = shared | {
        "num_experts": config.size("num_experts"),
        "num_experts_per_tok": config.size("num_experts_per_tok"),
        "moe_intermediate_size": config.size("moe_intermediate_size"),
    }
    return layers.decoder(config, layers.groups(_with_experts(config), build))


def _qwen2_moe(config: ConfigReader) -> Table:
    shared = {
        "shared_intermediate_size": config.size("shared_expert_intermediate_size"),
        "shared_expert_gate": True,
    }
    return _qwen_experts(config, layers.attention(config, qkv_bias=True), shared)


def _qwen3_moe(config: ConfigReader) -> Table:
    attention = layers.attention(config, qk_norm=True, **layers.biased(config))
    return _qwen_experts(config, attention, {})


def _minimax_m2(config: ConfigReader) -> Table:
    norm = config.flag("use_qk_norm", True)
    attention = layers.attention(config, qk_norm=norm, qk_norm_per_head=norm)
    experts = {
        "num_experts": config.size("num_local_experts"),
        "num_experts_per_tok": config.size("num_experts_per_tok"),
        "moe_intermediate_size": config.size("intermediate_size"),
        "shared_intermediate_size": config.size("shared_intermediate_size", 0, least=0),
        "router_bias": config.flag("use_routing_bias", True),
    }
    return layers.decoder(config, [layers.group(config, attention, experts)])


def _gemma(config: ConfigReader) -> Table:
    attention = layers.attention(config, **layers.biased(config))
    return layers.decoder(
        config, [layers.group(config, attention, layers.dense(config))], tied=True
    )


def _gemma2(config: ConfigReader) -> Table:
    def build(windowed: bool) -> Table:
        attention = layers.attention(config, sliding_window=window if windowed else None)
        return layers.group(config, attention, layers.dense(config), norms_per_layer=4)

    window = config.size("sliding_window", 4096)
    groups = layers.groups(layers.windowed(config, lambda layer: layer % 2 == 0), build)
    return layers.decoder(config, groups, tied=True)


def _phi(config: ConfigReader) -> Table:
    config.refuse("qk_layernorm", only=False)
    attention = layers.attention(config, qkv_bias=True, output_bias=True)
    mlp = layers.dense(config, gated=False, bias=True)
    norms = {"norms_per_layer": 1, "norm_bias": True, "parallel_residual": True}
    group = layers.group(config, attention, mlp, **norms)
    return layers.decoder(config, [group], final_norm_bias=True, logits_bias=True)


def _phi3(config: ConfigReader) -> Table:
    attention = layers.attention(config, sliding_window=config.optional_size("sliding_window"))
    return layers.decoder(config, [layers.group(config, attention, layers.dense(config))])


def _phi4_multimodal(config: ConfigReader) -> Table:
    return _phi3(config) | {"notes": layers.TEXT_PART}


def _cohere(config: ConfigReader) -> Table:
    bias, norm = config.flag("attention_bias", False), config.flag("use_qk_norm", False)
    attention = layers.attention(
        config, qkv_bias=bias, output_bias=bias, qk_norm=norm, qk_norm_per_head=norm
    )
    group = layers.group(
        config, attention, layers.dense(config), norms_per_layer=1, parallel_residual=True
    )
    return layers.decoder(config, [group], tied=True)


def _gpt2(config: ConfigReader) -> Table:
    attention = layers.attention(config, qkv_bias=True, output_bias=True)
    width = config.optional_size("n_inner") or 4 * config.size("hidden_size")
    return layers.layer_norm_decoder(
        config,
        attention,
        width,
        position_embedding="learned",
        max_position_embeddings=config.size("max_position_embeddings", 1024),
    )


def _gptj(config: ConfigReader) -> Table:
    width = config.optional_size("n_inner") or 4 * config.size("hidden_size")
    group = {"norms_per_layer": 1, "parallel_residual": True}
    return layers.layer_norm_decoder(
        config, layers.attention(config), width, group_fields=group, tied=False, logits_bias=True
    )


def _gpt_neox(config: ConfigReader) -> Table:
    attention = layers.attention(config, **layers.biased(config, default=True))
    group = {"parallel_residual": config.flag("use_parallel_residual", True)}
    width = config.size("intermediate_size")
    return layers.layer_norm_decoder(config, attention, width, group_fields=group, tied=False)


def _opt(config: ConfigReader) -> Table:
    config.refuse("do_layer_norm_before", only=True)
    hidden = config.size("hidden_size")
    if config.size("word_embed_proj_dim", hidden) != hidden:
        config.fault("word_embed_proj_dim", f"other than hidden_size {hidden} is not supported")
    bias = config.flag("enable_bias", True)
    return layers.layer_norm_decoder(
        config,
        layers.attention(config, qkv_bias=bias, output_bias=bias),
        config.size("ffn_dim"),
        bias=bias,
        position_embedding="learned",
        position_embedding_offset=2,
        max_position_embeddings=config.size("max_position_embeddings", 2048),
    )


def _bloom(config: ConfigReader) -> Table:
    return layers.layer_norm_decoder(
        config,
        layers.attention(config, qkv_bias=True, output_bias=True),
        4 * config.size("hidden_size"),
        position_embedding="alibi",
        embedding_norm=True,
    )


def _mpt(config: ConfigReader) -> Table:
    inner = config.table("attn_config")
    bias = not config.flag("no_bias", True)
    shared = inner.optional_size("kv_n_heads")
    alibi, rotary = inner.flag("alibi", False), inner.flag("rope", False)
    attention = layers.attention(
        config, num_key_value_heads=shared, qkv_bias=bias, output_bias=bias
    )
    width = config.size("expansion_ratio", 4) * config.size("hidden_size")
    return layers.layer_norm_decoder(
        config,
        attention,
        width,
        bias=bias,
        norm_bias=bias,
        position_embedding="alibi" if alibi else "rotary" if rotary else "learned",
        max_position_embeddings=config.size("max_position_embeddings", 2048),
    )


def _falcon(config: ConfigReader) -> Table:
    new = config.flag("new_decoder_architecture", False)
    bias = config.flag("bias", False)
    parallel = new or config.flag("parallel_attn", True)
    norms = config.size("num_ln_in_parallel_attn", 2) if new else 1
    width = config.optional_size("ffn_hidden_size") or 4 * config.size("hidden_size")
    heads = _falcon_key_value_heads(config, new)
    return layers.layer_norm_decoder(
        config,
        layers.attention(config, num_key_value_heads=heads, qkv_bias=bias, output_bias=bias),
        width,
        bias=bias,
        group_fields={"norms_per_layer": norms if parallel else 2, "parallel_residual": parallel},
        position_embedding="alibi" if config.flag("alibi", False) else "rotary",
    )


def _falcon_key_value_heads(config: ConfigReader, new: bool) -> int:
    heads = config.size("num_attention_heads")
    if new:
        return config.size("num_kv_heads", heads)
    return 1 if config.flag("multi_query", True) else heads


def _gpt_oss(config: ConfigReader) -> Table:
    def build(windowed: bool) -> Table:
        attention = layers.attention(
            config,
            qkv_bias=bias,
            output_bias=bias,
            sinks=True,
            sliding_window=window if windowed else None,
        )
        return layers.group(config, attention, experts)

    bias, window = config.flag("attention_bias", True), config.size("sliding_window", 128)
    experts = {
        "num_experts": config.size("num_local_experts"),
        "num_experts_per_tok": config.size("num_experts_per_tok"),
        "moe_intermediate_size": config.size("intermediate_size"),
        "bias": True,
        "router_bias": True,
    }
    return layers.decoder(
        config, layers.groups(layers.windowed(config, lambda layer: layer % 2 == 0), build)
    )


def _llama4(config: ConfigReader) -> Table:
    def build(label: tuple[bool, bool]) -> Table:
        has_experts, chunked = label
        attention = layers.attention(config, sliding_window=chunk if chunked else None)
        return layers.group(config, attention, experts if has_experts else dense)

    chunk = config.size("attention_chunk_size", 8192)
    width = config.size("intermediate_size")
    dense = {"intermediate_size": config.size("intermediate_size_mlp")}
    experts = {
        "num_experts": config.size("num_local_experts"),
        "num_experts_per_tok": config.size("num_experts_per_tok"),
        "moe_intermediate_size": width,
        "shared_intermediate_size": width,
    }
    chunks = layers.windowed(config, lambda layer: (layer + 1) % 4 != 0)
    step = config.size("interleave_moe_layer_step", 1)
    labels = [((layer + 1) % step == 0, chunked) for layer, chunked in enumerate(chunks)]
    return layers.decoder(config, layers.groups(labels, build))


_FAMILIES: dict[str, Callable[[ConfigReader], Table]] = {
    "bloom": _bloom,
    "codegen": _gptj,
    "cohere": _cohere,
    "falcon": _falcon,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "gpt_oss": _gpt_oss,
    "gptj": _gptj,
    "granite": _llama,
    "llama": _llama,
    "llama4_text": _llama4,
    "minimax_m2": _minimax_m2,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "mpt": _mpt,
    "opt": _opt,
    "phi": _phi,
    "phi3": _phi3,
    "phi4_multimodal": _phi4_multimodal,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
}

_ELSEWHERE = (
    DENSE_FAMILIES
    | EXPERT_FAMILIES
    | LATENT_FAMILIES
    | NEMOTRON_FAMILIES
    | REMOTE_FAMILIES
    | DENSE_ROWS
    | EXPERT_ROWS
    | HYBRID_ROWS
)
_TEXTS = with_defaults(_FAMILIES | _ELSEWHERE)
FAMILIES = dict(sorted((_TEXTS | composites(_TEXTS)).items()))
