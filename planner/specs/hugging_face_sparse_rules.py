"""Functions that family rows name, for configs with sparse or compressed attention or states.

Functions for other configs are in `planner.specs.hugging_face_rules`.

Parameters
----------
config : ``config.json`` of the model
layer : index of a layer, from 0
fields : fields of the attention that the family fixes
"""

from __future__ import annotations

import json

from planner.base.units import ceil_div
from planner.specs.hugging_face_reader import ConfigReader
from planner.specs.hugging_face_rules import Kind, Table, label_layers, listed

MOST_TIMES = 1000
_INDEX_OF_MINIMAX = (
    ("index_n_heads", "sparse_num_index_heads"),
    ("index_head_dim", "sparse_index_dim"),
    ("index_block_size", "sparse_block_size"),
    ("index_topk_blocks", "sparse_topk_blocks"),
)
_SPARSE, _HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"
_RATES = {_SPARSE: 4, _HEAVY: 128}
_NEAR = "sliding_attention"


def modern_indexers(config: ConfigReader) -> ConfigReader:
    """Layers without an indexer: they attend to the keys of the last indexer before them.

    A list of words, a pattern of letters, or one indexer in so many layers after the first ones.
    """
    pattern = config.values.get("index_topk_pattern")
    if config.values.get("indexer_types") is None and isinstance(pattern, str | list):
        words = [{"F": "full", "S": "shared"}.get(str(each), each) for each in pattern]
        config = config.replaced({"indexer_types": words})
    every = config.size("index_topk_freq", 1)
    first = config.size("index_skip_topk_offset", 2, least=0)
    labels = {"full": True, "shared": False}
    full = label_layers(
        config, "indexer_types", labels, lambda layer: max(layer - first + 1, 0) % every == 0
    )
    if not full[0]:
        config.add_error("indexer_types", "of the first layer must be full")
    none = {"index_n_heads": 0, "index_head_dim": 0}
    layer_overrides = {str(layer): none for layer, is_full in enumerate(full) if not is_full}
    return config.replaced({"per_layer_config": layer_overrides}) if layer_overrides else config


def modern_minimax(config: ConfigReader) -> ConfigReader:
    """Return MiniMax's config with its 0/1 lists as layer types."""
    sparse = config.table("sparse_attention_config")
    kinds = {
        "layer_types": listed(
            sparse.replaced({"num_hidden_layers": config.layers()}),
            "sparse_attention_freq",
            ("full_attention", "minimax_m3_sparse"),
        ),
        "mlp_layer_types": listed(config, "moe_layer_freq", ("dense", "sparse")),
    }
    values = {key: value for key, value in kinds.items() if value and not config.values.get(key)}
    config = config.replaced(values).completed(
        {name: sparse.values[key] for name, key in _INDEX_OF_MINIMAX if key in sparse.values}
    )
    words = {"full_attention": False, "minimax_m3_sparse": True}
    chosen = label_layers(config, "layer_types", words, lambda _: False)
    keys = config.size("index_topk_blocks", 16) * config.size("index_block_size", 128)
    indexer = {
        "index_topk": keys,
        "index_n_heads": config.size("index_n_heads", 4),
        "index_head_dim": config.size("index_head_dim", 128),
    }
    none = dict.fromkeys(indexer, 0)
    layers = {str(layer): indexer if chooses else none for layer, chooses in enumerate(chosen)}
    return config.replaced({"layer_types": None, "per_layer_config": layers})


def modern_deepseek_v4(config: ConfigReader) -> ConfigReader:
    """Tokens of an entry and an indexer layer by layer, and routers that look experts up.

    Published files name a ratio per layer; transformers 5 a word, and a rate per word.
    """
    number = config.layers()
    longer = {
        key: entries[:number]  # the rest are modules of multi-token prediction
        for key in ("compress_ratios", "layer_types", "mlp_layer_types")
        if isinstance(entries := config.values.get(key), list) and len(entries) > number
    }
    config, words = config.replaced(longer), {_NEAR: 0} | _RATES
    rates = config.table("compress_rates")
    rate = {word: rates.size(word, usual) for word, usual in _RATES.items()} | {_NEAR: 0}
    listed = config.sequence("compress_ratios", number)
    if config.values.get("layer_types") is None and listed is not None:
        names: dict[object, object] = {ratio: word for word, ratio in words.items()}
        config = config.replaced({"layer_types": [names.get(each, each) for each in listed]})
    kinds = label_layers(
        config, "layer_types", {word: word for word in words},
        lambda layer: _SPARSE if layer > 1 and layer % 2 else _HEAVY,
    )  # fmt: skip
    first = config.size("num_hash_layers", 3, least=0)
    looked_up = label_layers(
        config, "mlp_layer_types", {"hash_moe": True, "moe": False}, lambda layer: layer < first
    )
    none = {"index_topk": 0, "index_n_heads": 0, "index_head_dim": 0}
    layer_overrides = {
        str(layer): {"compress_ratio": rate[kind], "looks_experts_up": looks}
        | ({} if kind == _SPARSE else none)
        for layer, (kind, looks) in enumerate(zip(kinds, looked_up, strict=True))
    }
    return config.replaced(
        {"layer_types": None, "mlp_layer_types": None, "per_layer_config": layer_overrides}
    )


