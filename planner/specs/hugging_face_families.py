"""Model tables from the ``config.json`` of each ``model_type`` of Hugging Face.

A family is a row of ``hugging_face_families.toml``, merged over the rows that it is ``like``:

``attention``
    fields of all attention layers; ``in_windows`` those of layers with a window, ``windows`` the
    rule for these layers; ``base`` makes the table.
``state``
    fields of the layers with a state, ``states`` the rule for these layers; ``hybrid``: all of
    them have both a state and attention.
``feed_forward``, ``experts``
    fields of dense layers and of those with experts, ``sparse`` the rule for the latter.
``layer``, ``sparse_layer``, ``model``
    fields of a layer, of a layer with experts, and of the model.
``blocks``
    blocks of each layer, if attention and feed-forward are separate layers.
``windows_if``
    flag that enables windows.
``defaults``, ``or_else``
    defaults of transformers for a key that is missing; for one that is null, too.
``only``
    supported value of a key; with the effect of other values, and the default.
``modern``
    function that converts the config of a checkpoint to the keys of the row.
``note``
    differences from the counts of transformers.

``other_names`` are model types outside transformers with the same keys.

A field is a constant, a function ``@NAME`` of one of the modules of rules, or words: a key,
``KEY=DEFAULT``, ``KEY>=LEAST``, a product, or alternatives with ``or``; the last may be missing if
it ends with ``?``. A default of 0 allows 0. A rule is a function of the same module. Functions with
arguments are a list.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from planner.base.csv_cells import number_of_row
from planner.base.read_files import UncheckedTable
from planner.errors import did_you_mean
from planner.specs import hugging_face_rules as rules
from planner.specs import hugging_face_sparse_rules as sparse_rules
from planner.specs.attention import AttentionSpec
from planner.specs.hugging_face_reader import ConfigReader
from planner.specs.hugging_face_rules import Kind, Rule, Table
from planner.specs.model import FeedForwardSpec, LayerGroup, ModelSpec
from planner.specs.spec_files import read_toml
from planner.specs.validated import field_types

_Tower = dict[str, object]
_SOURCE = "vision_config of config.json"


def vision_tower(row: Row | None, full_config: ConfigReader, hidden_size: int) -> _Tower | None:
    """Return the vision tower of a multimodal config; None if the tower is not described.

    Parameters
    ----------
    row : row of the tower in the table of families; None: not described
    full_config : ``config.json`` of the whole model
    hidden_size : width of the language model
    """
    vision_table = full_config.values.get("vision_config")
    if row is None or not isinstance(vision_table, Mapping):
        return None
    errors: list[str] = []
    vision = ConfigReader(vision_table, errors).completed(row["defaults"])
    table = _MAKERS[row["make"]](vision, full_config, hidden_size)
    # Without a readable tower, the model is a text model.
    resized = _RESIZED.get(row["make"], {})
    return None if errors or table is None else {"source": _SOURCE, **resized, **table}


# Fields from preprocessor_config.json next to config.json; equal for all models of a family.
_RESIZED: Mapping[str, _Tower] = {
    "gemma3": {"resizing": "fixed"},
    "glm": {"resizing": "pixels", "min_pixels": 6272, "max_pixels": 4_816_896},
    "llama4": {"resizing": "canvas", "max_tiles": 16},
    "qwen2": {"resizing": "pixels", "min_pixels": 3136, "max_pixels": 12_845_056},
    "qwen2_5": {"resizing": "pixels", "min_pixels": 3136, "max_pixels": 12_845_056},
    "qwen3": {"resizing": "pixels", "min_pixels": 65_536, "max_pixels": 16_777_216},
}


def _linear(inputs: int, outputs: int) -> int:
    return (inputs + 1) * outputs


def _tower_group(
    layers: int, heads: int, width: int, inner: int, *, window: int = 0, **kinds: bool
) -> _Tower:
    """Return a group of tower layers: SigLIP norms, MLP and biases unless ``plain``."""
    biased, gated = not kinds.get("plain", False), kinds.get("gated", False)
    attention: _Tower = {
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


def _patches(vision: ConfigReader, hidden_size: int, groups: list[_Tower]) -> _Tower:
    """Return the tower fields that all families share, such as patch and merge sizes."""
    return {
        "hidden_size": hidden_size,
        "layer_groups": groups,
        "patch_size": vision.size("patch_size"),
        "temporal_patch_size": vision.size("temporal_patch_size", 1),
        "spatial_merge_size": vision.size("spatial_merge_size", 1),
        "num_position_embeddings": vision.size("num_position_embeddings", 0, least=0),
    }


def _qwen2(vision: ConfigReader, full_config: ConfigReader, hidden_size: int) -> _Tower:
    """Return the vision tower of a Qwen2-VL config."""
    h, ratio = vision.size("embed_dim"), vision.values.get("mlp_ratio")
    inner = int(h * ratio) if isinstance(ratio, int | float) else 4 * h
    merged = h * vision.size("spatial_merge_size") ** 2
    heads = vision.size("num_heads")
    groups = [_tower_group(vision.size("depth"), heads, h, inner)]
    projector = 2 * h + _linear(merged, merged) + _linear(merged, hidden_size)
    return {**_patches(vision, h, groups), "projector_parameters": projector}


def _qwen2_5(vision: ConfigReader, full_config: ConfigReader, hidden_size: int) -> _Tower | None:
    """Return the vision tower of a Qwen2.5-VL config; None without both kinds of layers."""
    h, inner, depth = vision.size("hidden_size"), vision.size("intermediate_size"), "depth"
    full = len(vision.sequence("fullatt_block_indexes") or ())
    windowed = vision.size(depth) - full
    window = (vision.size("window_size") // vision.size("patch_size")) ** 2
    heads, merged = vision.size("num_heads"), h * vision.size("spatial_merge_size") ** 2
    if not full or windowed < 1 or not window:
        return None
    groups = [
        _tower_group(windowed, heads, h, inner, window=window, gated=True),
        _tower_group(full, heads, h, inner, gated=True, spread=True),
    ]
    projector = h + _linear(merged, merged) + _linear(merged, hidden_size)
    return {**_patches(vision, h, groups), "projector_parameters": projector}


def _qwen3(vision: ConfigReader, full_config: ConfigReader, hidden_size: int) -> _Tower:
    """Return the vision tower of a Qwen3-VL config, with its DeepStack mergers."""
    h = vision.size("hidden_size")
    merged = h * vision.size("spatial_merge_size") ** 2
    deep = len(vision.sequence("deepstack_visual_indexes") or ())
    each = _linear(merged, merged) + _linear(merged, hidden_size)
    projector = (1 + deep) * each + 2 * h + deep * 2 * merged
    inner, heads = vision.size("intermediate_size"), vision.size("num_heads")
    groups = [_tower_group(vision.size("depth"), heads, h, inner)]
    table = _patches(vision, h, groups)
    return {**table, "patch_bias": True, "projector_parameters": projector}


def _gemma3(vision: ConfigReader, full_config: ConfigReader, hidden_size: int) -> _Tower | None:
    """Return Gemma 3's SigLIP tower, whose patches are averaged to ``mm_tokens_per_image``."""
    h, side = vision.size("hidden_size"), vision.size("image_size")
    across = side // vision.size("patch_size")
    tokens = full_config.size("mm_tokens_per_image", 256)
    merge = round((across**2 / tokens) ** 0.5)
    if not merge or across % merge:
        return None
    groups = [_siglip(vision, h)]
    table = _patches(vision, h, groups) | {"spatial_merge_size": merge, "image_size": side}
    # The final norm of SigLIP, the projection and its norm.
    projector = 2 * h + h * hidden_size + h
    table |= {"patch_bias": True, "num_position_embeddings": across**2}
    return table | {"projector_parameters": projector}


