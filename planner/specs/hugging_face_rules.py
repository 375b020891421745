"""Functions that rows of `hugging_face_families.toml` name.

A `Rule` selects layers, ``@NAME`` reads a value from the config, ``base`` makes the attention
table, and ``modern`` converts the config of a checkpoint to the keys of the row.

Parameters
----------
config : ``config.json`` of the model
layer : index of a layer, from 0
key : key of ``config.json``
fields : fields of the attention that the family fixes
number : layers of a period, if the config does not set it
period, default_period : key of the number of layers of a period, and its default
offset, default_offset : key of the position of a layer in its period, and its default
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from planner.base.csv_cells import number_of_row
from planner.base.units import ceil_div
from planner.specs.hugging_face_reader import ConfigReader
from planner.specs.model import MOST_LAYERS

Table = dict[str, object]
Label = TypeVar("Label", bound=Hashable)
Rule = Callable[[ConfigReader, int], bool]

# Width of the Baichuan models with rotary positions; others have the same model_type.
_ROTARY_BAICHUAN = 4096
_PREDICTION_MODULES = (
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "num_mtp_modules",
    "num_mtp_layers",
)


class Kind(NamedTuple):
    """Label of a layer: layers with equal labels form a group.

    Parameters
    ----------
    mixer : kind of attention or state; empty: none
    feed_forward : kind of feed-forward; empty: none
    overrides : further distinction, such as sizes of this layer
    """

    mixer: str
    feed_forward: str
    overrides: str = ""


# Groups of layers.


def groups(labels: Sequence[Label], build: Callable[[Label], Table]) -> list[Table]:
    """Group layers of equal label; a label with several runs is spread over the depth.

    Parameters
    ----------
    labels : label of each layer
    build : function from a label to the table of the group
    """
    runs = [label for label, _ in groupby(labels)]
    return [
        build(label)
        | {"num_hidden_layers": labels.count(label)}
        | ({"placement": "interleaved"} if runs.count(label) > 1 else {})
        for label in dict.fromkeys(labels)
    ]


def label_layers(
    config: ConfigReader, key: str, labels: Mapping[str, Label], default: Callable[[int], Label]
) -> list[Label]:
    """Return the label of each layer, from the list under ``key`` or by ``default``.

    Parameters
    ----------
    labels : label by word
    default : function from the index of a layer to its label, if the config lacks the list
    """
    layers = config.layers()
    kinds = config.sequence(key, layers)
    if kinds is None:
        return [default(layer) for layer in range(layers)]
    words = [kind for kind in kinds if isinstance(kind, str) and kind in labels]
    if len(words) < len(kinds):
        config.add_error(key, f"may only name {', '.join(labels)}")
        return [next(iter(labels.values()))] * layers
    return [labels[word] for word in words]


def windowed(config: ConfigReader, default: Callable[[int], bool]) -> list[bool]:
    """Return for each layer whether its attention is limited to a sliding window.

    Parameters
    ----------
    default : function from the index of a layer to its answer, if the config has no ``layer_types``
    """
    labels = {"full_attention": False, "sliding_attention": True, "chunked_attention": True}
    return label_layers(config, "layer_types", labels, default)


# Rules.


def always(_: ConfigReader, __: int) -> bool:
    """Rule for all layers."""
    return True


def never(_: ConfigReader, __: int) -> bool:
    """Rule for no layer."""
    return False


def all_but_last_of(number: int, key: str = "sliding_window_pattern") -> Rule:
    """Return a rule that selects all but the last layer of each period of ``number`` layers.

    The config has the period, 0 for no layer, or letters with L for the layers of the rule.
    """

    def rule(config: ConfigReader, layer: int) -> bool:
        pattern = config.values.get(key)
        if isinstance(pattern, str) and pattern:
            return pattern[layer % len(pattern)] == "L"
        return (layer + 1) % (config.size(key, number, least=0) or 1) != 0

    return rule


def all_but_first_of(number: int) -> Rule:
    """Rule for all but one layer in ``number``, the first of them."""
    return lambda _, layer: layer % number != 0


def all_but_every_from_last(number: int) -> Rule:
    """Rule for all but one layer in ``number``, counted back from the last layer."""
    return lambda config, layer: (config.layers() - 1 - layer) % number != 0


def last_of_each(key: str) -> Rule:
    """Rule for the last layer of each period of ``key``."""
    return lambda config, layer: (layer + 1) % config.size(key, 1) == 0


def after(key: str, default: int, step_key: str = "") -> Rule:
    """Return a rule that selects all layers after the first ``key``, or one in each step.

    Parameters
    ----------
    default : number of first layers, if the config lacks the key
    step_key : key of the step; empty: 1
    """

    def rule(config: ConfigReader, layer: int) -> bool:
        step = config.size(step_key, 1) if step_key else 1
        return layer >= config.size(key, default, least=0) and layer % step == 0

    return rule


def at(period: str, default_period: int, offset: str, default_offset: int) -> Rule:
    """Return a rule that selects one layer in each period."""

    def rule(config: ConfigReader, layer: int) -> bool:
        return layer % config.size(period, default_period) == config.size(
            offset, default_offset, least=0
        )

    return rule


def all_but_at(period: str, default_period: int, offset: str, default_offset: int) -> Rule:
    """Rule for all layers but one in each period."""
    holds = at(period, default_period, offset, default_offset)
    return lambda config, layer: not holds(config, layer)


def experts_of_jamba(config: ConfigReader, layer: int) -> bool:
    """Rule for one layer in each period, where there is more than one expert."""
    holds = at("expert_layer_period", 2, "expert_layer_offset", 1)
    return config.size("num_experts", 16) > 1 and holds(config, layer)


def where(key: str) -> Rule:
    """Rule for all layers where a flag is true."""
    return lambda config, _: config.flag(key, False)


def where_any(key: str, default: int) -> Rule:
    """Return a rule that selects all layers if the number under ``key`` is not zero.

    Parameters
    ----------
    default : number, if the config lacks the key
    """
    return lambda config, _: config.size(key, default, least=0) > 0


def among_experts(config: ConfigReader, layer: int) -> bool:
    """Rule for the layers that Qwen's keys do not make dense."""
    dense = config.sequence("mlp_only_layers") or ()
    return layer not in dense and (layer + 1) % config.size("decoder_sparse_step", 1) == 0