def compressed_attention(config: ConfigReader, **fields: object) -> Table:
    """Return the compressed attention table from DeepSeek-V4's config keys."""
    return {
        "kind": "compressed",
        "num_attention_heads": config.size("num_attention_heads"),
        "num_key_value_heads": 1,
        "head_dim": config.size("head_dim"),
        "qk_rope_head_dim": config.size("qk_rope_head_dim", 64),
        "q_lora_rank": config.size("q_lora_rank"),
        "sinks": True,
        "sliding_window": config.size("sliding_window"),
        **fields,
    }


def all_but_each_fourth(_: ConfigReader, layer: int) -> bool:
    """Rule for all layers but one in four, the first aside."""
    return layer == 0 or layer % 4 != 0


def modern_kimi_linear(config: ConfigReader) -> ConfigReader:
    """The keys of the published file: sizes in a table, and the numbers of layers from 1 on."""
    table = config.table("linear_attn_config")
    sizes = {
        "linear_head_dim": table.optional_size("head_dim"),
        "linear_num_heads": table.optional_size("num_heads"),
        "linear_conv_kernel_dim": table.optional_size("short_conv_kernel_size"),
    }
    values: Table = {key: size for key, size in sizes.items() if size}
    values["linear_full_gate"] = table.flag("use_full_rank_gate", False)
    full = table.sequence("full_attn_layers")
    if full is not None and config.values.get("layer_types") is None:
        values["layer_types"] = [
            "full_attention" if layer + 1 in full else "linear_attention"
            for layer in range(config.layers())
        ]
    return config.replaced(values)


def modern_glm_next(config: ConfigReader) -> ConfigReader:
    """The names of GLM-5.3: layers of latent attention choose keys, and may share the choice."""
    kinds = config.values.get("layer_types")
    if isinstance(kinds, list):
        words = {
            "indexed_attention": "full_attention",
            "deepseek_sparse_attention": "full_attention",
        }
        config = config.replaced({"layer_types": [words.get(str(kind), kind) for kind in kinds]})
    return modern_kimi_linear(modern_indexers(config))


def modern_mistral_large(config: ConfigReader) -> ConfigReader:
    """Layers without rotary positions, and those that read the cache of one before them."""
    config = modern_indexers(config)
    number = config.layers()
    has_rope = config.sequence("no_rope_layers", number)
    step = config.size("no_rope_layer_interval", 4)
    sources = config.sequence("kv_source_layers", number) or range(number)
    rope = config.size("qk_rope_head_dim", 64, least=0)
    without_rope = {
        "qk_rope_head_dim": 0,
        "qk_nope_head_dim": config.size("qk_nope_head_dim", 64) + rope,
    }
    layer_overrides: dict[str, Table] = {}
    for layer in range(number):
        rotates = (layer + 1) % step != 0 if has_rope is None else bool(has_rope[layer])
        shared: Table = {} if sources[layer] == layer else {"shares_cache": True}
        before = config.table("per_layer_config").values.get(str(layer))
        layer_overrides[str(layer)] = _as_table(before) | ({} if rotates else without_rope) | shared
    return config.replaced(
        {"per_layer_config": {key: each for key, each in layer_overrides.items() if each}}
    )