def _siglip(vision: ConfigReader, hidden_size: int) -> _Tower:
    layers, heads = vision.size("num_hidden_layers"), vision.size("num_attention_heads")
    return _tower_group(layers, heads, hidden_size, vision.size("intermediate_size"))


def _pixtral(vision: ConfigReader, full_config: ConfigReader, hidden_size: int) -> _Tower:
    """Return the vision tower of a Pixtral config (gated MLPs, patch merger)."""
    h, inner = vision.size("hidden_size"), vision.size("intermediate_size")
    layers, heads = vision.size("num_hidden_layers"), vision.size("num_attention_heads")
    merge = full_config.size("spatial_merge_size", 2)
    groups = [_tower_group(layers, heads, h, inner, gated=True, plain=True)]
    projector = 2 * h + merge**2 * h * h + h * hidden_size + hidden_size**2
    table = _patches(vision, h, groups) | {"spatial_merge_size": merge}
    table |= {"resizing": "edge", "longest_edge": vision.size("image_size", 1540)}
    return {**table, "projector_parameters": projector}


def _llama4(vision: ConfigReader, full_config: ConfigReader, hidden_size: int) -> _Tower:
    """Return Llama 4's vision tower: a class token and patches per tile, pixel shuffle."""
    h, side = vision.size("hidden_size"), vision.size("image_size")
    across = side // vision.size("patch_size")
    inner, wide = vision.size("projector_input_dim"), vision.size("projector_output_dim")
    merged = vision.size("intermediate_size")
    projector = merged * inner + inner * wide + wide * hidden_size + 4 * h
    table = _patches(vision, h, [_siglip(vision, h)])
    table |= {"spatial_merge_size": 2, "image_size": side}
    return {**table, "num_position_embeddings": across**2 + 1, "projector_parameters": projector}


