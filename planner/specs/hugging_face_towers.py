"""Vision towers of ``config.json``: the ``vision_config`` of families whose tower is described.

What a part is silent about is as the configuration classes of transformers have it (5.23,
``models/*/configuration_*.py``), in ``hugging_face_families.toml``; what is made of it is as their
modelling files build it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from planner.specs.hugging_face_reader import ConfigReader

Table = dict[str, Any]
_SOURCE = "vision_config of config.json"


def vision_tower(
    row: Mapping[str, Any] | None, whole: ConfigReader, hidden_size: int
) -> Table | None:
    """The tower of a model whose language model has this width; None where it is not described."""
    given = whole.values.get("vision_config")
    if row is None or not isinstance(given, Mapping):
        return None
    faults: list[str] = []
    vision = ConfigReader(given, faults).completed(row["defaults"])
    table = _MAKERS[row["make"]](vision, whole, hidden_size)
    # A tower that cannot be read leaves a text model, and not none.
    return None if faults or table is None else {"source": _SOURCE, **table}


def _linear(inputs: int, outputs: int) -> int:
    return (inputs + 1) * outputs


def _group(
    layers: int, heads: int, width: int, inner: int, *, window: int = 0, **kinds: bool
) -> Table:
    """A group of layers: SigLIP's norms, MLP and biases unless ``plain``, gated or both."""
    biased, gated = not kinds.get("plain", False), kinds.get("gated", False)
    attention: Table = {
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": width // max(heads, 1),
        "causal": False,
        "qkv_bias": biased,
        "output_bias": biased,
    }
    if window:
        attention["sliding_window"] = window
    feed_forward = {"intermediate_size": inner, "gated": gated, "bias": biased}
    return {
        "num_hidden_layers": layers,
        "placement": "interleaved" if window or kinds.get("spread") else "contiguous",
        "norm_bias": biased and not gated,
        "attention": attention,
        "feed_forward": feed_forward,
    }


def _patches(vision: ConfigReader, hidden_size: int, groups: list[Table]) -> Table:
    return {
        "hidden_size": hidden_size,
        "layer_groups": groups,
        "patch_size": vision.size("patch_size"),
        "temporal_patch_size": vision.size("temporal_patch_size", 1),
        "spatial_merge_size": vision.size("spatial_merge_size", 1),
        "num_position_embeddings": vision.size("num_position_embeddings", 0, least=0),
    }


def _qwen2(vision: ConfigReader, whole: ConfigReader, hidden_size: int) -> Table:
    h, ratio = vision.size("embed_dim"), vision.values.get("mlp_ratio")
    inner = int(h * ratio) if isinstance(ratio, int | float) else 4 * h
    merged = h * vision.size("spatial_merge_size") ** 2
    heads = vision.size("num_heads")
    groups = [_group(vision.size("depth"), heads, h, inner)]
    projector = 2 * h + _linear(merged, merged) + _linear(merged, hidden_size)
    return {**_patches(vision, h, groups), "projector_parameters": projector}