def experts_of_ernie(config: ConfigReader, layer: int) -> bool:
    """Return whether a layer has experts (ERNIE): one per interval, from first to last."""
    end = config.size("moe_layer_end_index", -1, least=-1)
    last = config.layers() - 1 if end == -1 else end
    step = config.size("moe_layer_interval", 1)
    first = config.size("moe_layer_start_index", 1, least=0)
    return first <= layer <= last and (layer + 1) % step == 0


def without_rotary(config: ConfigReader, layer: int) -> bool:
    """Rule for the layers of SmolLM3 without rotary positions."""
    every = config.size("no_rope_layer_interval", 4)
    has_rope = config.sequence("no_rope_layers", config.layers())
    return (layer + 1) % every == 0 if has_rope is None else not has_rope[layer]


def attends_to_images(config: ConfigReader, layer: int) -> bool:
    """Rule for the layers with numbers in the config of Llama 3.2 Vision."""
    return layer in (config.sequence("cross_attention_layers") or ())


def windows_of_flint(config: ConfigReader, layer: int) -> bool:
    """Rule for three layers in four, from the third on, and not of the last."""
    return windows_of_dots(layer) and layer != config.layers() - 1


def windows_of_mimo(_: ConfigReader, layer: int) -> bool:
    """Rule for five layers in six, and not of the first."""
    return layer > 0 and (layer + 1) % 6 != 0


def windows_of_dots(layer: int) -> bool:
    """Rule for three layers in four, from the third on."""
    return layer >= 2 and layer % 4 != 1