def _moonvit(vision: ConfigReader, full_config: ConfigReader, hidden_size: int) -> _Tower:
    """Return the MoonViT vision tower of a Kimi config."""
    h, merge = vision.size("hidden_size"), 2
    merged = merge**2 * h
    positions = vision.size("init_pos_emb_height") * vision.size("init_pos_emb_width")
    # The final norm, that before the projector, and its two matrices.
    projector = 4 * h + _linear(merged, merged) + _linear(merged, hidden_size)
    table = _patches(vision, h, [_siglip(vision, h)]) | {"spatial_merge_size": merge}
    table |= {"patch_bias": True, "num_position_embeddings": positions}
    return {**table, "projector_parameters": projector}


def _glm(vision: ConfigReader, full_config: ConfigReader, hidden_size: int) -> _Tower:
    """Return GLM-4V's vision tower, with MLPs of its output width."""
    h, out = vision.size("hidden_size"), vision.size("out_hidden_size")
    merged = h * vision.size("spatial_merge_size") ** 2
    inner = vision.size("intermediate_size")
    across = vision.size("image_size") // vision.size("patch_size")
    projector = h + _linear(merged, out) + out * out + 2 * out + 3 * out * inner
    heads = vision.size("num_heads")
    groups = [_tower_group(vision.size("depth"), heads, h, out, gated=True, plain=True)]
    table = _patches(vision, h, groups) | {"patch_bias": True}
    return {**table, "num_position_embeddings": across**2, "projector_parameters": projector}


_MAKERS: Mapping[str, Callable[[ConfigReader, ConfigReader, int], _Tower | None]] = {
    "gemma3": _gemma3,
    "glm": _glm,
    "llama4": _llama4,
    "moonvit": _moonvit,
    "pixtral": _pixtral,
    "qwen2": _qwen2,
    "qwen2_5": _qwen2_5,
    "qwen3": _qwen3,
}


Row = Mapping[str, Any]
Family = Callable[[ConfigReader], Table]

_ALL: Mapping[str, Any] = read_toml(Path(__file__).with_name("hugging_face_families.toml"))
_ATTENTION, _FEED_FORWARD, _LAYER, _MODEL = map(
    field_types, (AttentionSpec, FeedForwardSpec, LayerGroup, ModelSpec)
)
_USUAL_MODEL = {
    "hidden_size": "hidden_size",
    "vocab_size": "vocab_size",
    "tie_word_embeddings": "tie_word_embeddings",
    "max_position_embeddings": "max_position_embeddings?",
    "num_nextn_predict_layers": "@prediction_modules",
}
_DENSE = {"intermediate_size": "intermediate_size"}
_EXPERTS = {
    **{name: name for name in ("num_experts", "num_experts_per_tok", "moe_intermediate_size")},
    "n_group": "n_group=1",
    "topk_group": "topk_group=1",
}
_RULES = (rules, sparse_rules)
_MIXERS = {
    "full": ("full_attention", "attention"),
    "window": ("sliding_attention", "chunked_attention"),
    "linear": ("linear_attention",),
    "lightning": ("linear_attention",),
    "mamba1": ("linear_attention", "mamba"),
    "mamba2": ("linear_attention", "mamba"),
    "convolution": ("conv",),
}
_STATES = ("linear", "lightning", "mamba1", "mamba2", "convolution")
_TERM = re.compile(r"([\w.]+)(?:=(\w+))?(?:>=(\d+))?(\?)?")
_NOT = "not "