def sums_before(config: ConfigReader) -> int:
    """Mean sums that a block of Kimi-K3 reads: one per block of layers, and its current one."""
    size, layers = config.optional_size("attn_res_block_size"), config.layers()
    return round(sum(layer // size + 2 for layer in range(layers)) / layers) if size else 0


def modern_bailing_hybrid(config: ConfigReader) -> ConfigReader:
    """Return the config with as many linear-attention heads as attention heads.

    Ling 2.5 has the type of Ling 3, and lightning attention without convolutions.
    """
    if config.names("group_norm_size") and not config.names("short_conv_kernel_size"):
        config.add_error("short_conv_kernel_size", "is missing: Ling 2.5 is not read, Ling 3 is")
    return config.completed(
        {
            "linear_num_heads": config.size("num_attention_heads"),
            "linear_head_dim": config.size("head_dim", 128),
            "linear_conv_kernel_dim": config.size("short_conv_kernel_size", 4),
        }
    )


def lightning_of_ling(config: ConfigReader, layer: int) -> bool:
    """Rule for all but the last of each group of layers, and for none after the last full group."""
    size, layers = config.size("layer_group_size", 1), config.layers()
    return (layer + 1) % size != 0 and layer < layers // size * size


def blocks_of_longcat(config: ConfigReader) -> list[Kind]:
    """Each layer as two: attention and an MLP, attention and experts in parallel to an MLP."""
    return [Kind("full", "dense"), Kind("full", "sparse")] * config.layers()


def real_experts(config: ConfigReader) -> int:
    """Experts that a token of LongCat visits in the mean, but for those that do nothing."""
    chosen, real = config.size("moe_topk", 12), config.size("n_routed_experts", 512)
    every = real + config.size("zero_expert_num", 256, least=0)
    return max(round(chosen * real / every), 1)


def blocks_of_nas(config: ConfigReader) -> list[Kind]:
    """Attention and feed-forward of every layer from an architecture search, with their sizes."""
    layers = config.sequence("block_configs", config.layers()) or ()
    blocks = [
        _block_of_nas(config, ConfigReader(_as_table(each), config.errors)) for each in layers
    ]
    if not blocks:
        config.add_error("block_configs", "is missing")
    return blocks or [Kind("full", "dense")]


def _as_table(value: object) -> Table:
    return value if isinstance(value, dict) else {}


def _block_of_nas(config: ConfigReader, block: ConfigReader) -> Kind:
    """Return the layer kind of one block of a Nemotron NAS config, whose parts may be skipped."""
    attention, forward = block.table("attention"), block.table("ffn")
    table: Table = {}
    for part in (attention, forward):
        part.refuse("replace_with_linear", supported=False)
    mixer = "" if attention.flag("no_op", False) else "full"
    if mixer:
        heads = config.size("num_attention_heads")
        table["num_key_value_heads"] = max(heads // attention.size("n_heads_in_group"), 1)
    dense = "" if forward.flag("no_op", False) else "dense"
    times = forward.values.get("ffn_mult")
    if dense and isinstance(times, int | float) and 0 < times < MOST_TIMES:
        width = int(2 * times * config.size("hidden_size") / 3)
        table["intermediate_size"] = ceil_div(width, 256) * 256
    elif dense:
        table["intermediate_size"] = forward.size("intermediate_size")
    table["norms_per_layer"] = bool(mixer) + bool(dense)
    return Kind(mixer, dense, json.dumps(table, sort_keys=True))


def modern_lfm2(config: ConfigReader) -> ConfigReader:
    """The keys of the published file: the layers of attention as numbers, other names."""
    tied, inner = config.values.get("tie_embedding"), config.optional_size("block_ff_dim")
    table: Table = {} if tied is None else {"tie_word_embeddings": tied}
    if inner:
        table["intermediate_size"] = inner
    full = config.sequence("full_attn_idxs")
    if full is not None and config.values.get("layer_types") is None:
        table["layer_types"] = [
            "full_attention" if layer in full else "conv" for layer in range(config.layers())
        ]
    return config.replaced(table)


def width_of_lfm2(config: ConfigReader) -> int:
    """Return LFM2's MLP width: two thirds of the config's, rounded up to a multiple."""
    width = config.size("intermediate_size")
    if not config.flag("block_auto_adjust_ff_dim", True):
        return width
    width, factor = 2 * width // 3, config.values.get("block_ffn_dim_multiplier", 1.0)
    if isinstance(factor, int | float) and not isinstance(factor, bool):
        if not 0 < factor < MOST_TIMES:
            config.add_error("block_ffn_dim_multiplier", f"must be from 0 to {MOST_TIMES}")
            return max(width, 1)
        multiple = config.size("block_multiple_of", 256)
        width = multiple * ceil_div(int(factor * width), multiple)
    return max(width, 1)