def blocks_of_nemotron(config: ConfigReader) -> list[Kind]:
    """Return the kind of each layer (Nemotron-H): Mamba-2, attention or feed-forward."""
    pattern = config.values.get("hybrid_override_pattern")
    words = config.sequence("layers_block_type")
    if words is None and isinstance(pattern, str):
        words = list(pattern)
    kinds = [str(word) for word in words or ()]
    if not kinds:
        config.add_error("hybrid_override_pattern", "is missing, and so is layers_block_type")
    elif set(kinds) - _BLOCKS.keys():
        config.add_error("hybrid_override_pattern", "may only name M, *, - and E")
    elif len(kinds) > MOST_LAYERS:
        config.add_error("hybrid_override_pattern", f"names more than {MOST_LAYERS} layers")
    elif config.optional_size("num_hidden_layers") not in (None, len(kinds)):
        config.add_error("num_hidden_layers", f"contradicts the pattern of {len(kinds)} layers")
    else:
        return [_BLOCKS[kind] for kind in kinds]
    return [_BLOCKS["*"]]


_BLOCKS = {
    word: kind
    for words, kind in (
        ("M mamba linear_attention", Kind("mamba2", "")),
        ("* attention full_attention", Kind("full", "")),
        ("- mlp", Kind("", "dense")),
        ("E moe", Kind("", "sparse")),
    )
    for word in words.split()
}


# Attention tables.


def attention(config: ConfigReader, **fields: Any) -> Table:
    """Return the attention table from the common config keys; ``fields`` take precedence."""
    heads = config.size("num_attention_heads")
    shared = fields.pop("num_key_value_heads", None) or config.size("num_key_value_heads", heads)
    if heads % shared:
        config.add_error("num_key_value_heads", f"{shared} does not divide {heads} attention heads")
    width = fields.pop("head_dim", None) or config.optional_size("head_dim")
    return {
        "num_attention_heads": heads,
        "num_key_value_heads": shared,
        "head_dim": width or _head_dim(config, heads),
        **fields,
    }