_TEXT_PART = "Text part alone, without {}."
_PARTS = {"vision_config": "vision", "audio_config": "audio"}
_THINKER = "thinker_config"
_LARGEST_SIZE = 1e6


def named(name: str) -> Any:
    """Return the rule function of a name in the TOML rows.

    Parameters
    ----------
    name : name of a function of the rule modules
    """
    return next(getattr(module, name) for module in _RULES if hasattr(module, name))


def _table(row: Row, config: ConfigReader) -> Table:
    """Return the model table of a config, by the rules of its family."""
    config = config.completed(row.get("defaults", {}))
    config = config.with_defaults(row["or_else"]) if "or_else" in row else config
    for key, value in row.get("only", {}).items():
        config.demand(key, *value) if isinstance(value, list) else config.refuse(key, value)
    config = named(row["modern"])(config) if "modern" in row else config
    layer_overrides, config = _split_layer_overrides(config)
    groups = rules.groups(
        _kinds(row, config, layer_overrides), lambda kind: _group(row, config, kind)
    )
    model = _filled(_MODEL, {**_USUAL_MODEL, **row.get("model", {})}, config)
    return {**model, "layer_groups": groups, "notes": row.get("note", "")}


def _kinds(row: Row, config: ConfigReader, layer_overrides: Mapping[int, str]) -> list[Kind]:
    """Return the kind of each layer: mixer, feed forward and overrides of the config."""
    if "blocks" in row:
        return list(named(row["blocks"])(config))
    blocks_by_layer = zip(_mixers(row, config), _feed_forwards(row, config), strict=True)
    return [
        Kind(*blocks, layer_overrides.get(layer, ""))
        for layer, blocks in enumerate(blocks_by_layer)
    ]


def _mixers(row: Row, config: ConfigReader) -> list[str]:
    """Return the mixer of each layer: "full", "window", or the state kind of the family."""
    has_windows = "windows" in row and (
        "windows_if" not in row or config.flag(row["windows_if"], False)
    )
    holds = {"window": _rule(row["windows"])} if has_windows else {}
    if "states" in row:
        holds[row["state"]["kind"]] = _rule(row["states"])
    if not holds:
        return ["full"] * config.layers()

    def default(layer: int) -> str:
        return next((kind for kind, rule in holds.items() if rule(config, layer)), "full")

    mixer_words = {word: kind for kind in ("full", *holds) for word in _MIXERS[kind]}
    mixers = rules.label_layers(config, "layer_types", mixer_words, default)
    if config.optional_size("sliding_window") is None:
        return ["full" if mixer == "window" else mixer for mixer in mixers]
    return mixers


def _feed_forwards(row: Row, config: ConfigReader) -> list[str]:
    """Return "dense" or "sparse" (a mixture of experts) for each layer."""
    if "experts" not in row:
        return ["dense"] * config.layers()
    holds = _rule(row.get("sparse", "always"))
    mlp_words = {"dense": "dense", "sparse": "sparse"}
    return rules.label_layers(
        config,
        "mlp_layer_types",
        mlp_words,
        lambda layer: "sparse" if holds(config, layer) else "dense",
    )


def _rule(rule_name: str | list[object]) -> Rule:
    if isinstance(rule_name, str):
        return named(rule_name)  # type: ignore[no-any-return]
    return named(str(rule_name[0]))(*rule_name[1:])  # type: ignore[no-any-return]


