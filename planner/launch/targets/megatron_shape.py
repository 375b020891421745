"""A model's shape as the arguments of Megatron-Core say it, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.errors import SpecError
from planner.launch.option_table import Remark
from planner.launch.shape import shape_of
from planner.launch.understood import Reading
from planner.specs.catalogue import Catalogue
from planner.specs.model import ModelSpec

_DEFAULT_MULTIPLE = 128
"""Megatron-LM pads the vocabulary to multiples of it on each tensor-parallel rank."""
_VOCABULARIES = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000}
_FREQUENCY = re.compile(r"\[([01,\s]*)\](?:\*(\d{1,4}))?")
_MOST_LAYERS = 10_000
_TRUE = "true"


def shape_words(model: ModelSpec, tensor_parallel: int) -> dict[str, Any]:
    """What the rows of the table take for a model's shape; None says nothing.

    Raises
    ------
    LaunchError
        Its layers differ in more than dense layers before those with experts.
    """
    shape = shape_of(model)
    is_latent, has_experts = bool(shape["kv_lora_rank"]), bool(shape["num_experts"])
    heads, keys = shape["num_attention_heads"], shape["num_key_value_heads"]
    window, biases = shape["sliding_window"], (shape["output_bias"], shape["mlp_bias"])
    return {
        **shape,
        "ffn_hidden_size": shape["intermediate_size"] or shape["moe_intermediate_size"],
        "num_key_value_heads": keys if keys != heads and not is_latent else None,
        "grouped_queries": keys != heads and not is_latent,
        "latent_attention": is_latent,
        "qk_norm": shape["qk_norm"] or is_latent,
        "norm": "LayerNorm" if shape["norm_bias"] else "RMSNorm",
        "linear_bias": all(biases),
        "qkv_bias": bool(shape["qkv_bias"]) and not all(biases),
        "vocabulary_multiple": _multiple(model.vocab_size, tensor_parallel),
        "window_left": None if window is None else window - 1,
        "has_experts": has_experts,
        "moe_layer_freq": _frequency(shape) if has_experts else None,
        "shared_expert_gate": bool(shape["shared_expert_gate"]),
        # That of a linear layer is among the biases of all of them.
        "router_bias": bool(shape["router_bias"]) and has_experts and not all(biases),
    }


def strange_parts(model: ModelSpec, tool: str = "Megatron-LM") -> tuple[Remark, ...]:
    """What a model has and no argument says: the model that starts differs there."""
    found = {
        "norms beside those before attention and feed-forward": any(
            group.norms_per_layer > group.num_blocks for group in model.layer_groups
        ),
        "attention and feed-forward side by side": any(
            group.parallel_residual for group in model.layer_groups
        ),
        "a norm of the embedding": model.embedding_norm,
        "a bias of the logits": model.logits_bias,
        "sparse attention": any(each.index_topk for each in model.attentions),
        "norm weights of each head": any(each.qk_norm_per_head for each in model.attentions),
        "biases of some matrices alone": any(
            group.attention is not None
            and group.feed_forward is not None
            and group.attention.output_bias != group.feed_forward.bias
            for group in model.layer_groups
        ),
    }
    return tuple(
        Remark(parameter="model", value=part, note=f"{tool} has no argument for it")
        for part, is_there in found.items()
        if is_there
    )


def _multiple(vocabulary: int, tensor_parallel: int) -> int:
    """The largest multiple that pads nothing, as the prediction has it; else the default."""
    multiples = [2**power for power in range(_DEFAULT_MULTIPLE.bit_length())]
    fitting = [each for each in multiples if vocabulary % (each * tensor_parallel) == 0]
    return max(fitting, default=1)


def _frequency(shape: Mapping[str, Any]) -> str | None:
    dense, layers = shape["num_dense_layers"], shape["num_hidden_layers"]
    return f"([0]*{dense}+[1]*{layers - dense})" if dense else None


def expert_layers(text: str, num_layers: int) -> list[bool] | None:
    """Which layers have experts, by ``--moe-layer-freq``; None where the text tells no pattern.

    >>> expert_layers("([0]*1+[1]*3)", 4), expert_layers("2", 4)
    ([False, True, True, True], [True, False, True, False])
    """
    plain = text.strip().strip("\"'")
    if plain.isdecimal() and int(plain) > 0:
        return [layer % int(plain) == 0 for layer in range(num_layers)]
    inner = plain.removeprefix("(")
    body, _, times = inner.rpartition(")") if plain.startswith("(") else (inner, "", "")
    found: list[bool] = []
    for part in body.split("+"):
        each = _FREQUENCY.fullmatch(part.strip())
        if each is None:
            return None
        digits = [digit == "1" for digit in each[1] if digit in "01"]
        found += digits * min(int(each[2] or 1), _MOST_LAYERS)
    repeated = times.strip().removeprefix("*")
    if repeated and not repeated.isdecimal():
        return None
    return (found * min(int(repeated or 1), _MOST_LAYERS))[:_MOST_LAYERS]


def shape_read(reading: Reading, prefix: str = "--") -> tuple[dict[str, Any], list[str]]:
    """The shape that arguments of Megatron tell, and what of it is not certain."""
    number, value = reading.number, reading.value
    notes: list[str] = []
    layers = number("--num-layers") or number("--encoder-num-layers")
    hidden, heads = number("--hidden-size"), number("--num-attention-heads")
    gated = value("gated") == _TRUE
    shape: dict[str, Any] = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "gated": gated,
        "intermediate_size": number("--ffn-hidden-size") or _default_width(hidden, gated),
        "vocab_size": _vocabulary(reading),
        "tie_word_embeddings": value("tie_word_embeddings") == _TRUE,
        "position_embedding": value("position_embedding") or "learned",
        "max_position_embeddings": number("--max-position-embeddings") or number("--seq-length"),
        "norm_bias": value("norm") != "RMSNorm",
        **_biases(reading),
        "sliding_window": _window(reading),
        "window_skip": number("--window-attn-skip-freq"),
        "attn_output_gate": reading.has("--attention-output-gate"),
        "sinks": value("sinks") == _TRUE,
    }
    shape |= _attention(reading, hidden, heads)
    shape |= _experts(reading, shape, notes)
    return shape, notes


def _default_width(hidden: int | None, gated: bool) -> int | None:
    if hidden is None:
        return None
    return int(4 * hidden * 2 / 3) // 64 * 64 if gated else 4 * hidden


def _vocabulary(reading: Reading) -> int | None:
    told = reading.number("--vocab-size") or reading.number("--padded-vocab-size")
    if told:
        return told
    tokenizer = reading.text("--tokenizer-type") or ""
    name = reading.text("--tokenizer-model") or reading.text("--tokenizer-name-or-path")
    if name and tokenizer not in _VOCABULARIES:
        return _vocabulary_of(name)
    if reading.has("--merge-file"):
        tokenizer = "GPT2BPETokenizer"  # its merges; no other tokenizer has such a file
    return _VOCABULARIES.get(tokenizer)


def _vocabulary_of(name: str) -> int | None:
    """That of the shipped model whose tokenizer it is."""
    try:
        return Catalogue(None).load_model(name).vocab_size if "/" in name else None
    except (SpecError, OSError):
        return None


def _biases(reading: Reading) -> dict[str, bool]:
    every = not reading.has("--disable-bias-linear")
    qkv = every or reading.has("--add-qkv-bias")
    return {"qkv_bias": qkv, "output_bias": every, "mlp_bias": every}


def _window(reading: Reading) -> int | None:
    text = (reading.text("--window-size") or "").strip("()").split(",")[0].strip()
    return int(text) + 1 if text.isdecimal() else None


def _attention(reading: Reading, hidden: int | None, heads: int | None) -> dict[str, Any]:
    number = reading.number
    if reading.has("--multi-latent-attention"):
        return {
            "num_key_value_heads": heads,
            "q_lora_rank": number("--q-lora-rank"),
            "kv_lora_rank": number("--kv-lora-rank") or 32,
            "qk_nope_head_dim": number("--qk-head-dim") or 128,
            "qk_rope_head_dim": number("--qk-pos-emb-head-dim") or 64,
            "v_head_dim": number("--v-head-dim") or 128,
        }
    groups = number("--num-query-groups") or 1
    size = number("--kv-channels") or (hidden // heads if hidden and heads else None)
    is_grouped = reading.has("--group-query-attention")
    return {
        "num_key_value_heads": groups if is_grouped else heads,
        "head_dim": size,
        "qk_norm": reading.has("--qk-layernorm"),
    }


def _experts(reading: Reading, shape: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    number, layers = reading.number, shape["num_hidden_layers"] or 0
    if not number("--num-experts"):
        return {}
    told = reading.text("--moe-layer-freq")
    pattern = expert_layers(told, layers) if told else None
    dense = pattern.index(True) if pattern and True in pattern else 0
    if pattern and not all(pattern[dense:]):
        notes.append("Layers with experts alternate with dense ones (--moe-layer-freq): taken as")
        notes[-1] += f" {sum(pattern)} of them after {layers - sum(pattern)} dense ones."
        dense = layers - sum(pattern)
    elif told and pattern is None:
        notes.append(f"--moe-layer-freq {told} is not followed: all layers are taken with experts.")
    return {
        "num_experts": number("--num-experts"),
        "num_experts_per_tok": number("--moe-router-topk") or 2,
        "moe_intermediate_size": number("--moe-ffn-hidden-size") or shape["intermediate_size"],
        "shared_intermediate_size": number("--moe-shared-expert-intermediate-size"),
        "shared_expert_gate": reading.has("--moe-shared-expert-gate"),
        "router_bias": reading.has("--moe-router-enable-expert-bias") or shape["mlp_bias"],
        "moe_latent_size": number("--moe-latent-size"),
        "num_dense_layers": dense,
        "intermediate_size": shape["intermediate_size"] if dense else None,
    }
