"""Dense families whose layers a row of a table describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.specs import hugging_face_layers as layers
from planner.specs.hugging_face_latent import latent_attention
from planner.specs.hugging_face_layers import Table
from planner.specs.hugging_face_reader import ConfigReader
from planner.specs.hugging_face_rows import (
    ALL_BIASES,
    BIASED,
    DENSE,
    TIED,
    Decoder,
    Family,
    Fields,
    Only,
    Value,
    all_but_every_from_last,
    all_but_first_of,
    all_but_last_of,
    flag,
    never,
    size,
)

_NORM_WEIGHTS = "Its norms have no weights; they are counted here, under 0.02 % of the parameters."
_NO_GATE: Fields = {**DENSE, "gated": False}
_MLP_BIAS: Fields = {**DENSE, "bias": flag("mlp_bias")}
_UNGATED_MLP_BIAS: Fields = {**_MLP_BIAS, "gated": False}
_NO_LATENT_BIAS = Only(key="attention_bias", value=False, default=False, why="biases of latents")
_GPT_MODEL: Fields = {**TIED, "final_norm_bias": True}
_GPT_LAYER: Fields = {"norm_bias": True}


def _gpt_mlp(width: Value, bias: bool = True) -> Fields:
    return {"intermediate_size": width, "gated": False, "bias": bias}


def _width(key: str, multiple: int = 4) -> Value:
    """``key``, or a multiple of the hidden size."""
    return lambda config: config.optional_size(key) or multiple * config.size("hidden_size")


def _learned(default: int) -> Fields:
    return {
        "position_embedding": "learned",
        "max_position_embeddings": size("max_position_embeddings", default),
    }


def _norms_of_hyperclovax(config: ConfigReader) -> int:
    return 4 if config.flag("use_post_norm", True) else 2


def _norm_per_head(config: ConfigReader) -> bool:
    return config.values.get("qk_norm_type") == "olmo"


def _square_attention(config: ConfigReader, **fields: Any) -> Table:
    """Attention whose output projection is square, whatever the heads are."""
    table = layers.attention(config, **fields)
    if table["num_attention_heads"] * table["head_dim"] != config.size("hidden_size"):
        config.fault("head_dim", "times num_attention_heads must be hidden_size")
    return table


def _modern_gpt_neo(config: ConfigReader) -> ConfigReader:
    words = {"global": "full_attention", "local": "sliding_attention"}
    kinds = config.sequence("attention_layers") or _repeated(config.sequence("attention_types"))
    if not kinds:
        kinds = ["global", "local"] * config.layers()
        kinds = kinds[: config.layers()]
    return config.replaced(
        {
            "layer_types": [words.get(str(kind), kind) for kind in kinds],
            "sliding_window": config.size("window_size", 256),
        }
    )


def _repeated(types: Sequence[Any] | None) -> list[Any]:
    """The words of ``[[words, times], ...]``."""
    kinds: list[Any] = []
    for entry in types or ():
        match entry:
            case [list(words), int(times)] if len(words) * times <= 10_000:
                kinds += words * times
            case _:
                return []
    return kinds


def _modern_modernbert(config: ConfigReader) -> ConfigReader:
    if config.optional_size("sliding_window") is not None:
        return config
    half = config.size("local_attention", 128, least=2) // 2
    return config.replaced({"sliding_window": half})


DENSE_ROWS: dict[str, Family] = {
    "apertus": Decoder(
        attention={**BIASED, "qk_norm": True},
        feed_forward=_NO_GATE,
        note="xIELU in a feed-forward without gate; its two scalars a layer are not counted.",
    ),
    "biogpt": Decoder(
        attention=ALL_BIASES,
        feed_forward=_gpt_mlp(size("intermediate_size", 4096)),
        layer=_GPT_LAYER,
        model={**_GPT_MODEL, **_learned(1024), "position_embedding_offset": 2},
    ),
    "bitnet": Decoder(
        attention=BIASED,
        layer={"norms_per_layer": 3},
        note="The norm within the feed-forward is not counted, under 0.01 % of the parameters.",
        defaults={"num_key_value_heads": 5},
    ),
    "chameleon": Decoder(
        attention={**BIASED, "qk_norm": True, "qk_norm_per_head": True},
        feed_forward=_MLP_BIAS,
        note="The norms of queries and keys have biases, not counted: under 0.01 %.",
    ),
    "cohere_compass_text": Decoder(
        attention=BIASED,
        windows=never,
        layer={"norms_per_layer": 1, "parallel_residual": True},
        model=TIED,
        defaults={"sliding_window": 4096},
    ),
    "cosmos3_edge_text": Decoder(
        attention=BIASED, feed_forward=_UNGATED_MLP_BIAS, defaults={"num_key_value_heads": 8}
    ),
    "ctrl": Decoder(
        attention=ALL_BIASES,
        feed_forward=_gpt_mlp(size("dff", 8192)),
        layer=_GPT_LAYER,
        model={**_GPT_MODEL, "logits_bias": True, "position_embedding": "none"},
    ),
    "cwm": Decoder(
        feed_forward=_MLP_BIAS,
        windows=all_but_first_of(4),
        defaults={"num_key_value_heads": 8, "sliding_window": 8192, "head_dim": 128},
    ),
    "emu3_text_model": Decoder(
        attention=BIASED, feed_forward=_MLP_BIAS, defaults={"num_key_value_heads": 8}
    ),
    "glm_ocr_text": Decoder(layer={"norms_per_layer": 4}, defaults={"num_key_value_heads": 8}),
    "gpt_neo": Decoder(
        attention={"output_bias": True},
        windows=lambda _, layer: layer % 2 == 1,
        feed_forward=_gpt_mlp(_width("intermediate_size")),
        layer=_GPT_LAYER,
        model={**_GPT_MODEL, **_learned(2048)},
        modern=_modern_gpt_neo,
    ),
    "gpt_neox_japanese": Decoder(
        feed_forward=_gpt_mlp(
            lambda config: (
                config.size("intermediate_multiple_size", 4) * config.size("hidden_size")
            ),
            bias=False,
        ),
        layer=_GPT_LAYER,
        model=_GPT_MODEL,
        note="The bias of the last layer's attention is not counted.",
    ),
    "granite4_vision_text": Decoder(attention=BIASED, feed_forward=_MLP_BIAS),
    "granite_docling_text": Decoder(
        attention=BIASED, feed_forward=_MLP_BIAS, model=TIED, defaults={"num_key_value_heads": 4}
    ),
    "granite_swa": Decoder(
        attention={**BIASED, "sinks": True},
        windows=all_but_first_of(4),
        feed_forward=_MLP_BIAS,
        model=TIED,
        defaults={"num_key_value_heads": 4, "sliding_window": 128},
    ),
    "helium": Decoder(
        attention={"qkv_bias": flag("attention_bias")},
        base=_square_attention,
        feed_forward=_MLP_BIAS,
        defaults={"head_dim": 128},
    ),
    "hunyuan_vl_text": Decoder(attention={**BIASED, "qk_norm": True}, model=TIED),
    "hyperclovax": Decoder(
        attention=BIASED,
        feed_forward=_MLP_BIAS,
        layer={"norms_per_layer": _norms_of_hyperclovax},
    ),
    "iquestcoder": Decoder(
        attention=BIASED, feed_forward=_MLP_BIAS, defaults={"num_key_value_heads": 8}
    ),
    "jais2": Decoder(
        attention={
            "qkv_bias": flag("attention_bias", True),
            "output_bias": flag("attention_bias", True),
        },
        feed_forward={**DENSE, "gated": False, "bias": flag("mlp_bias", True)},
        layer=_GPT_LAYER,
        model={"final_norm_bias": True},
    ),
    "minicpm3": Decoder(
        base=latent_attention,
        feed_forward=_MLP_BIAS,
        model=TIED,
        only=(_NO_LATENT_BIAS,),
        defaults={"q_lora_rank": 768},
    ),
    "modernbert-decoder": Decoder(
        attention=BIASED,
        windows=all_but_first_of(3),
        feed_forward=_MLP_BIAS,
        layer={"norm_bias": flag("norm_bias")},
        model={
            **TIED,
            "embedding_norm": True,
            "final_norm_bias": flag("norm_bias"),
            "logits_bias": flag("decoder_bias", True),
        },
        modern=_modern_modernbert,
        note="The dense layer before the logits is not counted, 0.4 % of the smallest model.",
    ),
    "molmo2_text": Decoder(
        attention={
            "qkv_bias": flag("attention_bias"),
            "qk_norm": True,
            "qk_norm_per_head": _norm_per_head,
        },
        note="Embeddings of the additional tokens of images are not counted.",
        defaults={"num_key_value_heads": 8},
    ),
    "muse_glimmer_text": Decoder(
        attention={**BIASED, "attn_output_gate": True},
        windows=all_but_every_from_last(4),
        layer={"norms_per_layer": 4},
        defaults={"num_key_value_heads": 2, "sliding_window": 2048, "head_dim": 128},
    ),
    "nanochat": Decoder(attention=BIASED, feed_forward=_NO_GATE, note=_NORM_WEIGHTS),
    "olmo": Decoder(attention=BIASED, note=_NORM_WEIGHTS),
    "openai-gpt": Decoder(
        attention=ALL_BIASES,
        feed_forward=_gpt_mlp(_width("")),
        layer=_GPT_LAYER,
        model={**_GPT_MODEL, **_learned(512)},
        note="A norm after the last layer is counted, which it has not.",
    ),
    "paddleocr_vl_text": Decoder(
        attention={"qkv_bias": flag("use_bias"), "output_bias": flag("use_bias")},
        feed_forward={**DENSE, "bias": flag("use_bias")},
        model=TIED,
        defaults={"num_key_value_heads": 2, "head_dim": 128},
    ),
    "persimmon": Decoder(
        attention={**ALL_BIASES, "qk_norm": flag("qk_layernorm", True)},
        feed_forward=_gpt_mlp(size("intermediate_size")),
        layer=_GPT_LAYER,
        model={"final_norm_bias": True},
        note="The norms of queries and keys have biases, not counted: under 0.001 %.",
    ),
    "qwen2_5_omni_text": Decoder(
        attention={"qkv_bias": True},
        model=TIED,
        defaults={"num_key_value_heads": 4},
        only=(Only(key="use_sliding_window", value=False, default=False, why="windows"),),
    ),
    "vaultgemma": Decoder(
        attention=BIASED,
        windows=all_but_last_of(2),
        model=TIED,
        defaults={"num_key_value_heads": 4, "sliding_window": 4096, "head_dim": 256},
    ),
    "xglm": Decoder(
        attention=ALL_BIASES,
        feed_forward=_gpt_mlp(size("ffn_dim", 4096)),
        layer=_GPT_LAYER,
        model={**_GPT_MODEL, "position_embedding": "none"},
    ),
    "youtu": Decoder(
        base=latent_attention, model=TIED, only=(_NO_LATENT_BIAS,), defaults={"q_lora_rank": 1536}
    ),
}