def _group(row: Row, config: ConfigReader, kind: Kind) -> Table:
    """Return the spec fields of one kind of layer, as the rules of its family read the config."""
    config = config.replaced(json.loads(kind.overrides)) if kind.overrides else config
    is_sparse = kind.feed_forward == "sparse"
    fields = _filled(
        _LAYER,
        {**row.get("layer", {}), **(row.get("sparse_layer", {}) if is_sparse else {})},
        config,
    )
    if kind.mixer:
        fields["attention"] = _attention(row, config, kind.mixer)
    if row.get("hybrid", False):
        fields["state"] = _attention(row, config, row["state"]["kind"])
    if is_sparse:
        fields["feed_forward"] = _filled(_FEED_FORWARD, {**_EXPERTS, **row["experts"]}, config)
    elif kind.feed_forward and row.get("feed_forward", {}) is not False:
        feed_forward = {**_DENSE, **row.get("feed_forward", {})}
        fields["feed_forward"] = _filled(_FEED_FORWARD, feed_forward, config)
    return fields


def _attention(row: Row, config: ConfigReader, mixer: str) -> Table:
    """Return the attention fields of one mixer kind, as the rules of its family read the config."""
    if mixer in _STATES:
        return rules.attention(config, **_filled(_ATTENTION, row["state"], config))
    fields = row.get("attention", {})
    if mixer == "window":
        fields = {**fields, **row.get("in_windows", {}), "sliding_window": "sliding_window"}
    base = named(row.get("base", "attention"))
    return base(config, **_filled(_ATTENTION, fields, config))  # type: ignore[no-any-return]


def _filled(kinds: UncheckedTable, fields: Row, config: ConfigReader) -> Table:
    return {name: _value(kinds[name], field, config) for name, field in fields.items()}


def _value(kind: object, value: object, config: ConfigReader) -> object:
    """Return the value of a field from its rule: a constant, a function, or keys of the config."""
    if isinstance(value, list):
        name, *arguments = value
        return named(name.removeprefix("@"))(config, *arguments)
    if not isinstance(value, str):
        return value
    if value.startswith("@"):
        return named(value[1:])(config)
    if kind is bool:
        return any(_flag(each, config) for each in value.split(" or "))
    if isinstance(kind, type) and issubclass(kind, str):
        return value
    *first, last = value.split(" or ")
    sizes = (_product(each + "?", config) for each in first)
    return next((size for size in sizes if size is not None), None) or _product(last, config)


def _flag(text: str, config: ConfigReader) -> bool:
    key, _, default = text.removeprefix(_NOT).partition("=")
    return config.flag(key, default == "true") is not text.startswith(_NOT)


def _product(text: str, config: ConfigReader) -> int | None:
    """Return the product of sizes of a rule text; None if an optional size is missing."""
    sizes: list[int] = []
    for term in text.split(" * "):
        size = _size(term, config)
        if not size:
            return size
        sizes.append(size)
    return math.prod(sizes)


def _size(term: str, config: ConfigReader) -> int | None:
    """Return the integer of one term of a rule: a number, or a config key with optional default."""
    if term.rstrip("?").isdecimal():
        return int(term.rstrip("?"))
    match = _TERM.fullmatch(term)
    if match is None:
        raise ValueError(f"{term!r} is not a term")
    *tables, key = match[1].split(".")
    for name in tables:
        config = config.table(name)
    default = int(match[2]) if match[2] else None
    least = int(match[3]) if match[3] else 0 if default == 0 else 1
    return config.optional_size(key, least) if match[4] else config.size(key, default, least)


def _split_layer_overrides(config: ConfigReader) -> tuple[dict[int, str], ConfigReader]:
    """Return ``per_layer_config`` as JSON by layer, and the config without it."""
    table = config.table("per_layer_config").values
    overrides: dict[int, str] = {}
    for layer, values in table.items():
        if not layer.isdecimal() or len(layer) > 5 or not isinstance(values, dict):
            config.add_error("per_layer_config", "must hold an object for each number of a layer")
        elif values:
            overrides[int(layer)] = json.dumps(values, sort_keys=True)
    return overrides, config.replaced({"per_layer_config": None})


def _rows(families: Mapping[str, Row], shapes: Mapping[str, Row]) -> dict[str, Row]:
    """Return the rules of each family, merged over the rows named in ``like``."""

    def merge_parents(row: Row) -> dict[str, object]:
        merged: dict[str, object] = {}
        for name in row.get("like", ()):
            merged = _over(merged, merge_parents(families.get(name) or shapes[name]))
        return _over(merged, {key: value for key, value in row.items() if key != "like"})

    return {name: merge_parents(row) for name, row in families.items()}


