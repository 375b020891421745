"""Configs as their publishers wrote them, in the keys that transformers 5 saves."""

from __future__ import annotations

from typing import Any

from planner.specs import hugging_face_layers as layers
from planner.specs.hugging_face_reader import ConfigReader


def _listed(config: ConfigReader, key: str, words: tuple[str, str]) -> list[str] | None:
    """The words of a list of 0 and 1, one per layer."""
    entries = config.sequence(key, config.layers())
    if entries is None:
        return None
    return [words[1] if entry == 1 else words[0] for entry in entries]


def modern_mimo(config: ConfigReader) -> ConfigReader:
    """The keys of the published file: lists of 0 and 1, and the window without the token itself."""
    kinds = {
        "layer_types": _listed(
            config, "hybrid_layer_pattern", ("full_attention", "sliding_attention")
        ),
        "mlp_layer_types": _listed(config, "moe_layer_freq", ("dense", "sparse")),
    }
    found: dict[str, Any] = {key: value for key, value in kinds.items() if value is not None}
    window = config.optional_size("sliding_window_size")
    if window is not None:
        found["sliding_window"] = window
    return config.replaced(found)


def modern_minimax(config: ConfigReader) -> ConfigReader:
    """The keys of the published file: lists of 0 and 1."""
    sparse = config.table("sparse_attention_config")
    kinds = {
        "layer_types": _listed(
            sparse.replaced({"num_hidden_layers": config.layers()}),
            "sparse_attention_freq",
            ("full_attention", "minimax_m3_sparse"),
        ),
        "mlp_layer_types": _listed(config, "moe_layer_freq", ("dense", "sparse")),
    }
    found = {key: value for key, value in kinds.items() if value and not config.values.get(key)}
    config = config.replaced(found)
    if set(map(str, config.sequence("layer_types") or ())) - {"full_attention"}:
        config.fault("layer_types", "other than full_attention are not supported: block selection")
    return config


def modern_step(config: ConfigReader) -> ConfigReader:
    """The keys of the published file: layers with experts as numbers, other heads in windows."""
    number = config.layers()
    found: dict[str, Any] = {}
    for key in ("layer_types", "mlp_layer_types"):
        kinds = config.values.get(key)
        if isinstance(kinds, list) and len(kinds) > number:
            found[key] = kinds[:number]  # the rest are modules of multi-token prediction
    if config.values.get("mlp_layer_types") is None:
        listed = config.values.get("moe_layers_enum")
        names = listed.split(",") if isinstance(listed, str) else listed
        chosen = {str(name).strip() for name in names} if isinstance(names, list) else None
        found["mlp_layer_types"] = [
            "sparse" if (layer >= 3 if chosen is None else str(layer) in chosen) else "dense"
            for layer in range(number)
        ]
    return config.replaced(found)


def modern_laguna(config: ConfigReader) -> ConfigReader:
    """Heads that differ between layers as what a layer has of its own."""
    heads = config.sequence("num_attention_heads_per_layer", config.layers())
    if heads is None:
        return config
    own = {str(layer): {"num_attention_heads": number} for layer, number in enumerate(heads)}
    return config.replaced({"per_layer_config": own})


_HEADS_OF_DOTS = {
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1024,
    "kv_lora_rank": 1024,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}


def modern_dots(config: ConfigReader) -> ConfigReader:
    """Latent attention of other sizes in the layers with a window, an indexer in the others."""
    words = {"full_attention": False, "indexed_attention": False, "sliding_attention": True}
    kinds = layers.told_apart(config, "layer_types", words, _windows_of_dots)
    own = {key: config.size(f"swa_{key}", default) for key, default in _HEADS_OF_DOTS.items()}
    return config.completed(
        {"per_layer_config": {str(i): own for i, windowed in enumerate(kinds) if windowed}}
    ).replaced(
        {"layer_types": ["sliding_attention" if kind else "full_attention" for kind in kinds]}
    )


def _windows_of_dots(layer: int) -> bool:
    return layer >= 2 and layer % 4 != 1


def modern_gemma4(config: ConfigReader) -> ConfigReader:
    """The keys of the published file: heads of the layers of full attention of their own."""
    if config.values.get("per_layer_config") is not None:
        return config
    shared = config.optional_size("num_global_key_value_heads")
    equal = config.flag("attention_k_eq_v", False)
    own = {"head_dim": config.size("global_head_dim", 512)}
    if shared and equal:
        own |= {"num_key_value_heads": shared}
    full = {"full_attention": True, "sliding_attention": False}
    kinds = layers.told_apart(config, "layer_types", full, lambda layer: (layer + 1) % 6 == 0)
    return config.replaced(
        {"per_layer_config": {str(layer): own for layer, is_full in enumerate(kinds) if is_full}}
    )
