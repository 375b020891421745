"""Configs whose layers choose what they attend to, or keep few entries or a state of it.

What `planner.specs.hugging_face_rules` is for others: functions that rows name.
"""

from __future__ import annotations

from planner.specs.hugging_face_reader import ConfigReader
from planner.specs.hugging_face_rules import Table, listed, told_apart

MOST_TIMES = 1000
_INDEX_OF_MINIMAX = (
    ("index_n_heads", "sparse_num_index_heads"),
    ("index_head_dim", "sparse_index_dim"),
    ("index_block_size", "sparse_block_size"),
    ("index_topk_blocks", "sparse_topk_blocks"),
)
_RATES = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
_NEAR = "sliding_attention"


def modern_indexers(config: ConfigReader) -> ConfigReader:
    """Layers without an indexer of their own, which attend to what one before them chose.

    A list of words, a pattern of letters, or one indexer in so many layers behind the first ones.
    """
    pattern = config.values.get("index_topk_pattern")
    if config.values.get("indexer_types") is None and isinstance(pattern, str | list):
        words = [{"F": "full", "S": "shared"}.get(str(each), each) for each in pattern]
        config = config.replaced({"indexer_types": words})
    every = config.size("index_topk_freq", 1)
    first = config.size("index_skip_topk_offset", 2, least=0)
    known = {"full": True, "shared": False}
    full = told_apart(
        config, "indexer_types", known, lambda layer: max(layer - first + 1, 0) % every == 0
    )
    if not full[0]:
        config.fault("indexer_types", "of the first layer must be full")
    none = {"index_n_heads": 0, "index_head_dim": 0}
    own = {str(layer): none for layer, is_full in enumerate(full) if not is_full}
    return config.replaced({"per_layer_config": own}) if own else config


def modern_minimax(config: ConfigReader) -> ConfigReader:
    """The keys of the published file: lists of 0 and 1."""
    sparse = config.table("sparse_attention_config")
    kinds = {
        "layer_types": listed(
            sparse.replaced({"num_hidden_layers": config.layers()}),
            "sparse_attention_freq",
            ("full_attention", "minimax_m3_sparse"),
        ),
        "mlp_layer_types": listed(config, "moe_layer_freq", ("dense", "sparse")),
    }
    found = {key: value for key, value in kinds.items() if value and not config.values.get(key)}
    config = config.replaced(found).completed(
        {name: sparse.values[key] for name, key in _INDEX_OF_MINIMAX if key in sparse.values}
    )
    words = {"full_attention": False, "minimax_m3_sparse": True}
    chosen = told_apart(config, "layer_types", words, lambda _: False)
    keys = config.size("index_topk_blocks", 16) * config.size("index_block_size", 128)
    own = {
        "index_topk": keys,
        "index_n_heads": config.size("index_n_heads", 4),
        "index_head_dim": config.size("index_head_dim", 128),
    }
    none = dict.fromkeys(own, 0)
    layers = {str(layer): own if chooses else none for layer, chooses in enumerate(chosen)}
    return config.replaced({"layer_types": None, "per_layer_config": layers})


def modern_deepseek_v4(config: ConfigReader) -> ConfigReader:
    """Tokens of an entry and an indexer layer by layer, and routers that look experts up.

    Published files name a ratio per layer; transformers 5 a word, and a rate per word.
    """
    number = config.layers()
    config, words = _without_prediction(config, number), {_NEAR: 0} | _RATES
    rates = config.table("compress_rates")
    rate = {word: rates.size(word, usual) for word, usual in _RATES.items()} | {_NEAR: 0}
    listed = config.sequence("compress_ratios", number)
    if config.values.get("layer_types") is None and listed is not None:
        names: dict[object, object] = {ratio: word for word, ratio in words.items()}
        config = config.replaced({"layer_types": [names.get(each, each) for each in listed]})
    sparse, heavy = _RATES
    kinds = told_apart(
        config, "layer_types", {word: word for word in words},
        lambda layer: sparse if layer > 1 and layer % 2 else heavy,
    )  # fmt: skip
    first = config.size("num_hash_layers", 3, least=0)
    looked_up = told_apart(
        config, "mlp_layer_types", {"hash_moe": True, "moe": False}, lambda layer: layer < first
    )
    none = {"index_topk": 0, "index_n_heads": 0, "index_head_dim": 0}
    own = {
        str(layer): {"compress_ratio": rate[kind], "looks_experts_up": looks}
        | ({} if kind == sparse else none)
        for layer, (kind, looks) in enumerate(zip(kinds, looked_up, strict=True))
    }
    return config.replaced({"layer_types": None, "mlp_layer_types": None, "per_layer_config": own})


def _without_prediction(config: ConfigReader, number: int) -> ConfigReader:
    """The config without what its lists say of modules of multi-token prediction."""
    longer = {
        key: given[:number]
        for key in ("compress_ratios", "layer_types", "mlp_layer_types")
        if isinstance(given := config.values.get(key), list) and len(given) > number
    }
    return config.replaced(longer)


def compressed_attention(config: ConfigReader, **fields: object) -> Table:
    """Compressed attention by the names of DeepSeek-V4."""
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
    """Hold of all layers but one in four, the first aside."""
    return layer == 0 or layer % 4 != 0


def modern_kimi_linear(config: ConfigReader) -> ConfigReader:
    """The keys of the published file: sizes in a table, and the numbers of layers from 1 on."""
    table = config.table("linear_attn_config")
    sizes = {
        "linear_head_dim": table.optional_size("head_dim"),
        "linear_num_heads": table.optional_size("num_heads"),
        "linear_conv_kernel_dim": table.optional_size("short_conv_kernel_size"),
    }
    found: Table = {key: size for key, size in sizes.items() if size}
    full = table.sequence("full_attn_layers")
    if full is not None and config.values.get("layer_types") is None:
        found["layer_types"] = [
            "full_attention" if layer + 1 in full else "linear_attention"
            for layer in range(config.layers())
        ]
    return config.replaced(found)


def modern_lfm2(config: ConfigReader) -> ConfigReader:
    """The keys of the published file: the layers of attention as numbers, other names."""
    tied, inner = config.values.get("tie_embedding"), config.optional_size("block_ff_dim")
    found: Table = {} if tied is None else {"tie_word_embeddings": tied}
    if inner:
        found["intermediate_size"] = inner
    full = config.sequence("full_attn_idxs")
    if full is not None and config.values.get("layer_types") is None:
        found["layer_types"] = [
            "full_attention" if layer in full else "conv" for layer in range(config.layers())
        ]
    return config.replaced(found)


def width_of_lfm2(config: ConfigReader) -> int:
    """Width of the MLP: two thirds of what the config says, rounded up to a multiple."""
    width = config.size("intermediate_size")
    if not config.flag("block_auto_adjust_ff_dim", True):
        return width
    width, factor = 2 * width // 3, config.values.get("block_ffn_dim_multiplier", 1.0)
    if isinstance(factor, int | float) and not isinstance(factor, bool):
        if not 0 < factor < MOST_TIMES:
            config.fault("block_ffn_dim_multiplier", f"must be from 0 to {MOST_TIMES}")
            return max(width, 1)
        multiple = config.size("block_multiple_of", 256)
        width = multiple * -(-int(factor * width) // multiple)
    return max(width, 1)