def _over(base: Row, overrides: Row) -> dict[str, object]:
    """Return the rules ``base`` with ``overrides`` merged over them, table by table."""
    merged = dict(base)
    for key, value in overrides.items():
        inherited = merged.get(key)
        has_both = isinstance(inherited, dict) and isinstance(value, dict)
        merged[key] = _over(inherited or {}, value) if has_both else value
    return merged


def _composite(whole_name: str, default_type: str, config: ConfigReader) -> Table:
    """Return the model table of a multimodal config: language model and omitted parts."""
    full_config = config.table(_THINKER) if config.values.get(_THINKER) is not None else config
    text = full_config.text()
    model_type = text.values.get("model_type")
    name = default_type if model_type is None or text is full_config else str(model_type)
    name = OTHER_NAMES.get(name, name)
    if name not in ROWS:
        hint = did_you_mean(name[:40], ROWS).strip()
        why = f" ({hint})" if hint else ""
        if name in UNMODELLED:
            why = f": not modelled are {UNMODELLED[name]}"
        text.add_error("model_type", f"{name[:40]!r} is not supported{why}")
        return {}
    table = _table(ROWS[name], text.completed(_ALL["text_defaults"].get(name, {})))
    tied = full_config.flag("tie_word_embeddings", bool(table["tie_word_embeddings"]))
    parts = [word for key, word in _PARTS.items() if full_config.values.get(key) is not None]
    parts = [f"{part} tower" for part in parts or ["vision"]]
    note = _TEXT_PART.format(" and ".join(f"the {part}" for part in parts))
    omitted: Table = {"omitted_parts": parts, "omitted_parameters": _tower_size(full_config)}
    width = int(number_of_row(table, "hidden_size"))
    if tower := vision_tower(_TOWERS.get(whole_name), full_config, width):
        omitted |= {"vision_tower": tower, "omitted_parameters": None}
    notes = f"{note} {table['notes']}".rstrip()
    return table | {"tie_word_embeddings": tied, "notes": notes, **omitted}


def _tower_size(full_config: ConfigReader) -> float | None:
    """Return the approximate number of parameters of a vision transformer.

    A layer of width h has 4 h^2 parameters of attention and 2 h f, gated 3 h f, of the feed-forward
    block (arXiv:2010.11929, section 3.1); norms, biases and the projector are left out. None where
    the sizes are not those of one tower of equal layers.
    """
    tower = full_config.values.get("vision_config")
    if not isinstance(tower, Mapping) or full_config.values.get("audio_config") is not None:
        return None
    layers = tower.get("num_hidden_layers", tower.get("depth"))
    sizes = [layers, *(tower.get(name) for name in ("hidden_size", "intermediate_size"))]
    patch = tower.get("patch_size", 0)
    if not all(type(size) is int and 0 < size < _LARGEST_SIZE for size in sizes):
        return None
    depth, h, f = (float(size) for size in sizes)
    side = float(patch) if type(patch) is int and 0 < patch < _LARGEST_SIZE else 0.0
    matrices = 3 if tower.get("hidden_act") == "silu" else 2
    return depth * (4 * h**2 + matrices * h * f) + 3 * side**2 * h


ROWS = _rows(_ALL["families"], _ALL["shapes"])
OTHER_NAMES: Mapping[str, str] = _ALL["other_names"]
COMPOSITES: Mapping[str, str] = _ALL["composites"]
UNMODELLED: Mapping[str, str] = {
    name: reason for reason, names in _ALL["unmodelled"].items() for name in names.split()
}
UNMODELLED_NAMES: Mapping[str, str] = _ALL["unmodelled_names"]
_TOWERS = _rows(_ALL["towers"], _ALL["tower_shapes"])
_TEXTS: dict[str, Family] = {name: partial(_table, row) for name, row in ROWS.items()}
_TEXTS |= {name: _TEXTS[family] for name, family in OTHER_NAMES.items()}
_COMPOSITE_FAMILIES: dict[str, Family] = {
    name: partial(_composite, name, usual) for name, usual in COMPOSITES.items()
}
FAMILIES = dict(sorted((_TEXTS | _COMPOSITE_FAMILIES).items()))