def _head_dim(config: ConfigReader, heads: int) -> int:
    """Return hidden_size / heads; record an error if the division is not exact."""
    hidden = config.optional_size("hidden_size")
    if hidden is None:
        return 1  # the model table reports the missing key
    if hidden % heads:
        config.add_error("hidden_size", f"{hidden} is not divisible by {heads} attention heads")
    return max(hidden // heads, 1)


def latent_attention(config: ConfigReader, **fields: object) -> Table:
    """Return the latent attention (MLA) table from DeepSeek's keys; ``fields`` win."""
    heads = config.size("num_attention_heads")
    rotary = config.size("qk_rope_head_dim", least=0)
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


def square_attention(config: ConfigReader, **fields: object) -> Table:
    """Return the attention table; record an error if its output projection is not square."""
    table = attention(config, **fields)
    width = number_of_row(table, "num_attention_heads") * number_of_row(table, "head_dim")
    if width != config.size("hidden_size"):
        config.add_error("head_dim", "times num_attention_heads must be hidden_size")
    return table


def unequal_heads(config: ConfigReader, **fields: object) -> Table:
    """Return attention with different key and value widths, described by their mean."""
    key, value = config.size("head_dim", 192), config.size("v_head_dim", 128)
    if (key + value) % 2:
        config.add_error("v_head_dim", f"{value} and head_dim {key} have no whole mean")
    return attention(config, **fields) | {"head_dim": (key + value) // 2}


# Values.


def if_flag(config: ConfigReader, key: str, default: bool, true: object, false: object) -> object:
    """Return a value by the flag under ``key``.

    Parameters
    ----------
    default : flag, if the config lacks the key
    true : value if the flag is set
    false : value if it is not
    """
    return true if config.flag(key, default) else false


def if_word(
    config: ConfigReader, key: str, word: str, true: object = True, false: object = False
) -> object:
    """Return a value by whether ``word`` is under ``key``.

    Parameters
    ----------
    word : text to find
    true : value if it is there
    false : value if it is not
    """
    return true if config.values.get(key) == word else false


def prediction_modules(config: ConfigReader) -> int:
    """Number of modules of multi-token prediction, by the names in the families."""
    return max(config.size(name, 0, least=0) for name in _PREDICTION_MODULES)


def heads_of_multi_query(config: ConfigReader) -> int:
    """Return the key-value heads of Falcon or GPT-BigCode: 1, except newer Falcon."""
    heads = config.size("num_attention_heads")
    if config.flag("new_decoder_architecture", False):
        return config.size("num_kv_heads", heads)
    return 1 if config.flag("multi_query", True) else heads


def heads_of_chatglm(config: ConfigReader) -> int | None:
    """Key-value heads, if they are fewer than those of queries."""
    several = config.flag("multi_query_attention", False)
    return config.size("multi_query_group_num", 1) if several else None


def norms_of_falcon(config: ConfigReader) -> int:
    """Norms of a layer: one before both blocks, or one before each."""
    if config.flag("new_decoder_architecture", False):
        return config.size("num_ln_in_parallel_attn", 2)
    return 1 if config.flag("parallel_attn", True) else 2


def gate_per_number(config: ConfigReader) -> bool:
    """Whether the gate of Laguna has a column per number, and not one per head."""
    return config.values.get("gating") not in (None, True, "per-head")


def half_of_intermediate_size(config: ConfigReader) -> int:
    """Return the MLP width of the first Qwen: half of intermediate_size."""
    both = config.size("intermediate_size", least=2)
    if both % 2:
        config.add_error("intermediate_size", f"{both} is not twice a whole number")
    return both // 2


def heads_of_mimo(config: ConfigReader) -> int:
    """Key-value heads of the layers with a window; by default twice those of other layers."""
    window_heads = config.optional_size("swa_num_key_value_heads")
    return window_heads or 2 * config.size("num_key_value_heads", 4)


def heads_of_step(config: ConfigReader) -> int:
    """Heads of the layers with a window."""
    other = config.table("attention_other_setting").optional_size("num_attention_heads")
    window_heads = config.optional_size("num_sliding_attention_heads")
    return window_heads or other or config.size("num_attention_heads")


def mamba_head(config: ConfigReader) -> int:
    """Return the width of a Mamba head; ``auto`` divides the expanded hidden size."""
    if config.values.get("mamba_d_head", "auto") != "auto":
        return config.size("mamba_d_head")
    expanded = config.size("mamba_expand", 2) * config.size("hidden_size")
    return max(expanded // config.size("mamba_n_heads", 128), 1)


def time_steps(config: ConfigReader, key: str) -> int:
    """Rank of the time steps of Mamba-1, by default a sixteenth of the hidden size, rounded up."""
    if config.values.get(key, "auto") != "auto":
        return config.size(key)
    return ceil_div(config.size("hidden_size"), 16)


def width_of_falcon(config: ConfigReader) -> int:
    """Width of a head of the state of Falcon-H1."""
    if config.values.get("mamba_d_head", "auto") == "auto" and config.optional_size("mamba_d_ssm"):
        return max(config.size("mamba_d_ssm") // config.size("mamba_n_heads", 128), 1)
    return mamba_head(config)


def position_of_baichuan(config: ConfigReader) -> str:
    """Positions of Baichuan, by the width of the model."""
    return "rotary" if config.size("hidden_size") == _ROTARY_BAICHUAN else "alibi"


def position_of_mpt(config: ConfigReader) -> str:
    """Positions of MPT."""
    inner = config.table("attn_config")
    alibi, rotary = inner.flag("alibi", False), inner.flag("rope", False)
    return "alibi" if alibi else "rotary" if rotary else "learned"


# Configs of checkpoints in the keys of their row, those that transformers 5 saves.


def embedded_at_full_width(config: ConfigReader) -> ConfigReader:
    """Return OPT's config; record an error for embeddings narrower than the layers."""
    hidden = config.size("hidden_size")
    if config.size("word_embed_proj_dim", hidden) != hidden:
        config.add_error("word_embed_proj_dim", f"other than hidden_size {hidden} is not supported")
    return config


def without_windows(config: ConfigReader) -> ConfigReader:
    """Return the config of dots; record an error for a layer with a sliding window."""
    first = config.size("max_window_layers", 62, least=0)
    window = config.optional_size("sliding_window")
    if any(windowed(config, lambda layer: window is not None and layer >= first)):
        config.add_error("layer_types", "other than full_attention are not supported")
    return config


def chunked_attention(config: ConfigReader) -> ConfigReader:
    """Llama 4: a chunk is a window."""
    return config.replaced({"sliding_window": config.size("attention_chunk_size", 8192)})


def require_equal_layers(config: ConfigReader) -> ConfigReader:
    """Return Hunyuan's config with per-layer lists as one value; record unequal entries."""
    if config.size("moe_layer_num_skipped", 0, least=0):
        config.add_error("moe_layer_num_skipped", "other than 0 is not supported")
    table: Table = {}
    for key in ("moe_intermediate_size", "num_experts", "moe_topk", "num_shared_expert"):
        if isinstance(config.values.get(key), list):
            entries = config.sequence(key, config.layers()) or [1]
            if any(entry != entries[0] for entry in entries):
                config.add_error(key, "must be the same in all layers")
            table[key] = entries[0]
    if config.values.get("moe_intermediate_size") is None:
        table["moe_intermediate_size"] = config.size("intermediate_size")
    return config.replaced(table)


def modern_gpt_neo(config: ConfigReader) -> ConfigReader:
    """Return GPT-Neo's config with its window words as ``layer_types``."""
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


def _repeated(types: Sequence[object] | None) -> list[object]:
    """Return the words of ``[[words, times], ...]``, repeated."""
    kinds: list[object] = []
    for entry in types or ():
        match entry:
            case [list(words), int(times)] if len(words) * times <= 10_000:
                kinds += words * times
            case _:
                return []
    return kinds


def modern_modernbert(config: ConfigReader) -> ConfigReader:
    """Return ModernBERT's config with the window to one side: half of its window."""
    if config.optional_size("sliding_window") is not None:
        return config
    half = config.size("local_attention", 128, least=2) // 2
    return config.replaced({"sliding_window": half})


def modern_bamba(config: ConfigReader) -> ConfigReader:
    """Return Bamba's config with its attention layers as ``layer_types``, others Mamba-2."""
    chosen = config.sequence("attn_layer_indices") or ()
    kinds = [
        "full_attention" if layer in chosen else "linear_attention"
        for layer in range(config.layers())
    ]
    return config.replaced({"layer_types": kinds})


def modern_minimax_01(config: ConfigReader) -> ConfigReader:
    """The key of the published file: a list with 1 for full attention, else 0."""
    kinds = listed(config, "attn_type_list", ("linear_attention", "full_attention"))
    return config if kinds is None else config.replaced({"layer_types": kinds})


def modern_olmo_hybrid(config: ConfigReader) -> ConfigReader:
    """Return the config with head sizes that the family derives if they are missing."""
    heads = config.size("num_attention_heads")
    keys = config.optional_size("linear_num_key_heads") or heads
    width = config.optional_size("linear_key_head_dim")
    width = width or max(3 * config.size("hidden_size") // (4 * keys), 1)
    return config.with_defaults(
        {
            "linear_num_key_heads": keys,
            "linear_num_value_heads": heads,
            "linear_key_head_dim": width,
            "linear_value_head_dim": 2 * width,
        }
    )


def listed(config: ConfigReader, key: str, words: tuple[str, str]) -> list[str] | None:
    """Return the word of each layer from a list of 0 and 1; None if the config lacks the list.

    Parameters
    ----------
    words : words for 0 and for 1
    """
    entries = config.sequence(key, config.layers())
    if entries is None:
        return None
    return [words[1] if entry == 1 else words[0] for entry in entries]


def modern_mimo(config: ConfigReader) -> ConfigReader:
    """Return MiMo's config with its 0/1 lists as layer types and the window size as usual."""
    kinds = {
        "layer_types": listed(
            config, "hybrid_layer_pattern", ("full_attention", "sliding_attention")
        ),
        "mlp_layer_types": listed(config, "moe_layer_freq", ("dense", "sparse")),
    }
    values: dict[str, object] = {key: value for key, value in kinds.items() if value is not None}
    window = config.optional_size("sliding_window_size")
    if window is not None:
        values["sliding_window"] = window
    return config.replaced(values)


def modern_step(config: ConfigReader) -> ConfigReader:
    """Return Step's config with its expert layers and window heads set per layer."""
    number = config.layers()
    values: dict[str, object] = {}
    for key in ("layer_types", "mlp_layer_types"):
        kinds = config.values.get(key)
        if isinstance(kinds, list) and len(kinds) > number:
            values[key] = kinds[:number]  # the rest are modules of multi-token prediction
    if config.values.get("mlp_layer_types") is None:
        listed = config.values.get("moe_layers_enum")
        names = listed.split(",") if isinstance(listed, str) else listed
        chosen = {str(name).strip() for name in names} if isinstance(names, list) else None
        values["mlp_layer_types"] = [
            "sparse" if (layer >= 3 if chosen is None else str(layer) in chosen) else "dense"
            for layer in range(number)
        ]
    return config.replaced(values)


def modern_laguna(config: ConfigReader) -> ConfigReader:
    """Return the config with head counts that differ by layer as per-layer overrides."""
    heads = config.sequence("num_attention_heads_per_layer", config.layers())
    if heads is None:
        return config
    by_layer = {str(layer): {"num_attention_heads": number} for layer, number in enumerate(heads)}
    return config.replaced({"per_layer_config": by_layer})


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
    """Return the config with latent attention by layer: other sizes in windows, else indexers."""
    words = {"full_attention": False, "indexed_attention": False, "sliding_attention": True}
    kinds = label_layers(config, "layer_types", words, windows_of_dots)
    heads = {key: config.size(f"swa_{key}", default) for key, default in _HEADS_OF_DOTS.items()}
    return config.completed(
        {"per_layer_config": {str(i): heads for i, windowed in enumerate(kinds) if windowed}}
    ).replaced(
        {"layer_types": ["sliding_attention" if kind else "full_attention" for kind in kinds]}
    )


def modern_gemma4(config: ConfigReader) -> ConfigReader:
    """Return the config with its full-attention heads and shared-cache layers set per layer."""
    return _with_shared_cache(_with_global_heads(config))


def modern_gemma3n(config: ConfigReader) -> ConfigReader:
    """Return Gemma 3n's config with MLP widths and shared-cache layers set per layer."""
    widths = config.values.get("intermediate_size")
    if isinstance(widths, list) and widths:
        by_layer = {str(layer): {"intermediate_size": width} for layer, width in enumerate(widths)}
        config = config.replaced({"intermediate_size": widths[0], "per_layer_config": by_layer})
    return _with_shared_cache(config)


def _with_shared_cache(config: ConfigReader) -> ConfigReader:
    """Return the config with last layers that read the KV cache of earlier layers."""
    number, shared = config.layers(), config.size("num_kv_shared_layers", 0, least=0)
    if not shared:
        return config
    table: Table = {"shares_cache": True}
    if config.flag("use_double_wide_mlp", False):
        table["intermediate_size"] = 2 * config.size("intermediate_size")
    layers = dict(config.table("per_layer_config").values)
    for layer in range(max(number - shared, 0), number):
        before = layers.get(str(layer))
        layers[str(layer)] = (before if isinstance(before, dict) else {}) | table
    return config.replaced({"per_layer_config": layers})


def _with_global_heads(config: ConfigReader) -> ConfigReader:
    """Return the config with the head sizes of its full-attention layers set per layer."""
    if config.values.get("per_layer_config") is not None:
        return config
    shared = config.optional_size("num_global_key_value_heads")
    equal = config.flag("attention_k_eq_v", False)
    heads = {"head_dim": config.size("global_head_dim", 512)}
    if shared and equal:
        heads |= {"num_key_value_heads": shared}
    full = {"full_attention": True, "sliding_attention": False}
    kinds = label_layers(config, "layer_types", full, lambda layer: (layer + 1) % 6 == 0)
    return config.replaced(
        {"per_layer_config": {str(layer): heads for layer, is_full in enumerate(kinds) if is_full}}
    )
