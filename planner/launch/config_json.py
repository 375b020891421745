"""The ``config.json`` of a model: what its shape is called in Hugging Face Transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from planner.base.enums import AttentionKind
from planner.errors import SpecError
from planner.specs.hugging_face_families import FAMILIES
from planner.specs.hugging_face_reader import ConfigReader
from planner.specs.load import check_spec
from planner.specs.model import AttentionSpec, FeedForwardSpec, LayerGroup, ModelSpec

Config = dict[str, Any]

# What a family's code needs although no size says it.
_FIXED: dict[str, Config] = {
    "bloom": {},
    "deepseek_v3": {"hidden_act": "silu", "scoring_func": "sigmoid", "norm_topk_prob": True},
    "gpt2": {"activation_function": "gelu_new"},
    "gpt_neox": {"hidden_act": "gelu", "use_parallel_residual": True},
    "opt": {"activation_function": "relu", "do_layer_norm_before": True},
    "qwen2": {"hidden_act": "silu", "use_sliding_window": False},
}
_ARCHITECTURES = {
    "bloom": "BloomForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gpt_neox": "GPTNeoXForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "opt": "OPTForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}
_EXPERT_GROUPS = 8


def config_json(model: ModelSpec) -> Config | None:
    """The ``config.json`` of a model of a family that Transformers has; None for others.

    It has what fixes the shape, and no numbers that no spec of ours knows, such as the base of
    rotary embeddings: Transformers' defaults stand there. Modules of multi-token prediction that
    are trained beside the layers are not among its layers.
    """
    whole = without_modules(model)
    for family, config in _candidates(whole):
        named = {
            "architectures": [_ARCHITECTURES[family]],
            "model_type": family,
            **_common(whole),
            **config,
            **_FIXED.get(family, {}),
        }
        if _reads_back(named, whole):
            return named
    return None


def family_of(model: ModelSpec) -> str | None:
    """The ``model_type`` of a model's shape; None where Transformers' families have none."""
    config = config_json(model)
    return None if config is None else str(config["model_type"])


def without_modules(model: ModelSpec) -> ModelSpec:
    """The model without the layers of modules of multi-token prediction that are trained."""
    if not model.mtp_num_layers:
        return model
    *others, last = model.layer_groups
    fewer = replace(last, num_hidden_layers=last.num_hidden_layers - model.mtp_num_layers)
    return replace(model, layer_groups=(*others, fewer), mtp_num_layers=0)


def _reads_back(config: Config, model: ModelSpec) -> bool:
    faults: list[str] = []
    table = FAMILIES[config["model_type"]](ConfigReader(config, faults))
    if faults:
        return False
    try:
        read = check_spec(ModelSpec, {**table, "name": model.name, "source": "it"}, where="it")
    except SpecError:
        return False
    return all(
        getattr(read, name) == getattr(model, name)
        for name in (
            "hidden_size",
            "vocab_size",
            "layer_groups",
            "tie_word_embeddings",
            "position_embedding",
            "position_embedding_offset",
            "embedding_norm",
            "final_norm_bias",
            "logits_bias",
            "num_nextn_predict_layers",
        )
    )


def _common(model: ModelSpec) -> Config:
    words: Config = {
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "num_hidden_layers": model.num_hidden_layers,
        "tie_word_embeddings": model.tie_word_embeddings,
    }
    if model.max_position_embeddings:
        words["max_position_embeddings"] = model.max_position_embeddings
    return words


def _candidates(model: ModelSpec) -> Iterator[tuple[str, Config]]:
    first, last = model.layer_groups[0], model.layer_groups[-1]
    attention, forward = last.attention, last.feed_forward
    if attention is None or forward is None or first.feed_forward is None:
        return
    if attention.kind is AttentionKind.LATENT:
        yield "deepseek_v3", _deepseek(model, first, attention, forward)
        return
    for family, words in _FAMILIES.items():
        yield family, words(model, first, attention, forward)


def _deepseek(
    model: ModelSpec, first: LayerGroup, attention: AttentionSpec, forward: FeedForwardSpec
) -> Config:
    one = forward.moe_intermediate_size or 1
    has_dense = first.num_experts == 0
    grouped = forward.num_experts % _EXPERT_GROUPS == 0
    return {
        "num_attention_heads": attention.num_attention_heads,
        "num_key_value_heads": attention.num_key_value_heads,
        "q_lora_rank": attention.q_lora_rank or None,
        "kv_lora_rank": attention.kv_lora_rank,
        "qk_nope_head_dim": attention.head_dim - attention.qk_rope_head_dim,
        "qk_rope_head_dim": attention.qk_rope_head_dim,
        "v_head_dim": attention.v_head_dim,
        "first_k_dense_replace": first.num_hidden_layers if has_dense else 0,
        "intermediate_size": _of(first).intermediate_size or one,
        "moe_intermediate_size": one,
        "n_routed_experts": forward.num_experts,
        "num_experts_per_tok": forward.num_experts_per_tok,
        "n_shared_experts": forward.shared_intermediate_size // one,
        "n_group": _EXPERT_GROUPS if grouped else 1,
        "topk_group": _EXPERT_GROUPS // 2 if grouped else 1,
        "num_nextn_predict_layers": model.num_nextn_predict_layers,
    }


def _of(group: LayerGroup) -> FeedForwardSpec:
    return group.feed_forward or FeedForwardSpec(intermediate_size=1)


def _heads(attention: AttentionSpec) -> Config:
    return {
        "num_attention_heads": attention.num_attention_heads,
        "num_key_value_heads": attention.num_key_value_heads,
        "head_dim": attention.head_dim,
    }


def _llama(_: ModelSpec, first: LayerGroup, attention: AttentionSpec, __: Any) -> Config:
    return {
        **_heads(attention),
        "intermediate_size": _of(first).intermediate_size,
        "attention_bias": attention.qkv_bias,
        "mlp_bias": _of(first).bias,
        "hidden_act": "silu",
    }


def _mistral(_: ModelSpec, first: LayerGroup, attention: AttentionSpec, __: Any) -> Config:
    return {
        **_heads(attention),
        "intermediate_size": _of(first).intermediate_size,
        "sliding_window": attention.sliding_window,
    }


def _qwen(_: ModelSpec, first: LayerGroup, attention: AttentionSpec, __: Any) -> Config:
    return {**_heads(attention), "intermediate_size": _of(first).intermediate_size}


def _mixtral(
    _: ModelSpec, first: LayerGroup, attention: AttentionSpec, forward: FeedForwardSpec
) -> Config:
    return {
        **_heads(attention),
        "sliding_window": attention.sliding_window,
        "intermediate_size": forward.moe_intermediate_size,
        "num_local_experts": forward.num_experts,
        "num_experts_per_tok": forward.num_experts_per_tok,
    }


def _qwen_experts(
    model: ModelSpec, first: LayerGroup, attention: AttentionSpec, forward: FeedForwardSpec
) -> Config:
    dense = 0 if first.num_experts else first.num_hidden_layers
    words = {
        **_heads(attention),
        "intermediate_size": _of(first).intermediate_size or model.hidden_size,
        "moe_intermediate_size": forward.moe_intermediate_size,
        "num_experts": forward.num_experts,
        "num_experts_per_tok": forward.num_experts_per_tok,
        "mlp_only_layers": list(range(dense)),
        "decoder_sparse_step": 1,
        "norm_topk_prob": True,
    }
    if forward.shared_intermediate_size:
        words["shared_expert_intermediate_size"] = forward.shared_intermediate_size
    return words


def _gpt2(model: ModelSpec, first: LayerGroup, attention: AttentionSpec, _: Any) -> Config:
    return {
        "num_attention_heads": attention.num_attention_heads,
        "n_inner": _of(first).intermediate_size,
    }


def _gpt_neox(_: ModelSpec, first: LayerGroup, attention: AttentionSpec, __: Any) -> Config:
    return {
        "num_attention_heads": attention.num_attention_heads,
        "intermediate_size": _of(first).intermediate_size,
        "attention_bias": attention.qkv_bias,
    }


def _opt(_: ModelSpec, first: LayerGroup, attention: AttentionSpec, __: Any) -> Config:
    return {
        "num_attention_heads": attention.num_attention_heads,
        "ffn_dim": _of(first).intermediate_size,
        "enable_bias": attention.qkv_bias,
    }


def _bloom(_: ModelSpec, __: LayerGroup, attention: AttentionSpec, ___: Any) -> Config:
    return {"n_head": attention.num_attention_heads}


_FAMILIES: dict[str, Callable[[ModelSpec, LayerGroup, AttentionSpec, FeedForwardSpec], Config]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen,
    "qwen3": _qwen,
    "mixtral": _mixtral,
    "qwen2_moe": _qwen_experts,
    "qwen3_moe": _qwen_experts,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "opt": _opt,
    "bloom": _bloom,
}