def _qwen2_5(vision: ConfigReader, whole: ConfigReader, hidden_size: int) -> Table | None:
    h, inner, depth = vision.size("hidden_size"), vision.size("intermediate_size"), "depth"
    full = len(vision.sequence("fullatt_block_indexes") or ())
    windowed = vision.size(depth) - full
    window = (vision.size("window_size") // vision.size("patch_size")) ** 2
    heads, merged = vision.size("num_heads"), h * vision.size("spatial_merge_size") ** 2
    if not full or windowed < 1 or not window:
        return None
    groups = [
        _group(windowed, heads, h, inner, window=window, gated=True),
        _group(full, heads, h, inner, gated=True, spread=True),
    ]
    projector = h + _linear(merged, merged) + _linear(merged, hidden_size)
    return {**_patches(vision, h, groups), "projector_parameters": projector}


def _qwen3(vision: ConfigReader, whole: ConfigReader, hidden_size: int) -> Table:
    h = vision.size("hidden_size")
    merged = h * vision.size("spatial_merge_size") ** 2
    deep = len(vision.sequence("deepstack_visual_indexes") or ())
    each = _linear(merged, merged) + _linear(merged, hidden_size)
    projector = (1 + deep) * each + 2 * h + deep * 2 * merged
    inner, heads = vision.size("intermediate_size"), vision.size("num_heads")
    groups = [_group(vision.size("depth"), heads, h, inner)]
    table = _patches(vision, h, groups)
    return {**table, "patch_bias": True, "projector_parameters": projector}


def _gemma3(vision: ConfigReader, whole: ConfigReader, hidden_size: int) -> Table | None:
    """SigLIP; the patches of an image are averaged to ``mm_tokens_per_image``."""
    h, side = vision.size("hidden_size"), vision.size("image_size")
    across = side // vision.size("patch_size")
    tokens = whole.size("mm_tokens_per_image", 256)
    merge = round((across**2 / tokens) ** 0.5)
    if not merge or across % merge:
        return None
    groups = [_siglip(vision, h)]
    table = _patches(vision, h, groups) | {"spatial_merge_size": merge, "image_size": side}
    # The final norm of SigLIP, the projection and its norm.
    projector = 2 * h + h * hidden_size + h
    table |= {"patch_bias": True, "num_position_embeddings": across**2}
    return table | {"projector_parameters": projector}


def _siglip(vision: ConfigReader, hidden_size: int) -> Table:
    layers, heads = vision.size("num_hidden_layers"), vision.size("num_attention_heads")
    return _group(layers, heads, hidden_size, vision.size("intermediate_size"))


def _pixtral(vision: ConfigReader, whole: ConfigReader, hidden_size: int) -> Table:
    h, inner = vision.size("hidden_size"), vision.size("intermediate_size")
    layers, heads = vision.size("num_hidden_layers"), vision.size("num_attention_heads")
    merge = whole.size("spatial_merge_size", 2)
    groups = [_group(layers, heads, h, inner, gated=True, plain=True)]
    projector = 2 * h + merge**2 * h * h + h * hidden_size + hidden_size**2
    table = _patches(vision, h, groups) | {"spatial_merge_size": merge}
    return {**table, "projector_parameters": projector}


def _llama4(vision: ConfigReader, whole: ConfigReader, hidden_size: int) -> Table:
    """A class token beside the patches of a tile, whose pixels are shuffled into channels."""
    h, side = vision.size("hidden_size"), vision.size("image_size")
    across = side // vision.size("patch_size")
    inner, wide = vision.size("projector_input_dim"), vision.size("projector_output_dim")
    merged = vision.size("intermediate_size")
    projector = merged * inner + inner * wide + wide * hidden_size + 4 * h
    table = _patches(vision, h, [_siglip(vision, h)])
    table |= {"spatial_merge_size": 2, "image_size": side}
    return {**table, "num_position_embeddings": across**2 + 1, "projector_parameters": projector}


def _moonvit(vision: ConfigReader, whole: ConfigReader, hidden_size: int) -> Table:
    h, merge = vision.size("hidden_size"), 2
    merged = merge**2 * h
    positions = vision.size("init_pos_emb_height") * vision.size("init_pos_emb_width")
    # The final norm, that before the projector, and its two matrices.
    projector = 4 * h + _linear(merged, merged) + _linear(merged, hidden_size)
    table = _patches(vision, h, [_siglip(vision, h)]) | {"spatial_merge_size": merge}
    table |= {"patch_bias": True, "num_position_embeddings": positions}
    return {**table, "projector_parameters": projector}


def _glm(vision: ConfigReader, whole: ConfigReader, hidden_size: int) -> Table:
    """MLPs are as wide as what leaves the tower; its merger has the ``intermediate_size``."""
    h, out = vision.size("hidden_size"), vision.size("out_hidden_size")
    merged = h * vision.size("spatial_merge_size") ** 2
    inner = vision.size("intermediate_size")
    across = vision.size("image_size") // vision.size("patch_size")
    projector = h + _linear(merged, out) + out * out + 2 * out + 3 * out * inner
    heads = vision.size("num_heads")
    groups = [_group(vision.size("depth"), heads, h, out, gated=True, plain=True)]
    table = _patches(vision, h, groups) | {"patch_bias": True}
    return {**table, "num_position_embeddings": across**2, "projector_parameters": projector}


_MAKERS: Mapping[str, Callable[[ConfigReader, ConfigReader, int], Table | None]] = {
    "gemma3": _gemma3,
    "glm": _glm,
    "llama4": _llama4,
    "moonvit": _moonvit,
    "pixtral": _pixtral,
    "qwen2": _qwen2,
    "qwen2_5": _qwen2_5,
    "qwen3": _qwen3,
}
